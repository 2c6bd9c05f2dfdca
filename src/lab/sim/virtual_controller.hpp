// The controller in the simulator: the real turns and speakers (driver/), on a disk that fails, a clock that
// jumps and a network that breaks. One thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "control/driver/speakers.hpp"
#include "control/driver/turns.hpp"
#include "lab/sim/faulty_disk.hpp"
#include "lab/sim/world.hpp"

namespace tutti::sim {

class VirtualController {
 public:
  explicit VirtualController(World& world) : world_(world) {}

  bool up() const { return turns_ != nullptr; }
  // Only while it is up.
  const cluster::State& state() const { return turns_->state(); }
  bool well() const { return up() && turns_->health().ok; }
  FaultyDisk& disk() { return disk_; }

  // ---- faults and their end
  void start();
  // False if there is nothing to kill, or if it stalls already.
  bool kill();
  bool stall(Duration time);
  void jump_clock(Duration by) { clock_offset_ += by; }

  // ---- agents
  // A connection that was opened; it speaks for a node after its Hello.
  void accept(Network::Id connection) { connections_.insert(connection); }
  void receive(Network::Id connection, const std::string& node, const std::string& frame);
  void closed(Network::Id connection, const std::string& node);

  // ---- clients
  // The answer comes later, or never.
  void happen(cluster::Event event, driver::Reply reply);

 private:
  // Runs it after the delay if this life of the controller lasts; a stalled one is late.
  void later(Duration delay, std::function<void()> task);
  void put(cluster::Event event, driver::Reply reply);
  void wait_for_turn(Duration patience);
  void turn();
  void deliver(const driver::Delivery& delivery);
  void answer(std::vector<driver::Turns::Outcome::Answer> answers);

  World& world_;
  FaultyDisk disk_;
  std::unique_ptr<driver::Turns> turns_;
  driver::Speakers speakers_;
  std::set<Network::Id> connections_;
  std::vector<driver::Item> waiting_;
  std::uint64_t life_ = 0;
  std::uint64_t awaited_turn_ = 0;  // an earlier one on the agenda is out of date
  std::uint64_t turns_taken_ = 0;
  bool turn_soon_ = false;
  Duration clock_offset_{};
  Duration stalled_until_{};
  Duration last_delivery_{};
};

}  // namespace tutti::sim
