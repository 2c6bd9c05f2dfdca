// Which submit brought which jobs, so that one that is repeated is answered and not done again. Derived from
// the jobs, bounded in time and number. A value: owned by the state's loop.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/time.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

constexpr std::size_t submit_keys_max = 100'000;
constexpr Duration submit_key_time_max = std::chrono::hours(24);

class SubmitKeys {
 public:
  // The job that a submit with this key brought, or the first element of its array.
  std::optional<sched::JobId> find(const std::string& key, Instant now) const;
  // In the order of the submits, more or less. Those that are too old or too many go.
  void add(const std::string& key, sched::JobId job, Instant at);

 private:
  struct Known {
    sched::JobId job;
    Instant at;
  };
  std::map<std::string, Known> keys_;
  std::deque<std::pair<Instant, std::string>> oldest_first_;
};

}  // namespace tutti::cluster
