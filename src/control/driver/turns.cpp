#include "control/driver/turns.hpp"

#include <algorithm>
#include <utility>

#include "control/cluster/authorize.hpp"
#include "control/wire/objects.hpp"

namespace tutti::driver {
namespace {

constexpr Duration probe_every = 1s;
constexpr Duration rest_every = 10s;
constexpr Duration pass_short_max = 2ms;  // passes this short may follow each other at once
// One that seems to have taken longer was stopped in between.
constexpr Duration pass_rest_max = 1min;
// The date is followed when it is off by this much: less is not worth a change of all that is under way.
constexpr Duration clock_step_min = 1s;
// A turn that comes this late means that this process was stopped, not that the nodes were silent.
constexpr Duration stall_min = 1s;
// So that nobody waits for long behind a large array: the next ones start in the next turn.
constexpr std::size_t starts_per_turn_max = 1'000;
constexpr std::size_t renewed_per_commit_max = 1'000;

bool is_step(Duration by) { return std::chrono::abs(by) >= clock_step_min; }

// What has waited for its turn, behind a commit to a disk that hung, is older than it says.
void age(std::vector<cluster::RankReport>& reports, Instant steady) {
  for (cluster::RankReport& report : reports) {
    if (report.heard_at == Instant() || report.heard_at >= steady) continue;
    const Duration late = steady - report.heard_at;
    if (report.status.state == cluster::RankState::exited) report.ended_ago += late;
    if (report.ran != Duration::zero()) report.ran += late;
  }
}

void merge(cluster::Effects& into, cluster::Effects&& from) {
  std::move(from.sends.begin(), from.sends.end(), std::back_inserter(into.sends));
  into.jobs.merge(from.jobs);
  into.shown.merge(from.shown);
  into.ended.merge(from.ended);
  into.asked.merge(from.asked);
  into.nodes.merge(from.nodes);
  into.queues.merge(from.queues);
  into.persons.merge(from.persons);
  into.tokens.merge(from.tokens);
  into.tokens_used.merge(from.tokens_used);
  into.past_use.merge(from.past_use);
  into.join_tokens.merge(from.join_tokens);
  into.members.merge(from.members);
  into.secrets.merge(from.secrets);
  into.services.merge(from.services);
  into.audit.merge(from.audit);
  into.fabric = into.fabric || from.fabric;
  into.cluster = into.cluster || from.cluster;
  into.schedule = into.schedule || from.schedule;
}

}  // namespace

Turns::Turns(store::Store& store, Clock clock, std::string new_cluster_id, const cluster::Retention& keep,
             std::string boot)
    : store_(store),
      clock_(std::move(clock)),
      new_cluster_id_(std::move(new_cluster_id)),
      keep_(keep),
      boot_(std::move(boot)) {}

Result<> Turns::load() {
  const Now now = clock_();
  clock_offset_ = now.date - now.steady;
  if (auto read = read_store(); !read) return read;
  all_doors_ = false;  // whoever drives this takes them from the state before the first turn
  // A moment between two looks at two clocks is no step.
  if (state_.clock.boot == boot_ && !is_step(clock_offset_ - state_.clock.offset))
    clock_offset_ = state_.clock.offset;
  if (auto named = name_cluster(); !named) return named;
  if (auto renewed = renew(); !renewed) return renewed;
  last_turn_.reset();
  pass_wanted_ = true;
  return {};
}

Result<> Turns::read_store() {
  cluster::State state;
  auto revision = store_.read([&state](std::string_view key, std::string_view bytes) {
    return wire::decode_into(state, key, bytes);
  });
  if (!revision) return std::move(revision).error();
  cluster::derive(state, date());
  cluster::keep_strays(state, state_);
  if (audit_found_.last > state.audit.head.last) state.audit.head = audit_found_;
  state.revision = state_.revision + 1;
  state_ = std::move(state);
  state_is_stored_ = true;
  all_doors_ = true;
  revision_ = *revision;
  return {};
}

// A cluster is told apart from others before anybody hears of it.
Result<> Turns::name_cluster() {
  if (!state_.cluster_id.empty() || new_cluster_id_.empty()) return {};
  state_.cluster_id = new_cluster_id_;
  const std::vector<store::Write> writes{{wire::cluster_key(), wire::encode_cluster(state_)}};
  const auto committed = store_.commit(revision_, writes);
  if (committed.status != store::CommitResult::Status::done)
    return failed("the cluster's id cannot be stored: " + committed.why);
  revision_ = committed.revision;
  return {};
}

// What an earlier version stored is written as this one does, before any part of it changes.
Result<> Turns::renew() {
  const std::vector<cluster::JobId> jobs(state_.stored_whole.begin(), state_.stored_whole.end());
  for (std::size_t first = 0; first < jobs.size(); first += renewed_per_commit_max) {
    cluster::Effects effects;
    for (std::size_t at = first; at < std::min(first + renewed_per_commit_max, jobs.size()); ++at) {
      effects.jobs.insert(jobs[at]);
      effects.asked.insert(cluster::asked_with(state_.jobs.at(jobs[at])));
    }
    const auto committed = store_.commit(revision_, writes_of(effects));
    if (committed.status != store::CommitResult::Status::done)
      return failed("the store of an earlier version cannot be renewed: " + committed.why);
    revision_ = committed.revision;
  }
  state_.stored_whole.clear();
  return {};
}

// What is left to be done or to be sent goes on at once; a pass that was put off is due before the next tick.
Duration Turns::patience() const {
  if (!outbox_.empty() || !to_show_.empty() || !withheld_.empty() ||
      (health_.ok && !state_.index.doomed().empty()))
    return 0s;
  if (!pass_wanted_) return tick_every;
  return std::clamp<Duration>(next_pass_ - clock_().steady, 0s, tick_every);
}

Turns::Outcome Turns::turn(std::vector<Item> items, bool watched) {
  look_at_clock();
  keep_leases();
  if (!health_.ok) probe();
  Outcome outcome;
  cluster::Effects effects;
  bool frees_room = false;
  ranks_placed_ = 0;
  const auto happen = [&](cluster::Event event) {
    Item item{std::move(event), nullptr, nullptr};
    step(outcome, effects, item);
  };
  const cluster::ClockOffset clock{boot_, clock_offset_};
  if (state_.clock != clock) happen(cluster::ClockSet{clock});
  for (const Withheld& withheld : std::exchange(withheld_, {}))
    happen(cluster::SecretsWithheld{withheld.job, withheld.attempt, withheld.why});
  for (Item& item : items) frees_room = step(outcome, effects, item) || frees_room;
  if (!state_.index.doomed().empty()) happen(cluster::EndDoomed{});
  if (steady_ >= next_tick_) {
    next_tick_ = steady_ + tick_every;
    happen(cluster::Tick{deaf()});
    happen(cluster::Expire{kept_now()});
  }
  if (!state_.fleets.due.empty()) happen(cluster::Tend{});
  if (health_.ok) schedule(effects);
  write_audit(effects);
  const Commit committed = commit(effects, frees_room);
  if (committed == Commit::done || committed == Commit::landed) {
    scribe_.stored();
  } else {
    scribe_.lost();
  }
  if (committed == Commit::done) {
    outbox_.add(std::move(effects.sends));
    to_show_.merge(effects.shown);
    // A turn that has placed a large gang has done enough: the gang is shown and described from the next on.
    const bool enough_done = ranks_placed_ > ranks_per_turn_max;
    outcome.delivery = delivery(effects, watched, enough_done);
    outcome.delivery.doors = std::exchange(all_doors_, false)
                                 ? people::all_doors(state_.people)
                                 : people::doors_of(state_.people, effects.tokens, effects.persons);
    for (const auto& name : effects.members) {
      const auto member = state_.members.find(name);
      outcome.delivery.members[name] =
          member == state_.members.end() ? std::nullopt : std::optional(member->second);
    }
    if (!enough_done) withheld_ = outbox_.write(state_, open_secret_, outcome.delivery.messages);
    for (const cluster::JobId id : effects.ended) {
      if (state_.jobs.contains(id)) outcome.ended.push_back(id);  // it may be gone again
    }
    for (const cluster::NodeName& name : effects.nodes) {
      const auto node = state_.nodes.find(name);
      if (node != state_.nodes.end() && node->second.lost && node->second.lost_at == now_ &&
          !effects.members.contains(name))
        outcome.lost.push_back(name);
    }
    outcome.delivery.resync = std::exchange(resync_, false);
    if (std::exchange(members_anew_, false)) tell_all_members(outcome.delivery);
  } else {
    to_show_.clear();
    refuse(outcome, committed);
  }
  return outcome;
}

// The date goes on with the steady clock. Where it was set it is followed in one step, and the state moves
// all that is under way along; nodes tell how long their ranks have run, because the steady clock of a
// machine that slept has slept, too.
void Turns::look_at_clock() {
  const Now read = clock_();
  const Duration offset = read.date - read.steady;
  if (is_step(offset - clock_offset_)) {
    clock_offset_ = offset;
    last_turn_.reset();
    resync_ = true;
  }
  steady_ = read.steady;
  now_ = steady_ + clock_offset_;
}

// Silence is measured in turns of this loop: when the loop itself stood still, every lease starts anew.
// Before the first turn nobody could be heard, however long it took to read the store.
void Turns::keep_leases() {
  if (!last_turn_ || steady_ - *last_turn_ > stall_min) {
    start_leases_anew();
    jumped_at_ = next_tick_ = next_probe_ = steady_;
  }
  last_turn_ = steady_;
}

// A clock that is wrong for a moment must not cost what was to be kept for a month.
cluster::Retention Turns::kept_now() const {
  cluster::Retention keep = keep_;
  const Duration calm = steady_ - jumped_at_;
  if (calm < std::min(keep_.clock_rest, keep_.jobs_age_max)) keep.jobs_age_max = Duration::zero();
  if (calm < std::min(keep_.clock_rest, keep_.nodes_age_max)) keep.nodes_age_max = Duration::zero();
  if (calm < keep_.clock_rest) keep.forgets_use = false;
  return keep;
}

void Turns::start_leases_anew() {
  for (auto& [name, node] : state_.nodes) node.heard_at = now_;
  if (awake_at_) awake_at_ = steady_;
}

// The loop that hears was awake then. If it was not for a while, or has only begun, or this loop is late,
// what agents have said since comes behind this: they have a whole lease from the moment at which both have
// caught up.
void Turns::hear(Instant awake_at) {
  const bool was_deaf = !awake_at_ || deaf();
  awake_at_ = std::min(awake_at, steady_);
  if (was_deaf && !deaf()) start_leases_anew();
}

bool Turns::deaf() const { return awake_at_ && steady_ - *awake_at_ > stall_min; }

// Looks whether the store works again: what is in it is the truth, and agents tell the rest once more.
void Turns::probe() {
  if (steady_ < next_probe_) return;
  next_probe_ = steady_ + probe_every;
  auto committed = store_.commit(revision_, {});
  // To read everything takes its time: not while nothing can be written.
  if (committed.status == store::CommitResult::Status::unknown || !read_store()) return;
  // The commit that failed had landed, and its revision is known only now.
  if (committed.status == store::CommitResult::Status::conflict) committed = store_.commit(revision_, {});
  if (committed.status != store::CommitResult::Status::done) return;
  revision_ = committed.revision;
  health_ = {};
  pass_wanted_ = true;
  resync_ = true;
  members_anew_ = true;
}

// By what he may now, whatever he could when he asked.
Result<> Turns::authorize(Item& item, people::Name& who) const {
  const auto caller = cluster::identify(state_, now_, *item.by);
  if (!caller) return caller.error();
  who = caller->name;
  cluster::sign(item.event, *caller);
  return cluster::authorize(state_, *caller, item.event);
}

// Not while what happens can neither be stored nor told later on.
Result<> Turns::may_go_on(bool frees_room) const {
  if (health_.ok && (frees_room || !is_log_full())) return {};
  if (frees_room && state_is_stored_) return {};
  Error refused = health_.ok
                      ? failed("nothing can be changed now: the audit log cannot be written to its files")
                      : failed("nothing can be stored now: " + health_.error);
  if (state_is_stored_)
    refused = std::move(refused).remedy("cancel, drain and remove still work, and make room");
  return refused;
}

bool Turns::step(Outcome& outcome, cluster::Effects& effects, Item& item) {
  if (item.awake) {
    hear(*item.awake);
    return false;
  }
  if (item.query) {
    outcome.queries.push_back(std::move(item.query));
    return false;
  }
  if (const auto* found = std::get_if<cluster::AuditFound>(&item.event)) audit_found_ = found->head;
  people::Name who;
  if (item.by) {
    if (auto allowed = authorize(item, who); !allowed) {
      note_refusal(item, who, allowed.error());
      if (item.reply) outcome.answers.push_back({std::move(item.reply), std::move(allowed).error()});
      return false;
    }
  }
  const bool frees_room = cluster::frees_room(state_, item.event);
  if (auto goes_on = may_go_on(frees_room); !goes_on) {
    note_refusal(item, who, goes_on.error());
    if (item.reply) outcome.answers.push_back({std::move(item.reply), std::move(goes_on).error()});
    return false;
  }
  if (auto* reported = std::get_if<cluster::Reported>(&item.event)) age(reported->ranks, steady_);
  if (auto* hello = std::get_if<cluster::Hello>(&item.event)) age(hello->ranks, steady_);
  auto note = scribe_.begin(state_, item, who);
  cluster::Effects happened = cluster::step(state_, now_, item.event);
  const bool has_changed = cluster::is_stored(happened);
  if (note) write_down(item, *std::move(note), happened.reply, has_changed);
  if (item.reply) outcome.answers.push_back({std::move(item.reply), std::move(happened.reply)});
  merge(effects, std::move(happened));
  return frees_room && has_changed;
}

// What cannot be stored now, or would make the log grow that must not, is at least counted.
void Turns::note_refusal(const Item& item, const people::Name& who, const Error& why) {
  auto note = scribe_.begin(state_, item, who);
  if (!note) return;
  if (has_room_for_lines()) return scribe_.refused(std::move(note), why, steady_);
  scribe_.leave_out(*note);
}

// Without room there is a line of what has freed some: nobody uses up what is left for that with what is
// refused, or changes nothing.
void Turns::write_down(const Item& item, audit::Entry note, const Result<std::vector<cluster::JobId>>& reply,
                       bool has_changed) {
  if (has_room_for_lines() || (reply && has_changed))
    return scribe_.end(state_, item, std::move(note), reply, steady_);
  if (!reply) scribe_.leave_out(note);
}

bool Turns::is_log_full() const { return state_.audit.bytes > cluster::audit_waiting_bytes_max; }

// In the same commit as that of which they tell.
void Turns::write_audit(cluster::Effects& effects) {
  const std::uint64_t first = state_.audit.head.last + 1;
  if (has_room_for_lines()) scribe_.tell_left_out(steady_);
  std::string lines = scribe_.write(state_.audit.head, now_);
  if (lines.empty()) return;
  cluster::add_audit_lines(state_.audit, first, std::move(lines));
  effects.audit.insert(first);
}

// A pass that took long is not repeated before the others have had as much time: at most half of it goes into
// scheduling.
void Turns::schedule(cluster::Effects& effects) {
  pass_wanted_ = pass_wanted_ || effects.schedule;
  if (!pass_wanted_ || steady_ < next_pass_) return;
  const Instant begun = clock_().steady;
  sched::Snapshot snapshot = cluster::snapshot(state_, now_);
  snapshot.starts_max = starts_per_turn_max;
  const auto plan = sched::schedule(snapshot, now_);
  for (const sched::Start& start : plan.starts)
    ranks_placed_ += static_cast<std::size_t>(start.places.ranks());
  cluster::Effects planned = cluster::step(state_, now_, cluster::Planned{plan, state_.index.generation()});
  pass_wanted_ = planned.schedule || plan.more;
  planned.schedule = false;
  merge(effects, std::move(planned));
  const Instant done = clock_().steady;
  const Duration took = done - begun;
  next_pass_ = took < pass_short_max ? done : done + std::min(took, pass_rest_max);
}

std::vector<store::Write> Turns::writes_of(const cluster::Effects& effects) const {
  std::vector<store::Write> writes;
  // What changed is written, and what is gone is removed.
  const auto add = [&writes](std::string key, const auto& objects, const auto& id) {
    writes.push_back({std::move(key), std::nullopt});
    if (const auto object = objects.find(id); object != objects.end())
      writes.back().value = wire::encode(object->second);
  };
  for (const auto& id : effects.asked) {
    const cluster::JobSpec* spec = cluster::asked_under(state_, id);
    writes.push_back({wire::asked_key(id), std::nullopt});
    if (spec != nullptr) writes.back().value = wire::encode_asked(*spec);
  }
  for (const auto& id : effects.jobs) add(wire::job_key(id), state_.jobs, id);
  for (const auto& name : effects.nodes) add(wire::node_key(name), state_.nodes, name);
  for (const auto& name : effects.queues) add(wire::queue_key(name), state_.queues, name);
  for (const auto& name : effects.persons) add(wire::person_key(name), state_.people.persons, name);
  for (const auto& id : effects.tokens) add(wire::token_key(id), state_.people.tokens, id);
  for (const auto& id : effects.tokens_used) {
    if (!effects.tokens.contains(id)) add(wire::token_key(id), state_.people.tokens, id);
  }
  for (const auto& id : effects.join_tokens) add(wire::join_token_key(id), state_.join_tokens, id);
  for (const auto& name : effects.members) add(wire::member_key(name), state_.members, name);
  for (const auto& id : effects.secrets) add(wire::secret_key(id), state_.secrets, id);
  for (const auto& name : effects.services) add(wire::service_key(name), state_.services, name);
  for (const auto& who : effects.past_use) {
    writes.push_back({wire::past_use_key(who), std::nullopt});
    if (const auto past = state_.past_use.find(who); past != state_.past_use.end())
      writes.back().value = wire::encode(who, past->second);
  }
  for (const std::uint64_t first : effects.audit) {
    writes.push_back({wire::audit_key(first), std::nullopt});
    if (const auto lines = state_.audit.lines.find(first); lines != state_.audit.lines.end())
      writes.back().value = lines->second;
  }
  if (effects.fabric) writes.push_back({wire::fabric_key(), wire::encode(*state_.fabric)});
  if (effects.cluster) writes.push_back({wire::cluster_key(), wire::encode_cluster(state_)});
  return writes;
}

// If it does not work, what is in memory may be more than what is stored: back to what is stored. Nobody else
// writes, so that the revision of what is there tells whether all of the turn has landed or nothing.
Turns::Commit Turns::commit(const cluster::Effects& effects, bool frees_room) {
  if (!cluster::is_stored(effects)) return Commit::done;
  const auto writes = writes_of(effects);
  const auto committed =
      frees_room ? store_.commit_from_reserve(revision_, writes) : store_.commit(revision_, writes);
  if (committed.status == store::CommitResult::Status::done) {
    revision_ = committed.revision;
    // From now on nothing but what frees room, until the reserve is whole again.
    if (committed.from_reserve && health_.ok) health_ = {false, committed.why};
    return Commit::done;
  }
  health_ = {false, committed.why};
  state_is_stored_ = false;
  const std::uint64_t before = revision_;
  if (auto read = read_store(); !read) {
    health_.error += "; and it cannot be read: " + read.error().text();
    return Commit::not_known;
  }
  const bool conflict = committed.status == store::CommitResult::Status::conflict;
  return conflict || revision_ == before ? Commit::nothing_changed : Commit::landed;
}

void Turns::rest() {
  const Instant now = clock_().steady;
  if (now < next_rest_) return;
  next_rest_ = now + rest_every;
  if (!health_.ok) return;
  if (auto tidied = store_.tidy(); !tidied) {
    const Error& error = tidied.error();
    health_ = {false, error.message() + (error.remedy().empty() ? "" : ": " + error.remedy())};
    next_probe_ = now + probe_every;
  }
}

// Nothing of the turn becomes visible but what is true of it now. Agents tell again what they told in it, and
// hear again what they were to be told.
void Turns::refuse(Outcome& outcome, Commit commit) {
  next_probe_ = steady_ + probe_every;
  for (Outcome::Answer& answer : outcome.answers) {
    if (!answer.result || commit == Commit::landed) continue;
    answer.result = commit == Commit::nothing_changed
                        ? failed("it could not be stored: " + health_.error)
                              .remedy("nothing was changed; try again when the disk is well")
                        : unknown("it is not known whether it was stored: " + health_.error)
                              .remedy(
                                  "when the disk is well, look whether it was done; a submit with the "
                                  "same key is not done twice");
  }
  outcome.delivery.resync = true;
  // Which of them have changed nobody knows; while the store cannot be read, not even what is true of them.
  if (commit == Commit::not_known) return;
  tell_all_members(outcome.delivery);
}

void Turns::tell_all_members(Delivery& delivery) const {
  delivery.members = {state_.members.begin(), state_.members.end()};
  delivery.all_members = true;
}

Delivery Turns::delivery(const cluster::Effects& effects, bool watched, bool jobs_later) {
  Delivery delivery;
  if (!watched) {
    to_show_.clear();
    return delivery;
  }
  for (const auto& id : jobs_later ? std::set<cluster::JobId>() : std::exchange(to_show_, {})) {
    // That one is not kept any longer is no news of it.
    if (const auto job = state_.jobs.find(id); job != state_.jobs.end())
      delivery.jobs.push_back({id, job->second.finished(), wire::job_json(state_, job->second, false),
                               job->second.spec.queue, job->second.spec.user});
  }
  for (const auto& name : effects.nodes) {
    const auto node = state_.nodes.find(name);
    delivery.nodes.push_back(node == state_.nodes.end() ? wire::removed_node_json(name)
                                                        : wire::node_json(state_, node->second));
  }
  return delivery;
}

}  // namespace tutti::driver
