// HTTP as the shells see it: plain requests, answers, streams and sockets. Everything from outside is
// bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rate.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "net/pki/pki.hpp"

namespace tutti::net {

constexpr std::size_t header_bytes_max = 16 << 10;
constexpr std::size_t body_bytes_max = 16 << 20;
constexpr std::size_t frame_bytes_max = 16 << 20;
// What a client takes: of an answer, and of one that is small by its nature.
constexpr std::size_t answer_bytes_max = 256 << 20;
constexpr std::size_t small_answer_bytes_max = 4 << 20;
constexpr Duration answer_time_max = 60s;
// What waits for one slow reader, and for all of them together; who has most waiting is let go.
constexpr std::size_t backlog_bytes_max = 64 << 20;
constexpr std::size_t backlogs_bytes_max = 512 << 20;
constexpr std::size_t event_bytes_max = backlog_bytes_max;  // no server has a longer one for a reader
// What is in memory of bodies that still come or are not answered yet; those that are large and take long are
// refused first.
constexpr std::size_t bodies_bytes_max = 256 << 20;
constexpr std::size_t bodies_bytes_per_address_max = 128 << 20;
// The same of WebSocket messages that are not whole: of those whose other side is known, and of the others.
constexpr std::size_t messages_bytes_max = 256 << 20;
constexpr std::size_t messages_bytes_per_address_max = 128 << 20;
constexpr std::size_t unknown_messages_bytes_max = 64 << 20;
constexpr std::size_t unknown_messages_bytes_per_address_max = 32 << 20;
constexpr Duration message_time_max = 30s;  // from its first piece to its last
// What is read at once of a large body or message.
constexpr std::size_t piece_bytes_max = 64 << 10;
constexpr int crowded_retry_after_seconds = 1;
// Writes to streams that begin before everybody else on the loop has had a turn.
constexpr std::size_t stream_writes_at_once = 16;
// The same of reads of bodies, of connections that are taken in, and of steps of TLS handshakes, where each
// address has one of them.
constexpr std::size_t body_reads_at_once = 16;
constexpr std::size_t connections_at_once = 64;
constexpr std::size_t handshakes_at_once = 4;
// To take the last words that tell it why.
constexpr Duration farewell_time_max = 5s;
constexpr Duration request_time_max = 30s;  // to send a whole request, and between two of them
// What is still taken, and thrown away, of a body that nobody will read: its sender hears why before the end.
constexpr std::size_t refused_bytes_max = 1 << 20;
constexpr Duration refused_time_max = 1s;
constexpr std::size_t connections_max = 65'536;
constexpr std::size_t connections_per_address_max = 16'384;
// Of those, who have shown no token yet; and how long they may stay so.
constexpr std::size_t unknown_connections_max = 8'192;
constexpr std::size_t unknown_connections_per_address_max = 4'096;
constexpr Duration unknown_time_max = 10s;
constexpr Rate frame_rate_max{.per_second = 10'000, .burst = 20'000};  // of one WebSocket
// Pings and pongs of one WebSocket, which are no messages. Whoever means well sends one in some ten seconds.
constexpr Rate control_frame_rate_max{.per_second = 10, .burst = 100};

// In an answer: the cluster that speaks. In a request: the one that is meant.
constexpr const char* cluster_header = "tutti-cluster";
constexpr std::size_t cluster_bytes_max = 64;

struct Request {
  std::string method;  // "GET"
  std::string path;    // "/api/v1/jobs", decoded: for people
  // "api", "v1", "jobs": each decoded by itself, so that a name may hold a '/'.
  std::vector<std::string> parts;
  std::map<std::string, std::string> query;
  std::string bearer;  // the token of the Authorization header
  // Of the others only those that ServerOptions::headers names, in lower case.
  std::map<std::string, std::string> headers;
  std::string body;
  std::uint64_t body_bytes = 0;  // as its head says; 0 where it does not say
  std::string remote;            // the address of the other side
  bool websocket = false;
  // Who has shown a certificate of an authority that the server trusts for clients; null: nobody. Whether it
  // is good at this time, and still wanted, is for the handler to say.
  std::shared_ptr<const pki::Identity> peer = nullptr;
};

struct Response {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  int retry_after_seconds = 0;  // of a refusal that ends by itself; 0: not said
  std::string allow = {};       // the methods that the page takes, where it does not take this one
  std::map<std::string, std::string> headers = {};  // besides those that every answer has
};

// Bytes on their way to one or to many, who share them.
using Text = std::shared_ptr<const std::string>;
inline Text make_text(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

// A response whose body goes on: server-sent events. From any thread.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  // `written` runs on the loop when the other side's system has taken it: who waits for that before it writes
  // more is as fast as the reader, and not cut off however slow that is. It does not run once the stream is
  // closed.
  virtual void write(Text chunk, std::function<void()> written = nullptr) = 0;
  void write(std::string chunk, std::function<void()> written = nullptr) {
    write(make_text(std::move(chunk)), std::move(written));
  }
  // When all of it is written.
  virtual void close() = 0;
  // At once, whoever has not read the rest.
  virtual void cut() = 0;
};

// A WebSocket. send() and close() from any thread; the callbacks run on the loop, none after on_close.
class Socket {
 public:
  Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  virtual ~Socket() = default;

  virtual void send(Text frame) = 0;
  void send(std::string frame) { send(make_text(std::move(frame))); }
  // Goes out, in order with its like, when nothing of send() waits.
  virtual void send_later(std::string frame) = 0;
  // Of send_later(), what has not gone out.
  virtual std::size_t later_bytes() const = 0;
  // Something has come that was not read yet. On the loop.
  virtual bool has_unread() const = 0;
  // How often something was read, whether a message was whole then or not. On the loop.
  virtual std::uint64_t reads() const { return 0; }
  // Its other side has said who it is: it need not hurry any more, and its messages do not count among those
  // of strangers. On the loop.
  virtual void become_known() {}
  virtual void close() = 0;

  std::function<void(std::string)> on_message;
  std::function<void(const std::string& why)> on_close;
};

// One request that waits for its answer: exactly one of these is called, once, from any thread.
class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  // `over` runs on the loop, once: when the answer is written, or when the other side has gone before there
  // was one. Of a stream its own `on_close` tells that. To be said before the handler returns.
  virtual void when_over(std::function<void()> /*over*/) {}
  virtual void answer(Response response) = 0;
  // Of an answer that was given, nothing more is written: its reader is too slow.
  virtual void cut() {}
  // Whether all of the answer was written, for `over`. On the loop.
  virtual bool is_written() const { return true; }
  // `on_close` runs on the loop when the other side has gone or close() is done.
  virtual std::shared_ptr<Stream> stream(std::function<void()> on_close) = 0;
  // `ready` runs on the loop with the open socket, and must set its callbacks before it returns.
  virtual void upgrade(std::function<void(std::shared_ptr<Socket>)> ready) = 0;
};

}  // namespace tutti::net
