// What is said with a process that computes a model, word by word. It ends with this object. One thread at a
// time, but for kill().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "serve/remote/remote.hpp"
#include "serve/remote/worker_process.hpp"

namespace tutti::serve::remote {

class Worker {
 public:
  struct Program {
    std::vector<std::string> command;
    std::string name = "the worker with the model";  // in messages
    int listener = -1;  // that it finds at listener_descriptor; stays the caller's
    Deadlines deadlines = {};
  };

  static Result<std::unique_ptr<Worker>> start(const Program& program);

  Result<> send(Word word, std::string_view bytes);
  // Waits for the next message, which is the wanted one or a failure that is told. One who does not say a
  // word in time is ended.
  Result<std::string> answer(Word wanted);
  // Waits until its model is loaded.
  Result<Ready> ready();

  // Readable when there is an answer, or when it has gone.
  int descriptor() const { return is_there() ? channel().descriptor() : -1; }
  bool is_there() const { return !process_->has_ended(); }
  // It has not gone, as far as this machine knows. Does not wait.
  bool is_open() const { return is_there() && channel().is_open(); }
  // It ends now, and nobody waits for that; end() does. From any thread: who waits for an answer hears that
  // it has gone.
  void kill() const { process_->kill(); }
  void end() { process_->end(); }
  // Ends it, and tells how it has ended.
  Error gone();

 private:
  Worker(std::unique_ptr<WorkerProcess> process, const Program& program)
      : process_(std::move(process)), name_(program.name), deadlines_(program.deadlines) {}
  const Channel& channel() const { return process_->lane(0); }
  Duration time_for(Word wanted) const {
    return wanted == Word::ready ? deadlines_.loading : deadlines_.step;
  }
  // Ends it: it has said nothing for so long.
  Error silent(Duration time);

  std::unique_ptr<WorkerProcess> process_;
  std::string name_;
  Deadlines deadlines_;
};

}  // namespace tutti::serve::remote
