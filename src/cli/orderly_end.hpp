// Commands that have something to take back when they are interrupted. Main thread.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace tutti::cli {

inline std::atomic<bool> interrupted{false};

// While this is there, Ctrl-C, SIGTERM and a terminal that is closed end the work in order, so that nothing
// is left behind: whoever works looks at `interrupted`. What the program was told to ignore, as by nohup, it
// goes on ignoring.
class OrderlyEnd {
 public:
  OrderlyEnd() {
    for (std::size_t at = 0; at < signals.size(); ++at) {
      before_[at] = ::signal(signals[at], note);
      if (before_[at] == SIG_IGN) ::signal(signals[at], SIG_IGN);
    }
  }
  OrderlyEnd(const OrderlyEnd&) = delete;
  OrderlyEnd& operator=(const OrderlyEnd&) = delete;
  ~OrderlyEnd() {
    for (std::size_t at = 0; at < signals.size(); ++at) ::signal(signals[at], before_[at]);
  }

 private:
  using Handler = void (*)(int);

  static void note(int) { interrupted = true; }
  static constexpr std::array signals{SIGINT, SIGTERM, SIGHUP};

  std::array<Handler, signals.size()> before_{};
};

}  // namespace tutti::cli
