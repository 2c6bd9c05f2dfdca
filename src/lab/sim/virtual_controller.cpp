#include "lab/sim/virtual_controller.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "control/wire/messages.hpp"

namespace tutti::sim {
namespace {

constexpr Instant epoch{std::chrono::hours(24 * 365 * 50)};
constexpr Duration restart_after_failure = 1s;
constexpr std::uint64_t compare_every_turns = 64;
// So little that jobs are forgotten while others still come after them.
constexpr cluster::Retention kept{
    .jobs_max = 20, .jobs_age_min = 1s, .jobs_age_max = 30s, .nodes_age_max = 60s, .clock_rest = 5s};

std::string describe(const cluster::RankReport& report) {
  std::string rank =
      report.job.text() + "." + std::to_string(report.attempt) + "." + std::to_string(report.rank);
  switch (report.status.state) {
    case cluster::RankState::assigned:
      return rank + " waits";
    case cluster::RankState::started:
      return rank + " runs";
    case cluster::RankState::exited:
      return rank + " ended with " + std::to_string(report.status.exit_code) +
             (report.status.vanished ? ", vanished" : "");
  }
  return rank;
}

std::string describe(const cluster::Hello& hello) {
  std::string text = "hello";
  for (const auto& rank : hello.ranks) text += ", " + describe(rank);
  return text;
}

std::string describe(const Result<std::vector<cluster::JobId>>& result) {
  if (!result) return result.error().text();
  std::string text = "done";
  for (const auto& id : *result) text += " " + id.text();
  return text;
}

}  // namespace

driver::Now VirtualController::clock() const {
  return {epoch + world_.agenda.now() + clock_offset_, steady()};
}

// ---- life and death

void VirtualController::start() {
  if (up()) return;
  ++life_;
  turns_ = std::make_unique<driver::Turns>(
      disk_, [this] { return clock(); }, "sim", kept, "boot-" + std::to_string(boots_));
  turns_->open_secrets_with([](const std::string&, const cluster::Secret& secret) -> Result<std::string> {
    return secret.sealed.substr(0, static_cast<std::size_t>(secret.bytes));
  });
  if (auto loaded = turns_->load(); !loaded) {
    world_.note("controller cannot start: " + loaded.error().text());
    turns_.reset();
    world_.agenda.after(restart_after_failure, [this, life = life_] {
      if (life == life_) start();
    });
    return;
  }
  listener_.expect(state().cluster_id, {}, steady());
  world_.note("controller starts with " + std::to_string(state().jobs.size()) + " jobs");
  world_.checks.same(state(), disk_.contents());
  world_.checks.turned(world_.agenda.now(), state());
  turn_soon_ = false;
  stay_awake();
  wait_for_turn(Duration::zero());
}

bool VirtualController::kill() {
  if (!up()) return false;
  world_.note("controller dies");
  ++life_;
  turns_.reset();
  listener_ = {};
  hearing_ = {};
  waiting_.clear();
  core_stalled_until_ = network_stalled_until_ = reading_stalled_until_ = {};
  for (const auto& [id, line] : std::exchange(lines_, {})) world_.network.close(id, Side::controller);
  return true;
}

void VirtualController::reboot(Duration by) {
  world_.note("the controller's machine starts anew, its clock is off by " + format_duration(by));
  ++boots_;
  jump_clock(by);
}

// A stall is not stretched: what it holds up would then come in another order.
bool VirtualController::stall(Stall what, Duration time) {
  const Duration now = world_.agenda.now();
  if (now < std::max({core_stalled_until_, network_stalled_until_, reading_stalled_until_})) return false;
  switch (what) {
    case Stall::all:
      world_.note("controller stalls for " + format_duration(time));
      core_stalled_until_ = network_stalled_until_ = now + time;
      break;
    case Stall::core:
      world_.note("controller's core stalls for " + format_duration(time));
      core_stalled_until_ = now + time;
      break;
    case Stall::network:
      world_.note("controller's network loop stalls for " + format_duration(time));
      network_stalled_until_ = now + time;
      break;
    case Stall::reading:
      world_.note("controller reads no agent for " + format_duration(time));
      reading_stalled_until_ = now + time;
      break;
  }
  return true;
}

void VirtualController::on_core(Duration delay, std::function<void()> task) {
  later(delay, core_stalled_until_, std::move(task));
}

void VirtualController::on_network(Duration delay, std::function<void()> task) {
  later(delay, network_stalled_until_, std::move(task));
}

void VirtualController::later(Duration delay, const Duration& stalled_until, std::function<void()> task) {
  world_.agenda.after(delay, [this, life = life_, &stalled_until, task = std::move(task)]() mutable {
    if (life != life_) return;
    if (world_.agenda.now() < stalled_until)
      return later(stalled_until - world_.agenda.now(), stalled_until, std::move(task));
    task();
  });
}

// What the sockets bring is taken at once, unless the network loop stands still or does not come to it.
void VirtualController::when_read(std::function<void()> task) {
  const Duration now = world_.agenda.now();
  const Duration& stalled_until =
      now < network_stalled_until_ ? network_stalled_until_ : reading_stalled_until_;
  if (now >= stalled_until) return task();
  later(Duration::zero(), stalled_until, std::move(task));
}

// As the network loop says it of itself: whether it is awake is up to the real judgement.
void VirtualController::stay_awake() {
  std::vector<driver::Hearing::Line> lines;
  for (const auto& [connection, line] : lines_) {
    const std::string& node = listener_.node_of(connection);
    const bool speaks = listener_.speaker(node) == connection;
    lines.push_back({.connection = connection,
                     .heard_at = line.heard_at,
                     .reads = line.reads,
                     .node = speaks ? std::string_view(node) : std::string_view(),
                     .has_unread = [&line = line] { return line.unread > 0; }});
  }
  const auto verdict = hearing_.judge(lines, steady());
  for (const std::string& node : verdict.excused)
    put(cluster::Reported(node, std::vector<cluster::RankReport>()), nullptr);
  if (verdict.awake) waiting_.push_back({cluster::Tick{}, nullptr, nullptr, steady()});
  on_network(driver::awake_every, [this] { stay_awake(); });
}

// ---- what comes in

void VirtualController::happen(cluster::Event event, driver::Reply reply) {
  if (!up()) return;
  on_network(world_.between(0ms, 5ms), [this, event = std::move(event), reply = std::move(reply)]() mutable {
    put(std::move(event), std::move(reply));
  });
}

void VirtualController::put(cluster::Event event, driver::Reply reply) {
  waiting_.push_back({std::move(event), std::move(reply), nullptr});
  if (turn_soon_) return;
  turn_soon_ = true;
  wait_for_turn(world_.between(0ms, 2ms));
}

// What it means is up to the real listener.
void VirtualController::receive(Network::Id connection, const std::string& node, const std::string& frame) {
  if (!up()) return;
  if (const auto line = lines_.find(connection); line != lines_.end()) ++line->second.unread;
  when_read([this, connection, node, frame] { hear(connection, node, frame); });
}

void VirtualController::hear(Network::Id connection, const std::string& node, const std::string& frame) {
  if (const auto found = lines_.find(connection); found != lines_.end()) {
    Line& line = found->second;
    --line.unread;
    ++line.reads;
    line.heard_at = steady();
  }
  auto heard = listener_.receive(connection, frame, steady());
  for (const auto& message : heard.answers)
    world_.network.send(connection, Side::controller, wire::encode(message));
  if (!heard.event && world_.sabotage == Sabotage::old_connections_speak) heard = believe(node, frame);
  if (heard.replaced != 0) hang_up(heard.replaced);
  if (!heard.refused.empty()) {
    world_.note("controller refuses " + node + " on " + std::to_string(connection) + ": " + heard.refused);
    return hang_up(connection);
  }
  if (!heard.event) return;
  if (const auto* hello = std::get_if<cluster::Hello>(&*heard.event))
    world_.note("controller hears " + node + " on " + std::to_string(connection) + ": " + describe(*hello));
  if (const auto* reported = std::get_if<cluster::Reported>(&*heard.event))
    for (const auto& report : reported->ranks)
      world_.note("controller hears " + node + ": " + describe(report));
  put(std::move(*heard.event), nullptr);
}

// A listener that believes whoever speaks.
driver::Listener::Heard VirtualController::believe(const std::string& node, const std::string& frame) {
  driver::Listener::Heard heard;
  auto message = wire::decode_agent_message(frame);
  if (!message) return heard;
  if (auto* hello = std::get_if<cluster::Hello>(&*message)) {
    heard.event = std::move(*hello);
  } else if (auto* reports = std::get_if<wire::RankReports>(&*message)) {
    heard.event = cluster::Reported(node, std::move(reports->ranks));
  } else if (auto* beat = std::get_if<wire::Heartbeat>(&*message)) {
    heard.event = cluster::Heard{node, std::move(beat->illness), beat->kept};
  }
  return heard;
}

void VirtualController::hang_up(Network::Id connection) {
  lines_.erase(connection);
  world_.network.close(connection, Side::controller);
}

void VirtualController::closed(Network::Id connection, const std::string& node) {
  when_read([this, connection, node] {
    lines_.erase(connection);
    if (listener_.close(connection)) world_.note("controller misses " + node);
  });
}

// ---- turns

void VirtualController::wait_for_turn(Duration patience) {
  on_core(patience, [this, awaited = ++awaited_turn_] {
    if (awaited == awaited_turn_) turn();
  });
}

void VirtualController::turn() {
  turn_soon_ = false;
  const std::size_t items = waiting_.size();
  auto outcome = turns_->turn(std::exchange(waiting_, {}), false);
  if (disk_.process_died()) {
    if (world_.sabotage == Sabotage::visible_before_stored) {
      deliver(outcome.delivery);
      answer(std::move(outcome.answers));
    }
    world_.note("controller was in a commit");
    kill();
    world_.agenda.after(world_.between(10ms, 5s), [this] { start(); });
    return;
  }
  if (turns_->state_is_stored()) {
    world_.checks.turned(world_.agenda.now(), state());
  } else {
    world_.checks.stored(world_.agenda.now(), disk_.contents());
  }
  if (well() && ++turns_taken_ % compare_every_turns == 0) {
    world_.checks.same(state(), disk_.contents());
    // What was seen is in files from now on.
    waiting_.push_back({cluster::AuditShelved{state().audit.head.last}, nullptr, nullptr});
  }
  if (items > 0 || !outcome.delivery.empty())
    world_.note("turn of " + std::to_string(items) + ", " + std::to_string(outcome.delivery.messages.size()) +
                " messages" + (well() ? "" : ", nothing can be stored"));
  if (!outcome.delivery.empty()) {
    // The network loop sends it when it comes to it, in order.
    last_delivery_ = std::max(last_delivery_, world_.agenda.now() + world_.between(0ms, 3ms));
    on_network(last_delivery_ - world_.agenda.now(),
               [this, delivery = std::move(outcome.delivery)] { deliver(delivery); });
  }
  answer(std::move(outcome.answers));
  wait_for_turn(std::max<Duration>(turns_->patience(), 1ms));
}

void VirtualController::deliver(const driver::Delivery& delivery) {
  for (const auto& message : delivery.messages) {
    if (const auto connection = listener_.speaker(message.node))
      world_.network.send(*connection, Side::controller, message.frame);
  }
  if (!delivery.resync) return;
  const std::string frame = wire::encode(wire::ControllerMessage(wire::Resync{}));
  for (const auto& [node, connection] : listener_.speakers())
    world_.network.send(connection, Side::controller, frame);
}

void VirtualController::answer(std::vector<driver::Turns::Outcome::Answer> answers) {
  for (auto& answer : answers) {
    world_.note("controller answers: " + describe(answer.result));
    if (world_.prng.chance(world_.weather.reply_lost)) continue;
    // On its way it does not need the controller any more.
    world_.agenda.after(world_.between(0ms, 5ms), [reply = std::move(answer.reply),
                                                   result = std::move(answer.result)] { reply(result); });
  }
}

}  // namespace tutti::sim
