// What every benchmark does: take the time of commands, many at once or one after another. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock/clock.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::bench {

using Clock = std::chrono::steady_clock;
using Environment = std::map<std::string, std::string>;

// From here on Ctrl-C and SIGTERM make commands and requests fail, so that what was started is ended in
// order.
void catch_interrupts();
bool interrupted();

double median(std::vector<double> values);
// Of a hundred values one is larger.
double percentile_99(std::vector<double> values);

// Runs a command to its end: what it printed, or why it failed.
Result<std::string> run_command(const std::vector<std::string>& words, const Environment& env,
                                Duration timeout = 120s);

// From the start of the command to its exit.
Result<double> command_ms(const std::vector<std::string>& words, const Environment& env);

// The same, over so many runs after one that only warms up.
Result<double> median_command_ms(const std::vector<std::string>& words, const Environment& env, int runs);

// Runs all of them so many times, in turns, so that what else happens on the host meets them alike: the
// values of each.
using Measurement = std::function<Result<double>()>;
Result<std::vector<std::vector<double>>> measure_in_turns(const std::vector<Measurement>& measurements,
                                                          int turns);

// `work(worker)` on so many threads at once; the first error, if there is one.
Result<> in_parallel(int workers, const std::function<Result<>(int worker)>& work);

// A port of loopback that nobody has just now.
Result<int> free_port();

// Looks every few milliseconds until the condition holds; fails when it does not in time.
Result<> wait_until(const std::string& what, Duration patience, Duration every,
                    const std::function<Result<bool>()>& condition);

// What a process has used so far.
struct Usage {
  double cpu_seconds = 0;
  double resident_mib = 0;
};
Result<Usage> usage_of(pid_t pid);
// How many of the host's cores work, over that time.
double busy_cores(Duration during);

}  // namespace tutti::bench
