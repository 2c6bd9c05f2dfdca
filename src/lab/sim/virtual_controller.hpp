// The controller in the simulator: the real turns and listener (driver/), on a disk that fails, a clock that
// jumps, a network that breaks, and loops that stand still each for itself. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/driver/hearing.hpp"
#include "control/driver/listener.hpp"
#include "control/driver/turns.hpp"
#include "lab/sim/faulty_disk.hpp"
#include "lab/sim/world.hpp"

namespace tutti::sim {

// Which of its loops stands still. `reading`: the network loop goes round and does not come to its agents.
enum class Stall { all, core, network, reading };

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
  bool stall(Stall what, Duration time);
  void jump_clock(Duration by) { clock_offset_ += by; }
  // Its machine starts anew, with the date off by so much. Only while it is down.
  void reboot(Duration by);

  // ---- agents
  // A connection that was opened; it speaks for a node after its Hello.
  void accept(Network::Id connection) {
    lines_[connection] = {.heard_at = steady()};
    listener_.open(connection, "10.0.0.9");
  }
  void receive(Network::Id connection, const std::string& node, const std::string& frame);
  void closed(Network::Id connection, const std::string& node);

  // ---- clients
  // The answer comes later, or never.
  void happen(cluster::Event event, driver::Reply reply);

 private:
  driver::Now clock() const;
  Instant steady() const { return Instant(world_.agenda.now()); }
  // Run it after the delay if this life of the controller lasts; a loop that stands still is late.
  void on_core(Duration delay, std::function<void()> task);
  void on_network(Duration delay, std::function<void()> task);
  void later(Duration delay, const Duration& stalled_until, std::function<void()> task);
  void when_read(std::function<void()> task);
  void stay_awake();
  void hear(Network::Id connection, const std::string& node, const std::string& frame);
  void hang_up(Network::Id connection);
  static driver::Listener::Heard believe(const std::string& node, const std::string& frame);
  void put(cluster::Event event, driver::Reply reply);
  void wait_for_turn(Duration patience);
  void turn();
  void deliver(const driver::Delivery& delivery);
  void answer(std::vector<driver::Turns::Outcome::Answer> answers);

  // As much of an agent's connection as its socket tells.
  struct Line {
    Instant heard_at;
    std::uint64_t reads = 0;
    std::uint64_t unread = 0;
  };

  World& world_;
  FaultyDisk disk_;
  std::unique_ptr<driver::Turns> turns_;
  driver::Listener listener_;
  driver::Hearing hearing_;
  std::map<Network::Id, Line> lines_;
  std::vector<driver::Item> waiting_;
  std::uint64_t life_ = 0;
  std::uint64_t awaited_turn_ = 0;  // an earlier one on the agenda is out of date
  std::uint64_t turns_taken_ = 0;
  bool turn_soon_ = false;
  Duration clock_offset_{};
  int boots_ = 1;
  Duration core_stalled_until_{};
  Duration network_stalled_until_{};
  Duration reading_stalled_until_{};
  Duration last_delivery_{};
};

}  // namespace tutti::sim
