#include "common/measure.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>
#include <sstream>
#include <thread>

#include "base/text.hpp"
#include "support/process.hpp"

namespace tutti::bench {
namespace {

std::atomic<bool> signalled{false};
void note_signal(int) { signalled = true; }

// What all cores together have worked since the host started.
double busy_seconds() {
  std::istringstream line(support::read_text("/proc/stat"));
  std::string name;
  double user = 0;
  double nice = 0;
  double system = 0;
  line >> name >> user >> nice >> system;
  return (user + nice + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

void catch_interrupts() {
  ::signal(SIGINT, note_signal);
  ::signal(SIGTERM, note_signal);
}

bool interrupted() { return signalled; }

double median(std::vector<double> values) {
  TUTTI_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double percentile_99(std::vector<double> values) {
  TUTTI_CHECK(!values.empty());
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() - 1 - values.size() / 100);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Result<std::string> run_command(const std::vector<std::string>& words, const Environment& env,
                                Duration timeout) {
  if (interrupted()) return failed("interrupted");
  auto finished = support::run(words, {.env = env, .stdout_to = "", .timeout = timeout});
  if (finished.exit_code == 0 && !finished.timed_out) return std::move(finished.out);
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + word;
  const std::string said(trim(finished.err));
  return failed(finished.timed_out ? "did not end in time"
                : said.empty()     ? "failed without a word"
                                   : said)
      .within(line);
}

Result<double> command_ms(const std::vector<std::string>& words, const Environment& env) {
  const auto start = Clock::now();
  if (auto done = run_command(words, env); !done) return std::move(done).error();
  return seconds_since(start) * 1e3;
}

Result<double> median_command_ms(const std::vector<std::string>& words, const Environment& env, int runs) {
  std::vector<double> times;
  for (int run = 0; run <= runs; ++run) {
    auto took = command_ms(words, env);
    if (!took) return took;
    if (run > 0) times.push_back(*took);
  }
  return median(std::move(times));
}

Result<std::vector<std::vector<double>>> measure_in_turns(const std::vector<Measurement>& measurements,
                                                          int turns) {
  std::vector<std::vector<double>> values(measurements.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t at = 0; at < measurements.size(); ++at) {
      auto value = measurements[at]();
      if (!value) return std::move(value).error();
      values[at].push_back(*value);
    }
  }
  return values;
}

Result<> in_parallel(int workers, const std::function<Result<>(int)>& work) {
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      if (auto done = work(worker); !done) errors[static_cast<std::size_t>(worker)] = done.error();
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& error : errors) {
    if (error) return std::move(*error);
  }
  return {};
}

Result<> wait_until(const std::string& what, Duration patience, Duration every,
                    const std::function<Result<bool>()>& condition) {
  const auto give_up_at = Clock::now() + patience;
  for (;;) {
    auto holds = condition();
    if (!holds) return std::move(holds).error().within(what);
    if (*holds) return {};
    if (Clock::now() > give_up_at) return failed("not within " + format_duration(patience)).within(what);
    std::this_thread::sleep_for(every);
  }
}

Result<Usage> usage_of(pid_t pid) {
  clockid_t clock = 0;
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0)
    return failed("it has ended").within("process " + std::to_string(pid));
  std::istringstream pages(support::read_text("/proc/" + std::to_string(pid) + "/statm"));
  double size_pages = 0;
  double resident_pages = 0;
  pages >> size_pages >> resident_pages;
  return Usage{static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9,
               resident_pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20)};
}

double busy_cores(Duration during) {
  const double before = busy_seconds();
  const auto start = Clock::now();
  std::this_thread::sleep_for(during);
  return (busy_seconds() - before) / seconds_since(start);
}

Result<int> free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  const bool found = ::bind(socket, plain, length) == 0 && ::getsockname(socket, plain, &length) == 0;
  ::close(socket);
  if (!found) return failed("there is no free port");
  return ntohs(address.sin_port);
}

}  // namespace tutti::bench
