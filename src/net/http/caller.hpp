// Asks one server many things at once, on a loop: what stands between clients and servers of theirs. Answers
// come in pieces, as they are sent; connections are kept and used again. All of it is for the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/http/client.hpp"
#include "net/http/http.hpp"
#include "net/http/loop.hpp"

namespace tutti::net {

// Less than a server waits for the next request on a connection.
constexpr Duration idle_connection_time_max = 20s;
// Of one server.
constexpr std::size_t idle_connections_max = 512;
// A server whose machine has gone says nothing, not even that: it is asked so often whether it is there, and
// is gone when so many questions stay open.
constexpr int silent_seconds_max = 1;
constexpr int silent_questions_max = 2;

struct Outgoing {
  std::string method = "POST";
  std::string path = "/";
  Text body = nullptr;                           // null: none
  std::string type = "application/json";         // of the body
  std::string token = {};                        // goes nowhere in the clear but to this machine
  std::map<std::string, std::string> headers{};  // besides
  std::vector<std::string> wants{};              // headers of the answer, in lower case
  Duration connect_time_max = 2s;
  Duration head_time_max = answer_time_max;   // from then to the head of the answer
  Duration pause_time_max = answer_time_max;  // between two pieces of it
  std::size_t answer_bytes_max = net::answer_bytes_max;
};

struct AnswerHead {
  int status = 0;
  std::string type;
  int retry_after_seconds = 0;
  std::map<std::string, std::string> headers = {};  // of those that were wanted
};

// Hears of one call: the head, pieces of the body, and last that it is over, well or why not. Nothing comes
// after that, nor once the call was dropped, which may happen in here.
struct CallListener {
  std::function<void(AnswerHead)> on_head;
  std::function<void(std::string)> on_piece;
  std::function<void(Result<>)> over;
};

// Whoever drops it wants nothing more of it.
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;

  // Nothing more is read, and so the other side slowed down, until it goes on.
  virtual void pause() = 0;
  virtual void go_on() = 0;
};

class Caller {
 public:
  // Reads the files of the target.
  static Result<std::unique_ptr<Caller>> make(Loop& loop, Target target);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  const Target& target() const;
  // Calls that are under way outlive the caller.
  std::unique_ptr<Call> call(Outgoing outgoing, CallListener listener);
  std::size_t idle_connections() const;

 private:
  class Connections;
  class Conversation;
  explicit Caller(std::shared_ptr<Connections> connections);
  std::shared_ptr<Connections> connections_;
};

}  // namespace tutti::net
