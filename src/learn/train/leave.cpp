#include "learn/train/leave.hpp"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <thread>

#include "base/exit_codes.hpp"

namespace tutti::train {

int exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::invalid:
      return exit_final;
    case ErrorCode::unknown:
      return exit_later;
    case ErrorCode::failed:
    case ErrorCode::forbidden:
    case ErrorCode::damaged:
      return 1;
  }
  return 1;
}

void leave_after(Duration deadline, const Error& error) {
  leave_after(deadline, exit_code_of(error), error.text());
}

void leave_after(Duration deadline, int exit_code, const std::string& words) {
  static std::once_flag told;
  std::call_once(told, [&] {
    std::thread([deadline, exit_code, words] {
      std::this_thread::sleep_for(deadline);
      std::fprintf(stderr, "tutti-worker: %s\n  (it did not end by itself within %s)\n", words.c_str(),
                   format_duration(deadline).c_str());
      _exit(exit_code);
    }).detach();
  });
}

}  // namespace tutti::train
