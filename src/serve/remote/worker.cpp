#include "serve/remote/worker.hpp"

#include "base/clock/clock.hpp"

namespace tutti::serve::remote {

Result<std::unique_ptr<Worker>> Worker::start(const Program& program) {
  auto process = WorkerProcess::start({.command = program.command, .listener = program.listener});
  if (!process) return std::move(process).error();
  return std::unique_ptr<Worker>(new Worker(std::move(*process), program));
}

Result<> Worker::send(Word word, std::string_view bytes) {
  if (!is_there()) return gone();
  if (auto sent = channel().send(word, bytes); !sent) return gone();
  return {};
}

Result<std::string> Worker::answer(Word wanted) {
  if (!is_there()) return gone();
  const auto until = SteadyClock::now() + time_for(wanted);
  auto message = channel().receive(until);
  if (!message && SteadyClock::now() >= until) return silent(time_for(wanted));
  if (!message || !*message) return gone();
  if ((*message)->word == Word::failed) return decode_error((*message)->bytes);
  if ((*message)->word != wanted) return failed(name_ + " has answered something else");
  return std::move((*message)->bytes);
}

Result<Ready> Worker::ready() {
  auto bytes = answer(Word::ready);
  if (!bytes) return std::move(bytes).error();
  return decode_ready(*bytes);
}

Error Worker::silent(Duration time) {
  process_->end();
  return failed(name_ + " has not answered for " + format_duration(time) + ", and was ended");
}

Error Worker::gone() { return failed(name_ + " has ended: " + process_->end()); }

}  // namespace tutti::serve::remote
