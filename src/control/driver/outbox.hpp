// What is stored and has still to be told to nodes, in the order in which it happened. A gang of 100,000
// ranks is described over several turns, so that none of them is long, and in messages that fit into a frame.
// One thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "control/cluster/environment.hpp"
#include "control/driver/delivery.hpp"

namespace tutti::driver {

// About so many ranks are described in one turn.
constexpr std::size_t ranks_per_turn_max = 2'048;
constexpr std::size_t message_bytes_per_turn_max = 16 << 20;

// The value of a secret of that cluster. On the thread of whoever takes turns; must not wait for a disk.
using OpenSecret =
    std::function<Result<std::string>(const std::string& cluster, const cluster::Secret& secret)>;

// What the ranks of this attempt have and nobody else. The same each time that it is asked for; must not
// wait.
using AttemptSecret = std::function<std::string(const std::string& cluster, const cluster::Job& job)>;

// An attempt whose ranks are not told to start, and why.
struct Withheld {
  cluster::JobId job;
  std::int32_t attempt = 0;
  std::string why;
};

class Outbox {
 public:
  // Before the first turn. Without it ranks meet without a secret.
  void give_attempts(AttemptSecret secret) { attempt_secret_ = std::move(secret); }
  void add(std::vector<cluster::Send> sends);
  bool empty() const { return sends_.empty(); }
  // Appends what this turn sends; the rest stays for the next one. What is out of date by now is dropped.
  // Answers what was not sent because a secret of it cannot be had.
  std::vector<Withheld> write(const cluster::State& state, const OpenSecret& open,
                              std::vector<Delivery::Message>& messages);

 private:
  std::deque<cluster::Send> sends_;
  AttemptSecret attempt_secret_;
};

}  // namespace tutti::driver
