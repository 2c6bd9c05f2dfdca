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

  // Whatever fails for it, for want of memory above all, ends it and nothing else: who has asked is told so
  // where that is possible, and so is who was to answer.
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

  void recognise_peer();
  asio::awaitable<void> serve_all(std::shared_ptr<Connection> self);

  // ---- requests

  // Reads one request and answers it. False when the connection is over.
  asio::awaitable<bool> serve_one();
  asio::awaitable<error_code> read_head(Parser& parser);
  // In pieces that are counted as they come.
  asio::awaitable<error_code> read_body(Parser& parser, Incoming::Arrival& arrival);
  // What has come goes to the parser.
  error_code parse(Parser& parser);
  // Waits for more of it.
  asio::awaitable<error_code> read_more(Parser& parser);
  // Whether there is memory for the body that its head announces.
  bool make_room(Parser& parser);
  // There is no room for its body, or for the rest of it.
  asio::awaitable<bool> refuse_crowded(Parser& parser, Incoming::Arrival& arrival);
  // It could not be read as a request. The connection is over.
  asio::awaitable<bool> refuse_unread(error_code failure);
  // Hands it over, and gives the answer. False when the connection is over.
  asio::awaitable<bool> answer(Request request, Message message, Incoming::Arrival& arrival);

  // ---- answers

  // Its body will not be read. The connection is over, but not before the other side could hear that: closed
  // while it sends, it would lose the answer.
  asio::awaitable<bool> refuse_head(Response& refusal);
  // For want of memory.
  asio::awaitable<void> refuse_lost(std::shared_ptr<Connection> self);
  asio::awaitable<void> ask_for_body();
  // In pieces, each of which gives its reader more time (progress.hpp). False when the connection is over.
  asio::awaitable<bool> write(Response& response, bool keep_alive);
  void tell_let_go(std::size_t bytes) const;
  // Whoever reads so slowly that too much waits is not written to any more.
  void give_up(std::size_t bytes);
  // Pieces as they come. A reader who has gone is noticed, and by the system where its machine has; one who
  // is slow, or pauses, is waited for, as far as the backlog and `stalled_time` allow. What it sends
  // meanwhile waits. False when the connection is over.
  asio::awaitable<bool> write_stream(std::shared_ptr<Outbox> outbox, bool keep_alive);
  asio::awaitable<error_code> write_pieces(std::shared_ptr<Outbox> outbox, bool is_chunked);
  // One piece of it, which has to make progress.
  template <class Buffers>
  asio::awaitable<error_code> write_piece(Buffers piece);
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
  std::shared_ptr<const pki::Identity> peer_;  // who has shown a certificate
  // What has come and is not parsed yet: of a head, of what stands around the chunks of a body, of the next
  // request. There is never more of it than is read at once.
  beast::flat_buffer buffer_{piece_bytes_max};
  std::chrono::steady_clock::time_point known_by_;
  Lobby::Guest guest_ = 0;  // while it is in the lobby
  Lobby::Guest idle_ = 0;   // while it is among those who ask for nothing
  std::shared_ptr<asio::steady_timer> farewell_;
  bool upgraded_ = false;

  // ---- of the request under way

  unsigned version_ = 11;
  bool is_head_ = false;                // it asks for the head of the answer alone
  bool owes_answer_ = false;            // it was read, and nothing of the answer was written
  bool is_written_ = false;             // all of the answer, to its end
  bool is_given_up_ = false;            // nothing more of the answer is written
  std::shared_ptr<Decision> decision_;  // once the handler has it
};

}  // namespace tutti::net
