#include "base/log/last_signal.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace tutti::log {
namespace {

// Those that end a program, before somebody takes them. SIGABRT is not among them: who aborts has said why.
constexpr std::array told_signals{SIGSEGV, SIGBUS, SIGILL,    SIGFPE,    SIGSYS,  SIGTRAP, SIGTERM,
                                  SIGINT,  SIGHUP, SIGQUIT,   SIGUSR1,   SIGUSR2, SIGALRM, SIGPROF,
                                  SIGIO,   SIGPWR, SIGVTALRM, SIGSTKFLT, SIGXCPU, SIGXFSZ};
constexpr std::size_t name_bytes_max = 40;
constexpr std::size_t stack_bytes = std::size_t{64} << 10;
// The thread that writes the log goes on meanwhile, and what waits there is from before.
constexpr timespec for_the_log{.tv_sec = 0, .tv_nsec = 200'000'000};
constexpr unsigned stderr_patience_s = 1;

struct Told {
  std::array<char, name_bytes_max> part{};
  std::array<std::array<char, name_bytes_max>, NSIG> names{};
  std::vector<int> taken;
  std::vector<std::byte> stack;
};

// Not destroyed at exit: signals come then, too.
Told& told() {
  static auto& instance = *new Told();
  return instance;
}

// Only what a signal handler may do.
class Line {
 public:
  void add(std::string_view text) {
    for (const char letter : text) {
      if (size_ < text_.size()) text_[size_++] = letter;
    }
  }
  void add(std::uint64_t number) {
    std::array<char, 20> digits{};
    std::size_t at = digits.size();
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    add(std::string_view(digits.data() + at, digits.size() - at));
  }
  void write() const { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_.data(), size_); }

 private:
  std::array<char, 256> text_{};
  std::size_t size_ = 0;
};

void say_and_end(int number, siginfo_t* info, void*) {
  ::nanosleep(&for_the_log, nullptr);
  // A stderr that takes nothing does not keep the program from its end.
  ::signal(SIGALRM, SIG_DFL);
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(stderr_patience_s);
  Line line;
  line.add("tutti: ");
  line.add(told().part.data());
  line.add(": a signal ends it: ");
  line.add(told().names[static_cast<std::size_t>(number)].data());
  line.add(" (");
  line.add(static_cast<std::uint64_t>(number));
  line.add(")");
  if (info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL) {
    line.add(", sent by process ");
    line.add(static_cast<std::uint64_t>(info->si_pid));
  }
  line.add("\n");
  line.write();
  // The handler is gone (SA_RESETHAND), and the signal comes again when this one returns.
  ::raise(number);
}

template <std::size_t Size>
void copy_text(std::array<char, Size>& to, std::string_view text) {
  to = {};
  std::memcpy(to.data(), text.data(), std::min(text.size(), Size - 1));
}

// For a stack that has come to its end.
void stand_on_own_stack(std::vector<std::byte>& memory) {
  stack_t before{};
  if (::sigaltstack(nullptr, &before) != 0 || (before.ss_flags & SS_DISABLE) == 0) return;
  memory.resize(stack_bytes);
  const stack_t stack{.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
  ::sigaltstack(&stack, nullptr);
}

}  // namespace

void tell_last_signal(const std::string& part) {
  forget_last_signal();
  Told& all = told();
  copy_text(all.part, part);
  stand_on_own_stack(all.stack);
  for (const int number : told_signals) {
    struct sigaction before {};
    if (::sigaction(number, nullptr, &before) != 0 || (before.sa_flags & SA_SIGINFO) != 0 ||
        before.sa_handler != SIG_DFL)
      continue;
    const char* name = ::strsignal(number);
    copy_text(all.names[static_cast<std::size_t>(number)], name != nullptr ? name : "");
    struct sigaction action {};
    action.sa_sigaction = say_and_end;
    action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    if (::sigaction(number, &action, nullptr) == 0) all.taken.push_back(number);
  }
}

void forget_last_signal() {
  for (const int number : told().taken) ::signal(number, SIG_DFL);
  told().taken.clear();
}

}  // namespace tutti::log
