// Which submit brought which jobs, so that one that is repeated is answered and not done again. Derived from
// the jobs, bounded in time and number; where there are too many, the user who has the most loses his first,
// so that nobody's submits make those of others be done again. Each user has keys of his own: what one calls
// his submits keeps no other from calling his so. A value: owned by the state's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/time.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

constexpr std::size_t submit_keys_max = 100'000;
constexpr Duration submit_key_time_max = std::chrono::hours(24);

class SubmitKeys {
 public:
  // The job that a submit of this user with this key brought, or the first element of its array.
  std::optional<sched::JobId> find(const std::string& user, const std::string& key, Instant now) const;
  // In the order of the submits, more or less. Those that are too old or too many go.
  void add(const std::string& user, const std::string& key, sched::JobId job, Instant at);
  // The clock was set by so much.
  void move(Duration by);

 private:
  using Key = std::pair<std::string, std::string>;  // whose, and what he calls it
  struct Known {
    sched::JobId job;
    Instant at;
    std::uint64_t number = 0;  // of the submit
  };

  void remove(std::uint64_t number);
  // Changes what the user has, and with it his place among all.
  template <class Change>
  void change(const std::string& user, Change change);

  std::map<Key, Known> keys_;
  std::map<std::uint64_t, Key> oldest_first_;
  std::map<std::string, std::set<std::uint64_t>> users_;
  std::set<std::pair<std::size_t, std::string>> most_last_;  // how many each user has
  std::uint64_t added_ = 0;
};

}  // namespace tutti::cluster
