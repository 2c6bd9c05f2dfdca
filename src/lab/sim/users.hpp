// People who use the simulated cluster: they submit gangs of all shapes, cancel some, and drain nodes and
// resume them. They believe only what was answered. One thread.
#pragma once

#include <string>
#include <vector>

#include "lab/sim/virtual_controller.hpp"
#include "lab/sim/world.hpp"

namespace tutti::sim {

// What every node of a simulated cluster has at least; shapes are made so that the whole cluster can hold
// each.
constexpr int node_gpus_min = 2;
constexpr int node_gpus_max = 4;
constexpr int node_cpus = 16;

class Users {
 public:
  Users(World& world, VirtualController& controller, std::vector<std::string> nodes, int gpus)
      : world_(world), controller_(controller), nodes_(std::move(nodes)), gpus_(gpus) {}

  // Does something, most often a submit.
  void act();
  // After the faults: every node is resumed, and what hangs is cancelled, until both are done.
  void clean_up();

 private:
  void submit();
  void cancel();
  void drain();
  void resume(const std::string& node);
  void keep_secret(bool there);
  cluster::JobSpec some_spec();
  sched::Shape some_shape();
  void add_elasticity(sched::Shape& shape);
  void ask(const std::string& what, cluster::Event event, bool submits);

  World& world_;
  VirtualController& controller_;
  std::vector<std::string> nodes_;
  int gpus_;
  std::vector<cluster::JobId> jobs_;  // that were answered
  std::uint64_t acts_ = 0;
};

}  // namespace tutti::sim
