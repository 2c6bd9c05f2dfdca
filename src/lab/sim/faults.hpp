// What goes wrong in a simulated world, and when. Each seed has a weather of its own: some kinds of faults
// often, some never, because what breaks a system is often a few kinds that meet. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "lab/sim/virtual_controller.hpp"
#include "lab/sim/virtual_node.hpp"
#include "lab/sim/world.hpp"

namespace tutti::sim {

class Faults {
 public:
  Faults(World& world, VirtualController& controller, std::vector<std::unique_ptr<VirtualNode>>& nodes);

  // From now on, for so long.
  void begin(Duration time);
  // No more of them, and everything that is broken is mended.
  void end();

  // Those that hit something.
  std::uint64_t count() const { return count_ + controller_.disk().hits(); }

 private:
  // Whether it hit something: a node that is off cannot be switched off.
  using Fault = bool (Faults::*)();
  static constexpr std::size_t kinds = 20;

  void choose_weather();
  void next();
  std::size_t some_node() { return world_.prng.below(nodes_.size()); }

  bool cut_connection();
  bool block_node();
  bool freeze_node();
  bool kill_agent();
  bool power_off();
  bool wipe_node();
  bool fill_disk();
  bool kill_process();
  bool kill_controller();
  bool kill_controller_in_commit();
  bool stall_controller();
  bool stall_core();
  bool stall_network_loop();
  bool stall_reading();
  bool stall_agent();
  bool break_disk();
  bool disturb_disk();
  bool jump_clock();
  bool double_messages();
  bool slow_network();

  World& world_;
  VirtualController& controller_;
  std::vector<std::unique_ptr<VirtualNode>>& nodes_;
  Duration until_{};
  Duration mean_gap_{};
  std::array<double, kinds> weights_{};
  std::uint64_t count_ = 0;
};

}  // namespace tutti::sim
