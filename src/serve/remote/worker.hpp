// A process that computes for this one, and the socket to it. It ends with this object. One thread at a time,
// but for abandon().
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "serve/remote/channel.hpp"

namespace tutti::serve::remote {

class Worker {
 public:
  struct Program {
    std::vector<std::string> command;
    std::string name = "the worker with the model";  // in messages
    int listener = -1;  // that it finds at listener_descriptor; stays the caller's
  };

  static Result<std::unique_ptr<Worker>> start(const Program& program);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { end(); }

  Result<> send(Word word, std::string_view bytes);
  // Waits for the next message, which is the wanted one or a failure that is told.
  Result<std::string> answer(Word wanted);
  // Waits until its model is loaded.
  Result<Ready> ready();

  // Readable when there is an answer, or when it has gone.
  int descriptor() const { return channel_ ? channel_->descriptor() : -1; }
  bool is_there() const { return channel_.has_value(); }
  // It has not gone, as far as this machine knows. Does not wait.
  bool is_open() const { return channel_ && channel_->is_open(); }
  // At once: it has nothing that is worth keeping.
  void end();
  // The same without waiting for it, and from any thread: who waits for an answer hears that it has gone.
  void abandon();
  // Ends it, and tells how it has ended.
  Error gone();

 private:
  Worker(pid_t process, Channel channel, std::string name)
      : process_(process), channel_(std::move(channel)), name_(std::move(name)) {}

  mutable std::mutex mutex_;  // of the process, while it is signalled or waited for
  pid_t process_;
  std::optional<Channel> channel_;
  std::string name_;
  std::string why_;
};

}  // namespace tutti::serve::remote
