#include "base/files/line_queue.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::files {
namespace {

constexpr Duration farewell_max = std::chrono::seconds(1);

struct Entry {
  std::uint64_t missing = 0;  // before it
  std::string line;           // none where nothing came behind the missing ones
};

std::size_t bytes_of(const Entry& entry) { return sizeof(Entry) + entry.line.size(); }

// Signals are for the threads that wait for them, and a pipe whose reader has gone ends nobody.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

struct LineQueue::State {
  State(std::size_t bytes, Write writer, Tell teller)
      : bytes_max(bytes), write(std::move(writer)), tell(std::move(teller)) {}

  bool idle() const { return entries.empty() && missing == 0 && !busy; }
  bool take(std::string line);
  bool next(std::unique_lock<std::mutex>& lock, Entry& entry);
  std::uint64_t put(Entry& entry) const;

  const std::size_t bytes_max;
  const Write write;
  const Tell tell;

  std::mutex mutex;
  std::condition_variable woken;
  std::condition_variable drained;
  std::deque<Entry> entries;
  std::size_t bytes = 0;
  std::uint64_t missing = 0;  // behind the last entry
  bool busy = false;
  bool ending = false;
};

bool LineQueue::State::take(std::string line) {
  Entry entry{missing, std::move(line)};
  const std::size_t more = bytes_of(entry);
  if (bytes + more > bytes_max) {
    ++missing;
    return false;
  }
  try {
    entries.push_back(std::move(entry));
  } catch (const std::bad_alloc&) {
    ++missing;
    return false;
  }
  bytes += more;
  missing = 0;
  return true;
}

// False at the end, when nothing waits any more.
bool LineQueue::State::next(std::unique_lock<std::mutex>& lock, Entry& entry) {
  woken.wait(lock, [this] { return ending || !entries.empty() || missing > 0; });
  if (entries.empty()) {
    if (missing == 0) return false;
    entry = {std::exchange(missing, 0), ""};
  } else {
    entry = std::move(entries.front());
    entries.pop_front();
    bytes -= bytes_of(entry);
  }
  return true;
}

// How many lines are missing behind it.
std::uint64_t LineQueue::State::put(Entry& entry) const {
  if (entry.missing > 0 && tell(entry.missing)) entry.missing = 0;
  if (entry.line.empty() || write(entry.line)) return entry.missing;
  return entry.missing + 1;
}

Result<LineQueue> LineQueue::start(std::size_t bytes_max, Write write, Tell tell) {
  auto state = std::make_shared<State>(bytes_max, std::move(write), std::move(tell));
  try {
    const NoSignals for_the_thread;
    std::thread([state] { serve(*state); }).detach();
  } catch (const std::system_error& why) {
    return failed(why.what()).within("no thread can be started");
  }
  return LineQueue(std::move(state));
}

LineQueue::~LineQueue() {
  if (!state_) return;
  drain(farewell_max);
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->woken.notify_all();
}

bool LineQueue::add(std::string line) const {
  const std::lock_guard lock(state_->mutex);
  const bool is_taken = state_->take(std::move(line));
  state_->woken.notify_one();
  return is_taken;
}

void LineQueue::miss() const {
  const std::lock_guard lock(state_->mutex);
  ++state_->missing;
  state_->woken.notify_one();
}

bool LineQueue::drain(Duration patience) const {
  std::unique_lock lock(state_->mutex);
  return state_->drained.wait_for(lock, patience, [this] { return state_->idle(); });
}

void LineQueue::serve(State& state) {
  std::uint64_t lost = 0;  // that could not be written: told with the next line, not over and over
  std::unique_lock lock(state.mutex);
  for (Entry entry; state.next(lock, entry);) {
    state.busy = true;
    lock.unlock();
    entry.missing += lost;
    lost = state.put(entry);
    lock.lock();
    state.busy = false;
    if (state.idle()) state.drained.notify_all();
  }
}

bool write_line(int file, const std::string& line) {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file, line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written < 0 && errno == EAGAIN) {
      pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
      ::poll(&room, 1, -1);
    } else if (written == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace tutti::files
