#include "base/log/end_in_time.hpp"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log/log.hpp"

namespace tutti {

// Owned by the thread, too, which is left behind.
struct EndInTime::State {
  std::string who;
  Duration patience{};
  std::mutex mutex;
  std::condition_variable woken;
  bool over = false;
};

EndInTime::EndInTime(std::string who, Duration patience) : state_(std::make_shared<State>()) {
  state_->who = std::move(who);
  state_->patience = patience;
}

EndInTime::~EndInTime() {
  const std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->woken.notify_all();
}

void EndInTime::begin() const {
  try {
    std::thread([state = state_] { wait(state); }).detach();
  } catch (const std::system_error&) {
    // Without a word, then; the log tells that it was asked to end.
    ::alarm(static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(state_->patience).count()));
  }
}

void EndInTime::wait(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  if (state->woken.wait_for(lock, state->patience, [&] { return state->over; })) return;
  log::warning("a disk does not answer: this {} ends without waiting for it", state->who);
  log::finish();
  ::_exit(0);
}

}  // namespace tutti
