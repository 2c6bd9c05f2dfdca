#include "serve/remote/program.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock/clock.hpp"
#include "serve/program/within_memory.hpp"
#include "serve/remote/worker_process.hpp"

namespace tutti::serve::remote {
namespace {

// An eventfd that stays readable once it was set: for those who wait for something else, too.
class Bell {
 public:
  Bell() : event_(eventfd(0, EFD_CLOEXEC)) {}
  void ring() const { eventfd_write(event_.get(), 1); }
  // False when it has rung, true when the descriptor is readable, nothing when the time is over.
  std::optional<bool> wait(int descriptor, std::optional<Duration> time) const {
    pollfd polled[2] = {{event_.get(), POLLIN, 0}, {descriptor, POLLIN, 0}};
    const auto until = SteadyClock::now() + time.value_or(Duration{});
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now()).count();
      const int timeout = time ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1;
      const int ready = ::poll(polled, descriptor >= 0 ? 2 : 1, timeout);
      if (ready < 0) continue;
      if (polled[0].revents != 0) return false;
      if (ready > 0) return true;
      return std::nullopt;
    }
  }

 private:
  files::FileDescriptor event_;
};

class RemoteProgram final : public Program {
 public:
  using Tell = std::function<void(const std::string&)>;
  RemoteProgram(std::vector<std::string> command, int lanes, const Patience& patience, Tell tell)
      : command_(std::move(command)),
        lanes_(lanes),
        patience_(patience),
        tell_(std::move(tell)),
        delay_(patience.first) {}
  ~RemoteProgram() override {
    stop();
    if (keeper_.joinable()) keeper_.join();
  }

  Result<> open() {
    auto started = start_worker();
    if (!started) return std::move(started).error();
    worker_ = std::move(*started);
    keeper_ = std::thread([this] { keep(); });
    return {};
  }

  int lanes() const override { return lanes_; }
  const Signature& signature() const override { return card_.signature; }
  std::string describe() const override { return card_.about; }

  Result<std::vector<Tensor>> run(int lane, const std::vector<Tensor>& inputs) override {
    const std::string bytes = encode(inputs);
    if (bytes.size() > frame_bytes_max) return invalid("the tensors are too large for one message");
    const auto worker = current();
    if (!worker) return worker.error();
    const Channel& channel = (*worker)->lane(lane);
    if (!channel.send(Word::run, bytes)) return gone(**worker);
    auto message = channel.receive();
    if (!message || !*message) return gone(**worker);
    if ((*message)->word == Word::failed) return decode_error((*message)->bytes);
    if ((*message)->word != Word::ran) return gone(**worker);
    return decode_tensors((*message)->bytes);
  }

  ProgramState state() const override {
    const std::scoped_lock lock(mutex_);
    return {worker_ != nullptr, problem_, restarts_};
  }

  void stop() override { bell_.ring(); }

 private:
  // Nothing but `unknown`: it may be there when it is asked for again.
  Result<std::shared_ptr<WorkerProcess>> current() const {
    const std::scoped_lock lock(mutex_);
    if (worker_ == nullptr) return unknown(problem_);
    return worker_;
  }

  // Its end is the keeper's; who asked hears of it what the keeper has found out.
  Error gone(const WorkerProcess& worker) const {
    worker.kill();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return worker_.get() != &worker; });
    return unknown(problem_.empty() ? "the worker with the model has ended" : problem_);
  }

  Result<std::shared_ptr<WorkerProcess>> start_worker() {
    auto started = WorkerProcess::start({.command = command_, .lanes = lanes_});
    if (!started) return std::move(started).error();
    std::shared_ptr<WorkerProcess> worker(std::move(*started));
    if (bell_.wait(worker->lane(0).descriptor(), std::nullopt) == false) {
      static_cast<void>(worker->end());
      return unknown("this engine is about to stop");
    }
    auto message = worker->lane(0).receive();
    if (!message || !*message)
      return failed("the worker with the model has ended before it was ready: " + worker->end());
    if ((*message)->word == Word::failed) return decode_error((*message)->bytes);
    if ((*message)->word != Word::ready) return failed("the worker has answered something else");
    auto card = decode_card((*message)->bytes);
    if (!card) return std::move(card).error();
    // The first one's stays: who was told of it goes by it, and is not served by another model.
    if (card_.about.empty()) {
      card_ = std::move(*card);
    } else if (card->version != card_.version) {
      return failed("the file of the model was replaced; start this engine again to serve the new one");
    }
    return worker;
  }

  // The keeper's thread: waits for the worker's end, and starts the next. Whatever there is no memory for, it
  // goes on: without it none would ever be started again.
  void keep() {
    auto since = SteadyClock::now();
    for (;;) {
      const auto worker = worker_;  // only this thread changes it
      const bool stops = bell_.wait(worker->end_descriptor(), std::nullopt) == false;
      const std::string how = patiently([&] { return worker->end(); });
      patiently([&] {
        set(nullptr, "the worker with the model has ended: " + how + "; it is being started again");
      });
      if (!stops) tell();
      if (SteadyClock::now() - since > patience_.forgets) delay_ = patience_.first;
      for (;;) {
        if (stops || bell_.wait(-1, delay_) == false)
          return patiently([&] { set(nullptr, "this engine is about to stop"); });
        delay_ = std::min(2 * delay_, patience_.most);
        auto next = within_memory([&] { return start_worker(); });
        if (next) {
          since = SteadyClock::now();
          set(std::move(*next), "");
          tell();
          break;
        }
        patiently([&] {
          set(nullptr, "the worker with the model has ended (" + how +
                           "), and could not be started again: " + next.error().text());
        });
        tell();
      }
    }
  }

  void set(std::shared_ptr<WorkerProcess> worker, std::string problem) {
    {
      const std::scoped_lock lock(mutex_);
      if (worker != nullptr) ++restarts_;
      worker_ = std::move(worker);
      problem_ = std::move(problem);
    }
    changed_.notify_all();
  }

  // The keeper's: what it has found out, each thing once.
  void tell() {
    if (!tell_) return;
    patiently([&] {
      std::string text = state().problem;
      if (text.empty()) text = "the model is there again";
      if (text == told_) return;
      tell_(text);
      told_ = std::move(text);
    });
  }

  const std::vector<std::string> command_;
  const int lanes_;
  const Patience patience_;
  const Tell tell_;
  std::string told_;  // the keeper's, and so is what follows
  Duration delay_;
  ProgramCard card_;
  Bell bell_;  // it stops

  mutable std::mutex mutex_;  // of what follows
  mutable std::condition_variable changed_;
  std::shared_ptr<WorkerProcess> worker_;  // null: it has ended
  std::string problem_;
  std::int64_t restarts_ = 0;

  std::thread keeper_;  // last: it uses the rest
};

}  // namespace

Result<std::unique_ptr<Program>> open_program(std::vector<std::string> command, int lanes,
                                              const Patience& patience,
                                              std::function<void(const std::string&)> tell) {
  TUTTI_CHECK(lanes >= 1 && lanes <= lanes_max);
  auto program = std::make_unique<RemoteProgram>(std::move(command), lanes, patience, std::move(tell));
  if (auto opened = program->open(); !opened) return std::move(opened).error();
  return std::unique_ptr<Program>(std::move(program));
}

}  // namespace tutti::serve::remote
