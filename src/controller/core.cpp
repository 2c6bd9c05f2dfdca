#include "controller/core.hpp"

#include "log/log.hpp"
#include "wire/messages.hpp"

namespace tutti::controller {
namespace {

constexpr Duration tick_every = 200ms;
constexpr Duration probe_every = 1s;
constexpr Duration pass_short_max = 2ms;  // passes this short may follow each other at once
// A turn that comes this late means that this process was stopped, not that the nodes were silent.
constexpr Duration stall_min = 1s;

Instant now_on_the_wall() {
  return Instant(std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()));
}

void merge(cluster::Effects& into, cluster::Effects&& from) {
  std::move(from.sends.begin(), from.sends.end(), std::back_inserter(into.sends));
  into.jobs.merge(from.jobs);
  into.nodes.merge(from.nodes);
  into.queues.merge(from.queues);
  into.fabric = into.fabric || from.fabric;
  into.schedule = into.schedule || from.schedule;
}

wire::StartRanks start_message(const cluster::State& state, const cluster::StartRanks& start) {
  const cluster::Job& job = state.jobs.at(start.job);
  wire::StartRanks message;
  message.job = job.id;
  message.attempt = job.attempt;
  message.command = job.spec.command;
  message.env = job.spec.env;
  message.workdir = job.spec.workdir;
  message.sync = job.spec.sync;
  message.cpus = job.spec.shape.cpus;
  message.memory = job.spec.shape.memory;
  message.grace = job.spec.grace;
  for (const std::int32_t rank : start.ranks)
    message.ranks.push_back(
        {rank, cluster::rank_environment(state, job, rank), cluster::output_file(job, rank)});
  return message;
}

}  // namespace

Core::Core(store::Store& store, Deliver deliver) : store_(store), deliver_(std::move(deliver)) {}

Core::~Core() { stop(); }

Result<> Core::start() {
  if (auto loaded = load(); !loaded) return loaded;
  last_turn_ = now_on_the_wall();
  pass_wanted_ = true;
  thread_ = std::thread([this] { run(); });
  return {};
}

void Core::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Result<> Core::load() {
  auto contents = store_.load();
  if (!contents) return std::move(contents).error();
  cluster::State state;
  for (const auto& [key, bytes] : contents->objects) {
    if (auto decoded = wire::decode_into(state, key, bytes); !decoded) return decoded;
  }
  cluster::derive(state, now_on_the_wall());
  state.revision = state_.revision + 1;
  state_ = std::move(state);
  revision_ = contents->revision;
  return {};
}

void Core::happen(cluster::Event event, Reply reply) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < waiting_items_max) {
      waiting_.push_back({std::move(event), std::move(reply), nullptr});
      woken_.notify_one();
      return;
    }
  }
  if (reply) reply(failed("the controller is overloaded").remedy("try again in a moment"));
}

void Core::ask(Query query) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({cluster::Tick{}, nullptr, std::move(query)});
  }
  woken_.notify_one();
}

std::vector<Core::Item> Core::take() {
  // A pass that was put off is due before the next tick.
  const Duration until_pass = std::max<Duration>(next_pass_ - now_on_the_wall(), 0s);
  const Duration patience = pass_wanted_ ? std::min<Duration>(tick_every, until_pass) : tick_every;
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, patience, [this] { return !waiting_.empty() || stopping_; });
  return std::exchange(waiting_, {});
}

void Core::run() {
  for (;;) {
    std::vector<Item> items = take();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ && items.empty()) return;
    }
    const Instant now = now_on_the_wall();
    keep_leases(now);
    if (!health_.ok) probe(now);
    Batch batch;
    for (Item& item : items) step(batch, now, item);
    if (now >= next_tick_) {
      next_tick_ = now + tick_every;
      Item tick{cluster::Tick{}, nullptr, nullptr};
      step(batch, now, tick);
    }
    if (health_.ok) schedule(batch, now);
    finish(batch, now);
  }
}

// Silence is measured in turns of this loop: when the loop itself stood still, every lease starts anew.
void Core::keep_leases(Instant now) {
  if (now - last_turn_ > stall_min || now < last_turn_) {
    for (auto& [name, node] : state_.nodes) node.heard_at = now;
    next_tick_ = next_probe_ = next_pass_ = now;
  }
  last_turn_ = now;
}

void Core::step(Batch& batch, Instant now, Item& item) {
  if (item.query) {
    batch.queries.push_back(std::move(item.query));
    return;
  }
  if (!health_.ok) {
    if (item.reply)
      batch.answers.push_back({std::move(item.reply), failed("nothing can be stored now: " + health_.error)});
    return;
  }
  cluster::Effects effects = cluster::step(state_, now, item.event);
  if (item.reply) batch.answers.push_back({std::move(item.reply), std::move(effects.reply)});
  merge(batch.effects, std::move(effects));
}

// A pass that took long is not repeated at once: at most half of the time goes into scheduling.
void Core::schedule(Batch& batch, Instant now) {
  pass_wanted_ = pass_wanted_ || batch.effects.schedule;
  if (!pass_wanted_ || now < next_pass_) return;
  pass_wanted_ = false;
  const auto plan = sched::schedule(cluster::snapshot(state_, now), now);
  cluster::Effects effects = cluster::step(state_, now, cluster::Planned{plan, state_.index.generation()});
  pass_wanted_ = effects.schedule;
  effects.schedule = false;
  merge(batch.effects, std::move(effects));
  const Instant done = now_on_the_wall();
  const Duration took = done - now;
  next_pass_ = took < pass_short_max ? done : done + std::min<Duration>(took, 1s);
}

void Core::finish(Batch& batch, Instant now) {
  if (commit(batch.effects)) {
    if (auto news = delivery(batch.effects); !news.empty()) deliver_(std::move(news));
  } else {
    next_probe_ = now + probe_every;
    for (Answer& answer : batch.answers) {
      if (answer.result)
        answer.result = failed("it could not be stored: " + health_.error)
                            .remedy("nothing was changed; try again when the disk is well");
    }
    deliver_({.messages = {}, .jobs = {}, .nodes = {}, .resync = true});
  }
  for (Answer& answer : batch.answers) answer.reply(std::move(answer.result));
  for (const Query& query : batch.queries) query(state_, health_);
}

bool Core::commit(const cluster::Effects& effects) {
  if (effects.jobs.empty() && effects.nodes.empty() && effects.queues.empty() && !effects.fabric) return true;
  std::vector<store::Write> writes;
  for (const auto& id : effects.jobs) writes.push_back({wire::job_key(id), wire::encode(state_.jobs.at(id))});
  for (const auto& name : effects.nodes)
    writes.push_back({wire::node_key(name), wire::encode(state_.nodes.at(name))});
  for (const auto& name : effects.queues) {
    const auto queue = state_.queues.find(name);
    writes.push_back({wire::queue_key(name), std::nullopt});
    if (queue != state_.queues.end()) writes.back().value = wire::encode(queue->second);
  }
  if (effects.fabric) writes.push_back({wire::fabric_key(), wire::encode(*state_.fabric)});
  const auto committed = store_.commit(revision_, writes);
  if (committed.status == store::CommitResult::Status::done) {
    revision_ = committed.revision;
    return true;
  }
  recover(committed.why);
  return false;
}

// What is in memory may be more than what is stored: go back to what is stored, and let the agents tell the
// rest again.
void Core::recover(std::string why) {
  log::error("cannot store: {}", why);
  health_ = {false, std::move(why)};
  if (auto loaded = load(); !loaded) log::error("cannot load: {}", loaded.error().text());
}

void Core::probe(Instant now) {
  if (now < next_probe_) return;
  next_probe_ = now + probe_every;
  if (!load()) return;
  const auto committed = store_.commit(revision_, {});
  if (committed.status != store::CommitResult::Status::done) return;
  revision_ = committed.revision;
  health_ = {};
  pass_wanted_ = true;
  log::warning("the store works again");
  deliver_({.messages = {}, .jobs = {}, .nodes = {}, .resync = true});
}

Delivery Core::delivery(const cluster::Effects& effects) const {
  Delivery delivery;
  for (const cluster::Send& send : effects.sends) {
    if (const auto* start = std::get_if<cluster::StartRanks>(&send)) {
      const cluster::Job& job = state_.jobs.at(start->job);
      // A later event of the same batch may have ended the attempt that this one started.
      if (!job.placed() || job.attempt != start->attempt) continue;
      delivery.messages.push_back({start->node,
                                   wire::encode(wire::ControllerMessage(start_message(state_, *start))),
                                   start->job, start->attempt, true});
    } else if (const auto* end = std::get_if<cluster::EndRanks>(&send)) {
      delivery.messages.push_back(
          {end->node,
           wire::encode(wire::ControllerMessage(wire::EndRanks{end->job, end->attempt})),
           {},
           0,
           false});
    } else if (const auto* forget = std::get_if<cluster::ForgetRanks>(&send)) {
      delivery.messages.push_back(
          {forget->node,
           wire::encode(wire::ControllerMessage(wire::ForgetRanks{forget->job, forget->attempt})),
           {},
           0,
           false});
    } else if (const auto* ask = std::get_if<cluster::AskHello>(&send)) {
      delivery.messages.push_back(
          {ask->node, wire::encode(wire::ControllerMessage(wire::Resync{})), {}, 0, false});
    }
  }
  if (watchers.load() == 0) return delivery;
  for (const auto& id : effects.jobs) {
    const cluster::Job& job = state_.jobs.at(id);
    delivery.jobs.push_back({id, job.finished(), wire::job_json(state_, job, false)});
  }
  for (const auto& name : effects.nodes)
    delivery.nodes.push_back(wire::node_json(state_, state_.nodes.at(name)));
  return delivery;
}

}  // namespace tutti::controller
