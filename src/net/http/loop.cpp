#include "net/http/loop.hpp"

#include <signal.h>

#include <exception>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "net/http/core.hpp"

namespace tutti::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The pending operation holds only a weak pointer: when the handle is gone, the callback is too.
class Timer final : public Loop::Handle, public std::enable_shared_from_this<Timer> {
 public:
  Timer(Loop::Core& core, Duration period, bool repeats, std::function<void()> task)
      : core_(core), timer_(core.context), period_(period), repeats_(repeats), task_(std::move(task)) {}

  void arm() {
    timer_.expires_after(period_);
    timer_.async_wait([weak = weak_from_this()](error_code failure) {
      const auto self = weak.lock();
      if (failure || self == nullptr) return;
      self->core_.run_task([&self] {
        const auto task = self->task_;
        if (self->repeats_) self->arm();
        task();
      });
    });
  }

 private:
  Loop::Core& core_;
  asio::steady_timer timer_;
  Duration period_;
  bool repeats_;
  std::function<void()> task_;
};

class Watch final : public Loop::Handle, public std::enable_shared_from_this<Watch> {
 public:
  Watch(Loop::Core& core, int descriptor, std::function<void()> ready)
      : core_(core), descriptor_(core.context, descriptor), ready_(std::move(ready)) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() override { descriptor_.release(); }

  void arm() {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                           [weak = weak_from_this()](error_code failure) {
                             const auto self = weak.lock();
                             if (failure || self == nullptr) return;
                             self->core_.run_task([&self] {
                               self->ready_();
                               // The callback may have dropped the handle; then this was the last call.
                               if (self.use_count() > 1) self->arm();
                             });
                           });
  }

 private:
  Loop::Core& core_;
  asio::posix::stream_descriptor descriptor_;
  std::function<void()> ready_;
};

class Signals final : public Loop::Handle, public std::enable_shared_from_this<Signals> {
 public:
  Signals(Loop::Core& core, std::initializer_list<int> signals, std::function<void(int)> caught)
      : core_(core), set_(core.context), caught_(std::move(caught)) {
    for (const int signal : signals) set_.add(signal);
  }

  void arm() {
    set_.async_wait([weak = weak_from_this()](error_code failure, int signal) {
      const auto self = weak.lock();
      if (failure || self == nullptr) return;
      self->core_.run_task([&] {
        self->arm();
        self->caught_(signal);
      });
    });
  }

 private:
  Loop::Core& core_;
  asio::signal_set set_;
  std::function<void(int)> caught_;
};

}  // namespace

Loop::Loop() : core_(std::make_unique<Core>()) {}
Loop::~Loop() = default;

void Loop::run() {
  const auto guard = asio::make_work_guard(core_->context);
  core_->in_task = false;
  for (bool goes_on = true; goes_on;) {
    try {
      core_->context.run();
      goes_on = false;
    } catch (const std::exception&) {
      // Of a connection's own operation, which has gone with what it threw: whoever waits for it hears of its
      // end (contained.hpp), and nobody else has to.
      if (core_->in_task) throw;
    }
  }
}
void Loop::stop() { core_->context.stop(); }
void Loop::post(std::function<void()> task) {
  asio::post(core_->context, [core = core_.get(), task = std::move(task)] { core->run_task(task); });
}

std::shared_ptr<Loop::Handle> Loop::after(Duration delay, std::function<void()> task) {
  auto timer = std::make_shared<Timer>(*core_, delay, false, std::move(task));
  timer->arm();
  return timer;
}
std::shared_ptr<Loop::Handle> Loop::every(Duration period, std::function<void()> task) {
  auto timer = std::make_shared<Timer>(*core_, period, true, std::move(task));
  timer->arm();
  return timer;
}
std::shared_ptr<Loop::Handle> Loop::when_readable(int descriptor, std::function<void()> ready) {
  auto watch = std::make_shared<Watch>(*core_, descriptor, std::move(ready));
  watch->arm();
  return watch;
}
std::shared_ptr<Loop::Handle> Loop::on_signals(std::initializer_list<int> signals,
                                               std::function<void(int)> caught) {
  auto set = std::make_shared<Signals>(*core_, signals, std::move(caught));
  set->arm();
  return set;
}

std::shared_ptr<Loop::Handle> Loop::when_asked_to_end(std::function<void(int)> caught) {
  struct sigaction hangup {};
  const bool outlives = ::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  if (outlives) return on_signals({SIGTERM, SIGINT}, std::move(caught));
  return on_signals({SIGTERM, SIGINT, SIGHUP}, std::move(caught));
}

}  // namespace tutti::net
