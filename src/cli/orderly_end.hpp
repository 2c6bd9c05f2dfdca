// Commands that have something to take back when they are interrupted. Main thread.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>

namespace tutti::cli {

inline std::atomic<bool> interrupted{false};

// While this is there, Ctrl-C and SIGTERM end the work in order, so that nothing is left behind: whoever
// works looks at `interrupted`.
class OrderlyEnd {
 public:
  OrderlyEnd() {
    for (const int number : signals) ::signal(number, note);
  }
  OrderlyEnd(const OrderlyEnd&) = delete;
  OrderlyEnd& operator=(const OrderlyEnd&) = delete;
  ~OrderlyEnd() {
    for (const int number : signals) ::signal(number, SIG_DFL);
  }

 private:
  static void note(int) { interrupted = true; }
  static constexpr std::array signals{SIGINT, SIGTERM};
};

}  // namespace tutti::cli
