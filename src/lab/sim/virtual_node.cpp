#include "lab/sim/virtual_node.hpp"

#include <algorithm>
#include <utility>

#include "lab/sim/program.hpp"

namespace tutti::sim {
namespace {

constexpr int replica_port = 31'000;
constexpr Duration redial_min = 100ms;
constexpr Duration redial_max = 1s;
constexpr Duration progress_every = 5s;
constexpr double look_stalls = 0.05;
constexpr Duration start_calm_max = 2ms;
constexpr Duration start_stall_max = 20s;
constexpr double start_told_late = 0.1;

std::uint64_t new_disk(World& world) { return world.prng.next(); }

std::string describe(const wire::ControllerMessage& message) {
  const auto of = [](const auto& body) { return body.job.text() + "." + std::to_string(body.attempt); };
  if (const auto* start = std::get_if<wire::StartRanks>(&message)) {
    std::string text = "start " + of(*start) + " ranks";
    for (const auto& rank : start->ranks) text += " " + std::to_string(rank.rank);
    return text;
  }
  if (const auto* end = std::get_if<wire::EndRanks>(&message)) return "end " + of(*end);
  if (const auto* forget = std::get_if<wire::ForgetRanks>(&message)) return "forget " + of(*forget);
  return "say hello";
}

}  // namespace

VirtualNode::VirtualNode(World& world, cluster::Hello self, Dial dial)
    : world_(world), self_(std::move(self)), dial_(std::move(dial)), disk_life_(new_disk(world)) {}

// ---- time

void VirtualNode::when_thawed(std::function<void()> task) {
  if (frozen_) {
    late_.push_back(std::move(task));
  } else {
    task();
  }
}

void VirtualNode::node_later(Duration delay, std::function<void()> task) {
  world_.agenda.after(delay, [this, life = power_life_, task = std::move(task)]() mutable {
    when_thawed([this, life, task = std::move(task)] {
      if (life == power_life_) task();
    });
  });
}

void VirtualNode::agent_later(Duration delay, std::function<void()> task) {
  auto run = [this, life = agent_life_, task = std::move(task)] {
    if (life == agent_life_ && keeper_ != nullptr && !doomed_) task();
  };
  node_later(delay, [this, run = std::move(run)] {
    if (agent_stalled_) return agent_late_.push_back(run);
    run();
  });
}

// ---- faults

void VirtualNode::power_on() {
  if (powered_) return;
  powered_ = true;
  world_.note(name() + ": power on");
  start_agent();
}

// Comes back from this loss of power and from no later one.
void VirtualNode::power_on_after(Duration pause) {
  world_.agenda.after(pause, [this, life = power_life_] {
    if (life == power_life_) power_on();
  });
}

bool VirtualNode::power_off(bool wipe_disk) {
  if (!powered_) return false;
  world_.note(name() + ": power off" + (wipe_disk ? ", and the disk is lost" : ""));
  powered_ = frozen_ = false;
  late_.clear();
  ++power_life_;
  ++agent_life_;
  keeper_.reset();
  wake_agent();
  for (const Network::Id id : {connection_, dialing_}) world_.network.vanish(id, Side::agent);
  connection_ = dialing_ = 0;
  for (auto& [key, folder] : disk_) {
    if (std::exchange(folder.process, 0) != 0)
      world_.checks.process_ended(world_.agenda.now(), key, std::nullopt);
  }
  if (!wipe_disk) return true;
  disk_.clear();
  world_.checks.disk_lost(name());
  membership_ = {};
  disk_life_ = new_disk(world_);
  return true;
}

void VirtualNode::start_agent() {
  if (!powered_ || keeper_ != nullptr) return;
  ++agent_life_;
  doomed_ = false;
  starting_.clear();
  self_.agent_pid = static_cast<std::int64_t>(agent_life_);
  keeper::Processes& processes = *this;
  keeper_ = std::make_unique<keeper::Keeper>(self_, processes,
                                             [this](const wire::AgentMessage& message) { send(message); });
  keeper_->introduce(name() + std::to_string(disk_life_), name(), membership_);
  static_cast<void>(keeper_->adopt());
  world_.note(name() + ": agent starts with " + std::to_string(keeper_->ranks().size()) + " ranks");
  redial_ = redial_min;
  agent_later(cluster::heartbeat_every, [this] { beat(); });
  dial();
}

bool VirtualNode::kill_agent() {
  if (keeper_ == nullptr) return false;
  world_.note(name() + ": agent dies");
  ++agent_life_;
  keeper_.reset();
  wake_agent();
  for (const Network::Id id : {connection_, dialing_}) world_.network.close(id, Side::agent);
  connection_ = dialing_ = 0;
  return true;
}

void VirtualNode::doom() {
  doomed_ = true;
  node_later(Duration::zero(), [this, life = agent_life_] {
    if (life == agent_life_) kill_agent();
  });
  // Whatever looks after services brings it back.
  node_later(world_.between(10ms, 5s), [this] { start_agent(); });
}

bool VirtualNode::freeze() {
  if (!powered_) return false;
  frozen_ = true;
  world_.note(name() + ": frozen");
  return true;
}

void VirtualNode::thaw() {
  if (!frozen_) return;
  frozen_ = false;
  world_.note(name() + ": thawed");
  for (auto& task : std::exchange(late_, {})) task();
}

bool VirtualNode::fill_disk(bool agent_knows) {
  if (full_) return false;
  full_ = true;
  knows_ = agent_knows;
  world_.note(name() + ": the disk is full" + (knows_ ? "" : ", and nobody knows"));
  return true;
}

void VirtualNode::empty_disk() {
  if (!std::exchange(full_, false)) return;
  world_.note(name() + ": the disk has room again");
}

// What a rank did takes the whole node down, for longer than its lease, also where that is doubled because
// many are silent.
void VirtualNode::die_of(const RankKey& key) {
  world_.note(name() + ": killed by rank " + key.text());
  world_.checks.node_killed(key.job);
  power_off(false);
  power_on_after(world_.between(3 * cluster::lease, 20s));
}

bool VirtualNode::stall_agent() {
  if (keeper_ == nullptr) return false;
  agent_stalled_ = true;
  world_.note(name() + ": the agent's loop stalls");
  return true;
}

void VirtualNode::end_agent_stall() {
  if (!agent_stalled_) return;
  world_.note(name() + ": the agent's loop goes on");
  when_thawed([this, life = power_life_] {
    if (life != power_life_) return;
    agent_stalled_ = false;
    for (auto& task : std::exchange(agent_late_, {})) task();
  });
}

void VirtualNode::wake_agent() {
  agent_stalled_ = false;
  agent_late_.clear();
}

bool VirtualNode::kill_process() {
  std::vector<RankKey> running;
  for (const auto& [key, folder] : disk_) {
    if (folder.process != 0) running.push_back(key);
  }
  if (running.empty()) return false;
  const RankKey key = running[world_.prng.below(running.size())];
  exit_process(key, disk_.at(key).process, std::nullopt);
  return true;
}

// ---- processes

Result<std::map<RankKey, cluster::RankStatus>> VirtualNode::adopt() {
  std::map<RankKey, cluster::RankStatus> found;
  if (world_.sabotage == Sabotage::agent_forgets_its_disk) return found;
  for (const auto& [key, folder] : disk_) {
    if (folder.acknowledged) continue;
    if (folder.exit) {
      found[key] = *folder.exit;
    } else if (folder.process != 0) {
      found[key] = {cluster::RankState::started};
    } else {
      disk_[key].given_up = true;
      found[key] = {cluster::RankState::exited, 137, "it was gone when its agent came back", true};
    }
  }
  return found;
}

void VirtualNode::prepare(const wire::StartRanks& start) {
  agent_later(world_.between(10ms, 4s), [this, job = start.job, attempt = start.attempt] {
    if (world_.prng.chance(world_.weather.prepare_fails)) {
      keeper_->prepared(job, attempt, invalid("the controller does not have it"));
    } else {
      keeper_->prepared(job, attempt, std::string("/work"));
    }
  });
}

void VirtualNode::stop_preparing(cluster::JobId /*job*/, std::int32_t /*attempt*/) {}
void VirtualNode::release(cluster::JobId /*job*/, std::int32_t /*attempt*/) {}

// Disks take their time, and some stand still for a while; what was asked for first need not come first.
void VirtualNode::start(const wire::StartRanks& attempt, const std::string& /*workdir*/) {
  const auto shared = std::make_shared<const wire::StartRanks>(attempt);
  for (const wire::StartRank& rank : attempt.ranks) {
    const RankKey key{attempt.job, attempt.attempt, rank.rank};
    starting_.insert(key);
    const bool stalls = world_.prng.chance(world_.weather.start_stalls);
    agent_later(world_.between(0ms, stalls ? start_stall_max : start_calm_max),
                [this, key, shared] { start_now(key, *shared); });
  }
}

void VirtualNode::start_now(const RankKey& key, const wire::StartRanks& attempt) {
  if (starting_.erase(key) == 0) return;
  const auto outcome = try_to_start(key, attempt);
  const bool late = world_.prng.chance(start_told_late);
  agent_later(world_.between(0ms, late ? Duration(1s) : Duration(start_calm_max)),
              [this, key, outcome] { keeper_->started(key, outcome); });
}

Result<> VirtualNode::try_to_start(const RankKey& key, const wire::StartRanks& attempt) {
  if (full_ || world_.prng.chance(world_.weather.start_fails)) return failed("the disk is full");
  Folder& folder = disk_[key];
  if (folder.acknowledged) return unknown("it has run here before");
  if (world_.prng.chance(world_.weather.dies_in_start)) {
    doom();
    // Its folder is there; its shim comes up late, perhaps when another agent has given it up, or never.
    if (world_.prng.chance(0.5)) return {};
    node_later(world_.between(0ms, 100ms), [this, key, attempt] {
      const auto found = disk_.find(key);
      if (found != disk_.end() && !found->second.given_up) launch(key, found->second, attempt);
    });
    return {};
  }
  launch(key, folder, attempt);
  return {};
}

void VirtualNode::remember(const keeper::Membership& membership) {
  if (!doomed_) membership_ = membership;
}

void VirtualNode::put_aside(const std::string& /*cluster*/) {
  world_.checks.violate("there is only one cluster, and " + name() + " was told of another one");
}

void VirtualNode::launch(const RankKey& key, Folder& folder, const wire::StartRanks& attempt) {
  folder.process = next_process_++;
  folder.grace = attempt.grace;
  folder.started_at = world_.agenda.now();
  folder.ending = false;
  if (const auto ready = ready_after(attempt.command)) folder.ready_at = world_.agenda.now() + *ready;
  world_.note(name() + ": rank " + key.text() + " starts");
  if (keeper_ != nullptr && !doomed_ && !keeper_->running(key))
    world_.checks.violate("rank " + key.text() + " starts after its agent said that it does not run");
  world_.checks.process_started(name(), disk_life_, key);
  if (const auto after = kills_node_after(attempt.command, key)) {
    node_later(*after, [this, key, process = folder.process] {
      const auto found = disk_.find(key);
      if (found != disk_.end() && found->second.process == process) die_of(key);
    });
  }
  const auto ending = ending_of(attempt.command, key);
  if (!ending) return;
  node_later(ending->after, [this, key, process = folder.process, code = ending->exit_code] {
    exit_process(key, process, code);
  });
}

void VirtualNode::exit_process(const RankKey& key, std::uint64_t process, std::optional<std::int32_t> code) {
  const auto found = disk_.find(key);
  if (found == disk_.end() || found->second.process != process) return;
  Folder& folder = found->second;
  folder.process = 0;
  world_.note(name() + ": rank " + key.text() +
              (code ? " exits with " + std::to_string(*code) : " is killed"));
  world_.checks.process_ended(world_.agenda.now(), key, code);
  cluster::RankStatus status{cluster::RankState::exited, 137, "its shim was killed", true};
  if (code) status = {cluster::RankState::exited, *code, ""};
  status.told = folder.ending ? cluster::Told::yes : cluster::Told::no;
  if (code) folder.exit = status;
  folder.ended_at = world_.agenda.now();
  if (keeper_ == nullptr) return;
  agent_later(world_.between(0ms, 2ms), [this, key, status] { keeper_->exited(key, status); });
}

void VirtualNode::end(const RankKey& key, bool at_once) {
  if (doomed_) return;
  // Half of those that have not started yet can be stopped for sure.
  if (starting_.contains(key) && world_.prng.chance(0.5)) {
    starting_.erase(key);
    return agent_later(Duration::zero(), [this, key] { keeper_->started(key, failed("it was stopped")); });
  }
  const auto found = disk_.find(key);
  if (found == disk_.end() || found->second.process == 0) return;
  if (std::exchange(found->second.ending, true) && !at_once) return;
  node_later(world_.between(1ms, at_once ? 5ms : found->second.grace),
             [this, key, process = found->second.process, code = at_once ? 137 : 143] {
               exit_process(key, process, code);
             });
}

Duration VirtualNode::ended_ago(const RankKey& key) const {
  const auto found = disk_.find(key);
  const bool known = found != disk_.end() && found->second.ended_at;
  return known ? world_.agenda.now() - *found->second.ended_at : Duration::zero();
}

Duration VirtualNode::ran(const RankKey& key) const {
  const auto found = disk_.find(key);
  const bool runs = found != disk_.end() && found->second.process != 0;
  return runs ? world_.agenda.now() - found->second.started_at : Duration::zero();
}

void VirtualNode::forget(const RankKey& key) {
  if (doomed_) return;
  if (world_.prng.chance(world_.weather.dies_in_forget)) {
    doom();
    if (world_.prng.chance(0.5)) return;
  }
  disk_[key].acknowledged = true;
}

std::string VirtualNode::said_by(const RankKey& key) const {
  const auto found = disk_.find(key);
  if (found != disk_.end() && found->second.ready_at)
    return world_.agenda.now() < *found->second.ready_at ? "loads" : "ready " + std::to_string(replica_port);
  const bool tells = key.job.number() % 4 == 0;
  return tells ? "step " + std::to_string(world_.agenda.now() / progress_every) : "";
}

// Some programs tell how far they are. Disks that do not answer tell it late or never.
void VirtualNode::look(const std::vector<RankKey>& running) {
  const bool stalls = world_.prng.chance(look_stalls);
  agent_later(stalls ? world_.between(1s, 20s) : Duration(1ms), [this, running] {
    for (const RankKey& key : running) keeper_->seen(key, {said_by(key), {}});
  });
}

// ---- the controller

void VirtualNode::send(const wire::AgentMessage& message) {
  if (!doomed_ && connection_ != 0) world_.network.send(connection_, Side::agent, wire::encode(message));
}

void VirtualNode::beat() {
  keeper_->set_illness(full_ && knows_ ? "its disk is full" : "");
  keeper_->heartbeat();
  agent_later(cluster::heartbeat_every, [this] { beat(); });
}

void VirtualNode::dial() {
  agent_later(world_.between(1ms, 20ms), [this] {
    const auto opened = dial_();
    if (!opened) return redial();
    dialing_ = *opened;
    agent_later(world_.between(1ms, 20ms), [this, id = *opened] {
      if (dialing_ != id) return;
      connection_ = std::exchange(dialing_, 0);
      redial_ = redial_min;
      keeper_->say_hello();
      if (world_.prng.chance(world_.weather.dies_after_hello)) doom();
    });
  });
}

void VirtualNode::redial() {
  redial_ = std::min<Duration>(redial_ * 2, redial_max);
  agent_later(redial_, [this] { dial(); });
}

void VirtualNode::closed(Network::Id connection) {
  agent_later(Duration::zero(), [this, connection] {
    if (connection != connection_ && connection != dialing_) return;
    (connection == connection_ ? connection_ : dialing_) = 0;
    redial();
  });
}

void VirtualNode::receive(Network::Id connection, const std::string& frame) {
  agent_later(Duration::zero(), [this, connection, frame] {
    if (connection != connection_) return;
    const auto message = wire::decode_controller_message(frame);
    if (!message) return world_.checks.violate("a message cannot be read: " + message.error().text());
    world_.note(name() + " hears: " + describe(*message));
    if (const auto* start = std::get_if<wire::StartRanks>(&*message)) keeper_->on(*start);
    if (const auto* end = std::get_if<wire::EndRanks>(&*message)) keeper_->on(*end);
    if (const auto* forget = std::get_if<wire::ForgetRanks>(&*message)) keeper_->on(*forget);
    if (std::holds_alternative<wire::Resync>(*message)) keeper_->say_hello();
    if (const auto* welcome = std::get_if<wire::Welcome>(&*message)) keeper_->on(*welcome);
  });
}

}  // namespace tutti::sim
