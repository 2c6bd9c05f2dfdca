// One connection of a server, from its first byte to its last. For this module's own files only.
#pragma once

#include "net/http/exchange.hpp"

namespace tutti::net {

using Message = http::request<http::string_body>;
using Parser = http::request_parser<http::string_body>;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shared> shared, Wire stream, std::string remote);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  asio::awaitable<void> run();

 private:
  beast::tcp_stream& lowest() { return stream_.lowest(); }

  // What ends it, to make room for others.
  std::function<void()> closer();

  // Whoever has not shown a token has until then, whatever it asks for; the others have their time for each
  // request.
  void expect_request();
  // It need not make room for others any more.
  void become_known() { shared_->lobby.leave(std::exchange(guest_, 0)); }

  // ---- requests

  // Reads one request and answers it. False when the connection is over.
  asio::awaitable<bool> serve_one(beast::flat_buffer& buffer);
  // In pieces that are counted as they come.
  asio::awaitable<error_code> read_body(beast::flat_buffer& buffer, Parser& parser,
                                        Incoming::Arrival& arrival);
  // There is no room for its body, or for the rest of it.
  asio::awaitable<bool> refuse_crowded(Parser& parser, Incoming::Arrival& arrival);
  // It could not be read as a request. The connection is over.
  asio::awaitable<bool> refuse_unread(error_code failure);

  // ---- answers

  // Its body will not be read. The connection is over, but not before the other side could hear that: closed
  // while it sends, it would lose the answer.
  asio::awaitable<bool> refuse_head(Response& refusal, unsigned version);
  asio::awaitable<void> ask_for_body(unsigned version);
  asio::awaitable<bool> write(Response& response, unsigned version, bool keep_alive);
  void tell_let_go(std::size_t bytes) const;
  // Whoever reads so slowly that too much waits is not written to any more.
  void give_up(std::size_t bytes);
  // Chunks as they come. A reader who has gone is noticed by reading, and by the system where its machine
  // has; one who is slow, or pauses, is waited for, as far as the backlog and `stalled_time` allow.
  asio::awaitable<void> write_stream(std::shared_ptr<Outbox> outbox, unsigned version);
  void end_stream(Decision& decision);
  // One piece of it, which has to make progress.
  asio::awaitable<error_code> write_piece(asio::const_buffer piece);
  void expect_progress();
  // The slow one has this long to take what is under way and why it is the last.
  void take_leave(std::size_t bytes);

  // ---- sockets

  asio::awaitable<void> serve_socket(Message message,
                                     const std::function<void(std::shared_ptr<Socket>)>& ready);

  const std::shared_ptr<Shared> shared_;
  const Presence presence_;
  Wire stream_;
  std::string remote_;
  std::chrono::steady_clock::time_point known_by_;
  Lobby::Guest guest_ = 0;  // while it is in the lobby
  Lobby::Guest idle_ = 0;   // while it is among those who ask for nothing
  std::shared_ptr<asio::steady_timer> farewell_;
  bool upgraded_ = false;
};

}  // namespace tutti::net
