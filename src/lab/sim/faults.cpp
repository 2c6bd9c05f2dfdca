#include "lab/sim/faults.hpp"

namespace tutti::sim {
namespace {

constexpr Duration calm_delay_max = 5ms;
constexpr Duration clock_jump_max = 2h;
constexpr double kill_is_a_reboot = 0.2;

}  // namespace

Faults::Faults(World& world, VirtualController& controller, std::vector<std::unique_ptr<VirtualNode>>& nodes)
    : world_(world), controller_(controller), nodes_(nodes) {}

void Faults::choose_weather() {
  Prng& prng = world_.prng;
  for (double& weight : weights_) weight = prng.chance(0.5) ? prng.unit() : 0;
  weights_[prng.below(kinds)] = 1;
  mean_gap_ = world_.between(1s, 8s);
  const auto sometimes = [&](double most) { return prng.chance(0.4) ? prng.unit() * most : 0; };
  world_.weather = {.start_fails = sometimes(0.05),
                    .start_stalls = sometimes(0.3),
                    .dies_in_start = sometimes(0.1),
                    .dies_in_forget = sometimes(0.1),
                    .dies_after_hello = sometimes(0.5),
                    .prepare_fails = sometimes(0.2),
                    .reply_lost = sometimes(0.3)};
  world_.network.set_lingering(sometimes(1));
}

void Faults::begin(Duration time) {
  until_ = world_.agenda.now() + time;
  choose_weather();
  next();
}

void Faults::next() {
  static constexpr std::array<Fault, kinds> table{
      &Faults::cut_connection,   &Faults::block_node,         &Faults::freeze_node,
      &Faults::kill_agent,       &Faults::power_off,          &Faults::wipe_node,
      &Faults::kill_process,     &Faults::kill_controller,    &Faults::kill_controller_in_commit,
      &Faults::stall_controller, &Faults::break_disk,         &Faults::disturb_disk,
      &Faults::jump_clock,       &Faults::double_messages,    &Faults::slow_network,
      &Faults::stall_core,       &Faults::stall_network_loop, &Faults::stall_agent,
      &Faults::fill_disk,        &Faults::stall_reading};
  const Duration gap(
      static_cast<Duration::rep>(world_.prng.exponential(static_cast<double>(mean_gap_.count()))));
  world_.agenda.after(gap, [this] {
    if (world_.agenda.now() >= until_) return;
    double all = 0;
    for (const double weight : weights_) all += weight;
    double left = world_.prng.unit() * all;
    std::size_t kind = 0;
    while (kind + 1 < kinds && left >= weights_[kind]) left -= weights_[kind++];
    if ((this->*table[kind])()) ++count_;
    next();
  });
}

void Faults::end() {
  until_ = {};
  world_.weather = {};
  world_.network.set_doubling(0);
  world_.network.set_lingering(0);
  world_.network.set_delay(calm_delay_max);
  controller_.disk().set_mood(FaultyDisk::Mood::well);
  controller_.disk().kill_at_next_commit(FaultyDisk::Death::none);
  controller_.start();
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (world_.network.blocked(node)) world_.network.unblock(node);
    nodes_[node]->thaw();
    nodes_[node]->empty_disk();
    nodes_[node]->end_agent_stall();
    nodes_[node]->power_on();
    nodes_[node]->start_agent();
  }
}

// ---- the network

bool Faults::cut_connection() {
  const auto& node = nodes_[some_node()];
  if (node->connection() == 0) return false;
  world_.note(node->name() + ": the connection breaks");
  world_.network.cut(node->connection());
  return true;
}

bool Faults::block_node() {
  const std::size_t node = some_node();
  if (world_.network.blocked(node)) return false;
  world_.note(nodes_[node]->name() + ": out of reach");
  world_.network.block(node);
  world_.agenda.after(world_.between(100ms, 20s), [this, node] {
    if (!world_.network.blocked(node)) return;
    world_.note(nodes_[node]->name() + ": in reach again");
    world_.network.unblock(node);
  });
  return true;
}

bool Faults::double_messages() {
  world_.network.set_doubling(world_.prng.unit());
  world_.agenda.after(world_.between(1s, 20s), [this] { world_.network.set_doubling(0); });
  return true;
}

bool Faults::slow_network() {
  world_.network.set_delay(world_.between(50ms, 3s));
  world_.agenda.after(world_.between(1s, 20s), [this] { world_.network.set_delay(calm_delay_max); });
  return true;
}

// ---- nodes

bool Faults::freeze_node() {
  VirtualNode& node = *nodes_[some_node()];
  if (node.frozen()) return false;
  const bool hit = node.freeze();
  world_.agenda.after(world_.between(500ms, 15s), [&node] { node.thaw(); });
  return hit;
}

bool Faults::kill_agent() {
  VirtualNode& node = *nodes_[some_node()];
  const bool hit = node.kill_agent();
  world_.agenda.after(world_.between(10ms, 10s), [&node] { node.start_agent(); });
  return hit;
}

bool Faults::stall_agent() {
  VirtualNode& node = *nodes_[some_node()];
  if (node.agent_stalled()) return false;
  const bool hit = node.stall_agent();
  world_.agenda.after(world_.between(500ms, 15s), [&node] { node.end_agent_stall(); });
  return hit;
}

bool Faults::power_off() {
  VirtualNode& node = *nodes_[some_node()];
  const bool hit = node.power_off(false);
  node.power_on_after(world_.between(100ms, 20s));
  return hit;
}

bool Faults::wipe_node() {
  VirtualNode& node = *nodes_[some_node()];
  const bool hit = node.power_off(true);
  node.power_on_after(world_.between(100ms, 20s));
  return hit;
}

bool Faults::fill_disk() {
  VirtualNode& node = *nodes_[some_node()];
  const bool hit = node.fill_disk(world_.prng.chance(0.5));
  world_.agenda.after(world_.between(1s, 40s), [&node] { node.empty_disk(); });
  return hit;
}

bool Faults::kill_process() { return nodes_[some_node()]->kill_process(); }

// ---- the controller

bool Faults::kill_controller() {
  const bool hit = controller_.kill();
  if (hit && world_.prng.chance(kill_is_a_reboot)) {
    controller_.reboot(world_.between(-clock_jump_max, clock_jump_max));
    world_.checks.controller_rebooted(world_.agenda.now());
  }
  world_.agenda.after(world_.between(10ms, 10s), [this] { controller_.start(); });
  return hit;
}

// It hits at a commit, if there is one: the disk counts it then.
bool Faults::kill_controller_in_commit() {
  const bool landed = world_.prng.chance(0.5);
  controller_.disk().kill_at_next_commit(landed ? FaultyDisk::Death::after_commit
                                                : FaultyDisk::Death::before_commit);
  return false;
}

bool Faults::stall_controller() { return controller_.stall(Stall::all, world_.between(100ms, 10s)); }

bool Faults::stall_core() { return controller_.stall(Stall::core, world_.between(100ms, 10s)); }

bool Faults::stall_network_loop() { return controller_.stall(Stall::network, world_.between(100ms, 10s)); }

bool Faults::stall_reading() { return controller_.stall(Stall::reading, world_.between(100ms, 10s)); }

bool Faults::break_disk() {
  constexpr std::array moods{FaultyDisk::Mood::full, FaultyDisk::Mood::uncertain, FaultyDisk::Mood::dead};
  controller_.disk().set_mood(moods[world_.prng.below(moods.size())]);
  world_.note("the disk is ill");
  world_.agenda.after(world_.between(10ms, 8s), [this] {
    world_.note("the disk is well");
    controller_.disk().set_mood(FaultyDisk::Mood::well);
  });
  return true;
}

// As above.
bool Faults::disturb_disk() {
  controller_.disk().disturb();
  return false;
}

bool Faults::jump_clock() {
  const Duration by = world_.between(-clock_jump_max, clock_jump_max);
  world_.note("the controller's clock jumps by " + format_duration(by));
  controller_.jump_clock(by);
  return true;
}

}  // namespace tutti::sim
