#include "lab/sim/virtual_controller.hpp"

#include <algorithm>
#include <utility>

#include "control/wire/messages.hpp"

namespace tutti::sim {
namespace {

constexpr Instant epoch{std::chrono::hours(24 * 365 * 50)};
constexpr Duration restart_after_failure = 1s;
constexpr std::uint64_t compare_every_turns = 64;
// So little that jobs are forgotten while others still come after them.
constexpr cluster::Retention kept{.jobs_max = 20, .jobs_age_max = 30s, .nodes_age_max = 60s};

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

// ---- life and death

void VirtualController::start() {
  if (up()) return;
  ++life_;
  turns_ = std::make_unique<driver::Turns>(
      disk_, [this] { return epoch + world_.agenda.now() + clock_offset_; }, kept);
  if (auto loaded = turns_->load(); !loaded) {
    world_.note("controller cannot start: " + loaded.error().text());
    turns_.reset();
    world_.agenda.after(restart_after_failure, [this, life = life_] {
      if (life == life_) start();
    });
    return;
  }
  world_.note("controller starts with " + std::to_string(state().jobs.size()) + " jobs");
  world_.checks.same(state(), disk_.contents());
  world_.checks.turned(world_.agenda.now(), state());
  turn_soon_ = false;
  wait_for_turn(Duration::zero());
}

bool VirtualController::kill() {
  if (!up()) return false;
  world_.note("controller dies");
  ++life_;
  turns_.reset();
  speakers_ = {};
  waiting_.clear();
  stalled_until_ = {};
  for (const Network::Id id : std::exchange(connections_, {})) world_.network.close(id, Side::controller);
  return true;
}

// A stall is not stretched: what it holds up would then come in another order.
bool VirtualController::stall(Duration time) {
  if (world_.agenda.now() < stalled_until_) return false;
  world_.note("controller stalls for " + format_duration(time));
  stalled_until_ = world_.agenda.now() + time;
  return true;
}

void VirtualController::later(Duration delay, std::function<void()> task) {
  world_.agenda.after(delay, [this, life = life_, task = std::move(task)]() mutable {
    if (life != life_) return;
    if (world_.agenda.now() < stalled_until_)
      return later(stalled_until_ - world_.agenda.now(), std::move(task));
    task();
  });
}

// ---- what comes in

void VirtualController::happen(cluster::Event event, driver::Reply reply) {
  if (!up()) return;
  later(world_.between(0ms, 5ms), [this, event = std::move(event), reply = std::move(reply)]() mutable {
    put(std::move(event), std::move(reply));
  });
}

void VirtualController::put(cluster::Event event, driver::Reply reply) {
  waiting_.push_back({std::move(event), std::move(reply), nullptr});
  if (turn_soon_) return;
  turn_soon_ = true;
  wait_for_turn(world_.between(0ms, 2ms));
}

// As controller/hub does it.
void VirtualController::receive(Network::Id connection, const std::string& node, const std::string& frame) {
  if (!up()) return;
  auto message = wire::decode_agent_message(frame);
  if (!message) return world_.checks.violate("a message cannot be read: " + message.error().text());
  if (auto* hello = std::get_if<cluster::Hello>(&*message)) {
    auto greeting = speakers_.greet(node, connection);
    if (world_.sabotage == Sabotage::old_connections_speak) greeting.accepted = true;
    world_.note("controller hears " + node + " on " + std::to_string(connection) + ": " + describe(*hello) +
                (greeting.accepted ? "" : ", too late"));
    if (greeting.replaced != 0) world_.network.close(greeting.replaced, Side::controller);
    if (!greeting.accepted) return world_.network.close(connection, Side::controller);
    return put(std::move(*hello), nullptr);
  }
  const bool believed = world_.sabotage == Sabotage::old_connections_speak;
  if (!speakers_.speaks(node, connection) && !believed) return;
  if (auto* report = std::get_if<cluster::RankReport>(&*message)) {
    world_.note("controller hears " + node + ": " + describe(*report));
    return put(cluster::Reported{node, std::move(*report)}, nullptr);
  }
  put(cluster::Heard{node}, nullptr);
}

void VirtualController::closed(Network::Id connection, const std::string& node) {
  connections_.erase(connection);
  if (speakers_.drop(node, connection)) world_.note("controller misses " + node);
}

// ---- turns

void VirtualController::wait_for_turn(Duration patience) {
  later(patience, [this, awaited = ++awaited_turn_] {
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
  if (well()) {
    world_.checks.turned(world_.agenda.now(), state());
  } else {
    world_.checks.stored(world_.agenda.now(), disk_.contents());
  }
  if (well() && ++turns_taken_ % compare_every_turns == 0) world_.checks.same(state(), disk_.contents());
  if (items > 0 || !outcome.delivery.empty())
    world_.note("turn of " + std::to_string(items) + ", " + std::to_string(outcome.delivery.messages.size()) +
                " messages" + (well() ? "" : ", nothing can be stored"));
  if (!outcome.delivery.empty()) {
    // The network loop sends it when it comes to it, in order.
    last_delivery_ = std::max(last_delivery_, world_.agenda.now() + world_.between(0ms, 3ms));
    later(last_delivery_ - world_.agenda.now(),
          [this, delivery = std::move(outcome.delivery)] { deliver(delivery); });
  }
  answer(std::move(outcome.answers));
  wait_for_turn(std::max<Duration>(turns_->patience(), 1ms));
}

void VirtualController::deliver(const driver::Delivery& delivery) {
  for (const auto& message : delivery.messages) {
    if (const auto connection = speakers_.of(message.node))
      world_.network.send(*connection, Side::controller, message.frame);
  }
  if (!delivery.resync) return;
  const std::string frame = wire::encode(wire::ControllerMessage(wire::Resync{}));
  for (const auto& [node, connection] : speakers_.all())
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
