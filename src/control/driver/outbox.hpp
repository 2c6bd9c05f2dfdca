// What is stored and has still to be told to nodes, in the order in which it happened. A gang of 100,000
// ranks is described over several turns, so that none of them is long, and in messages that fit into a frame.
// One thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "control/cluster/environment.hpp"
#include "control/driver/delivery.hpp"

namespace tutti::driver {

// About so many ranks are described in one turn.
constexpr std::size_t ranks_per_turn_max = 2'048;
constexpr std::size_t message_bytes_per_turn_max = 16 << 20;

class Outbox {
 public:
  void add(std::vector<cluster::Send> sends);
  bool empty() const { return sends_.empty(); }
  // Appends what this turn sends; the rest stays for the next one. What is out of date by now is dropped.
  void write(const cluster::State& state, std::vector<Delivery::Message>& messages);

 private:
  std::deque<cluster::Send> sends_;
};

}  // namespace tutti::driver
