#include "control/cluster/blame.hpp"

#include <algorithm>
#include <utility>

#include "base/exit_codes.hpp"
#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

constexpr std::size_t kinds_max = 1'000;
constexpr std::size_t nodes_of_kind_max = 100;
constexpr std::size_t kind_bytes_max = 300;

Duration doubled(Duration first, std::int32_t times, Duration most) {
  Duration pause = first;
  for (std::int32_t at = 0; at < times && pause < most; ++at) pause *= 2;
  return std::min(pause, most);
}

// Elements of one array are of one kind, and so are jobs of one user with the same name and command.
std::string kind_of_job(const Job& job) {
  if (job.spec.array) return "array " + job.spec.array->first.text();
  std::string kind = job.spec.user + "\n" + job.spec.name;
  for (const std::string& word : job.spec.command) {
    if (kind.size() > kind_bytes_max) break;
    kind += "\n" + word.substr(0, kind_bytes_max);
  }
  return kind;
}

// A rank says that what it needs is not there now, whichever rank was heard first.
bool asks_for_later(const Job& job) {
  return job.ending == EndCause::rank_failed &&
         std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankStatus& rank) {
           return rank.state == RankState::exited && !rank.vanished && rank.exit_code == exit_later;
         });
}

}  // namespace

Duration restart_pause(std::int32_t bad_ends) {
  if (bad_ends <= 1) return Duration::zero();
  return doubled(restart_pause_first, bad_ends - 2, restart_pause_max);
}

bool is_paused(const State& state, const Job& job) { return state.pauses.contains({job.not_before, job.id}); }

// ---- black holes

Blame::Tally& Blame::tally_of(const std::string& kind, const NodeName& node) {
  // Which one goes matters little: what still runs comes again.
  if (kinds_.size() >= kinds_max && !kinds_.contains(kind)) kinds_.erase(kinds_.begin());
  ByNode& nodes = kinds_[kind];
  if (nodes.size() >= nodes_of_kind_max && !nodes.contains(node)) nodes.erase(nodes.begin());
  return nodes[node];
}

void Blame::failed_quickly(const NodeName& node, const Job& job) {
  const std::string kind = kind_of_job(job);
  ++tally_of(kind, node).failed;
  auto& row = failures_[node];
  row.push_back({kind, job.spec.user});
  note_user(job);
  if (row.size() > black_hole_failures) row.erase(row.begin());
}

void Blame::note_user(const Job& job) {
  if (users_.size() < 2) users_.insert(job.spec.user);
}

void Blame::worked(const Job& job, const std::set<NodeName>& nodes) {
  const std::string kind = kind_of_job(job);
  note_user(job);
  for (const NodeName& node : nodes) {
    failures_.erase(node);
    ++tally_of(kind, node).worked;
  }
}

void Blame::forget(const NodeName& node) {
  failures_.erase(node);
  rows_.erase(node);
  for (auto& [kind, nodes] : kinds_) nodes.erase(node);
}

bool Blame::works_elsewhere(const std::string& kind, const NodeName& node,
                            const std::map<std::string, ByNode>& running) const {
  Tally elsewhere;
  for (const auto* all : {&kinds_, &running}) {
    const auto nodes = all->find(kind);
    if (nodes == all->end()) continue;
    for (const auto& [name, tally] : nodes->second) {
      if (name == node) continue;
      elsewhere.worked += tally.worked;
      elsewhere.failed += tally.failed;
    }
  }
  return elsewhere.worked > elsewhere.failed;
}

bool Blame::agree(const std::vector<Failure>& row, bool one_user_only) {
  return std::any_of(row.begin(), row.end(), [&](const Failure& failure) {
    return failure.user != row.front().user || (one_user_only && failure.kind != row.front().kind);
  });
}

std::vector<NodeName> Blame::black_holes(const State& state, Instant now) const {
  std::vector<NodeName> suspects;
  for (const auto& [node, row] : failures_) {
    if (row.size() >= black_hole_failures) suspects.push_back(node);
  }
  if (suspects.empty()) return {};
  std::map<std::string, ByNode> running;
  std::set<std::string> users = users_;
  for (const JobId id : state.holding) {
    const Job& job = state.jobs.at(id);
    if (users.size() < 2) users.insert(job.spec.user);
    if (job.ending != EndCause::none || now - job.started_at < quick_failure) continue;
    for (const NodeName& node : nodes_of(job)) ++running[kind_of_job(job)][node].worked;
  }
  std::vector<NodeName> found;
  for (const NodeName& node : suspects) {
    const auto& row = failures_.at(node);
    if (agree(row, users.size() < 2) && std::all_of(row.begin(), row.end(), [&](const Failure& failure) {
          return works_elsewhere(failure.kind, node, running);
        }))
      found.push_back(node);
  }
  return found;
}

// ---- what nodes cannot start

bool Blame::could_not_start(const NodeName& node, const Job& job) {
  const std::string kind = kind_of_job(job);
  const Attempt attempt(job.id, job.attempt);
  if (refusals_.size() >= kinds_max && !refusals_.contains(kind)) refusals_.erase(refusals_.begin());
  Refusals& refusals = refusals_[kind];
  if (refusals.last != attempt) ++refusals.attempts;
  refusals.last = attempt;
  if (refusals.nodes.size() < nodes_of_kind_max) refusals.nodes.insert(node);
  Row& row = rows_[node];
  if (row.kinds.size() < 2) row.kinds.insert(kind);
  if (std::exchange(row.last, attempt) == attempt) return false;
  return innocent_of(job).empty();
}

void Blame::forget_refusals(const Job& job) {
  if (!refusals_.empty()) refusals_.erase(kind_of_job(job));
}

std::vector<Blame::Innocent> Blame::innocent_of(const Job& job) const {
  const std::string kind = kind_of_job(job);
  const auto refusals = refusals_.find(kind);
  if (refusals == refusals_.end() || refusals->second.attempts < deadly_attempts_max) return {};
  std::vector<Innocent> nodes;
  for (const NodeName& node : refusals->second.nodes) {
    const auto row = rows_.find(node);
    // One that has no row has started something since.
    if (row == rows_.end()) {
      nodes.push_back({node, false});
    } else if (row->second.kinds == std::set{kind}) {
      nodes.push_back({node, row->second.set_aside});
    }
  }
  if (std::cmp_less(nodes.size(), deadly_nodes_max)) nodes.clear();
  return nodes;
}

// ---- nodes

bool Machine::blame_node(const NodeName& name, const Job& job, const std::string& why) {
  Node* node = find(name);
  if (node == nullptr || !state_.blame.could_not_start(name, job)) return false;
  if (++node->faults < node_faults_max || !node->fault.empty()) {
    touch(*node);
    return false;
  }
  set_aside(*node, "ranks of " + std::to_string(node->faults) +
                       " attempts in a row could not be started on it, the last one: " +
                       why.substr(0, why.find('\n')));
  state_.blame.was_set_aside(name);
  return true;
}

void Machine::credit_node(const NodeName& name) {
  Node* node = find(name);
  state_.blame.can_start(name);
  if (node == nullptr || node->faults == 0) return;
  node->faults = 0;
  touch(*node);
}

void Machine::set_aside(Node& node, std::string why) {
  node.fault = std::move(why);
  node.back_at = now_ + doubled(set_aside_first, node.times_set_aside, set_aside_max);
  ++node.times_set_aside;
  touch(node);
  effects_.schedule = true;
}

void Machine::take_back(Node& node) {
  node.fault.clear();
  // It is on probation: it need not fail so often again.
  node.faults = node_faults_max - 1;
  state_.blame.forget(node.name);
  touch(node);
  effects_.schedule = true;
}

void Machine::look_after_nodes() {
  std::size_t set_aside_now = 0;
  for (auto& [name, node] : state_.nodes) {
    if (node.fault.empty()) continue;
    // A clock that was set back must not keep it away for longer than the longest time.
    const bool due = now_ >= node.back_at || node.back_at - now_ > set_aside_max;
    if (due && !node.lost && node.illness.empty()) {
      take_back(node);
    } else {
      ++set_aside_now;
    }
  }
  const std::size_t allowed = std::max<std::size_t>(state_.nodes.size() / black_hole_part, 1);
  for (const NodeName& name : state_.blame.black_holes(state_, now_)) {
    Node* node = find(name);
    if (node == nullptr || node->lost || !node->fault.empty() || set_aside_now >= allowed) continue;
    set_aside(*node, std::to_string(black_hole_failures) + " jobs in a row failed on it within " +
                         format_duration(quick_failure) + ", and such jobs work elsewhere");
    ++set_aside_now;
  }
}

// ---- jobs

// All ranks of the attempt have ended: what that says about its nodes.
void Machine::note_end(const Job& job) {
  const bool well = job.ending == EndCause::none;
  const bool lasted = job.ended_at - job.started_at >= quick_failure && job.ending == EndCause::rank_failed;
  if (!well && !lasted) return;
  const auto nodes = nodes_of(job);
  state_.blame.worked(job, nodes);
  if (!well) return;
  for (const NodeName& name : nodes) {
    Node* node = find(name);
    if (node == nullptr || node->times_set_aside == 0 || !node->fault.empty()) continue;
    node->times_set_aside = 0;
    touch(*node);
  }
}

// The attempt ended badly, and another one is allowed: at once, later, or when somebody has looked at it.
void Machine::restart(Job& job) {
  const Duration lasted = job.ended_at - job.started_at;
  // It has waited by itself for what was not there: that it lasted does not mean that it worked.
  const bool later = asks_for_later(job);
  // What it saved is not lost: the next attempt comes further.
  if ((lasted >= stable_attempt && !later) || job.saved_at > job.started_at) job.bad_ends = 0;
  ++job.bad_ends;
  requeue(job);
  const Duration pause = restart_pause(job.bad_ends);
  if (pause == Duration::zero()) return;
  job.not_before = now_ + pause;
  state_.pauses.emplace(job.not_before, job.id);
  touch(job);
}

// What several nodes could not start, and they nothing else, is the job's own fault: they are taken back.
void Machine::hold_if_nobody_can_start(Job& job) {
  const auto innocent = state_.blame.innocent_of(job);
  if (innocent.empty()) return;
  job.held = "is held: " + std::to_string(innocent.size()) +
             " nodes could not start it, and that is all that is wrong with them; `tutti release " +
             job.id.text() + "` lets it start again";
  job.reason = job.held + "; " + job.last_end;
  for (const auto& [name, set_aside] : innocent) {
    Node* node = find(name);
    if (node == nullptr || node->faults == 0) continue;
    if (set_aside) {
      node->fault.clear();
      --node->times_set_aside;
    }
    node->faults = 0;
    state_.blame.can_start(name);
    touch(*node);
  }
}

// A clock that was set back must not put it off for longer.
bool Machine::may_have_room_by_now(const Job& job) const {
  return now_ >= job.too_small_at + no_room_kept || now_ < job.too_small_at;
}

// What a job ships may be larger than the disk of a node, and what it has saved may be on another one: that
// says nothing about the node, and the job is not tried there again for a while. When no other is left, a
// person has to make room, or the job smaller, or mount what is missing. One that is drained or lost for now
// is left: it may come back.
void Machine::go_where_there_is_room(Job& job) {
  if (may_have_room_by_now(job)) job.too_small.clear();
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    if (!job.ranks[rank].no_room) continue;
    job.too_small.insert(job.places[rank].node);
    job.too_small_at = now_;
  }
  if (!job.too_small.empty()) state_.room_asked_again.emplace(job.too_small_at + no_room_kept, job.id);
  if (job.too_small.empty() || !job.held.empty() || state_.index.ever_fits(state_, shape_of(job))) return;
  job.held =
      "is held: no node is left that could run it: " + job.last_end.substr(0, job.last_end.find('\n')) +
      "; `tutti release " + job.id.text() + "` lets it start again";
  job.reason = job.held;
}

// One that runs keeps its shape until it ends.
void Machine::ask_for_room_again() {
  auto& asked = state_.room_asked_again;
  while (!asked.empty()) {
    const auto [at, id] = *asked.begin();
    if (at > now_ && at - now_ <= no_room_kept) return;
    asked.erase(asked.begin());
    Job* job = find(id);
    if (job == nullptr || job->placed() || job->finished() || job->too_small.empty()) continue;
    if (!may_have_room_by_now(*job)) continue;
    job->too_small.clear();
    touch(*job);
    effects_.schedule = true;
  }
}

// It has come back or was started anew, and may have what it lacked.
void Machine::ask_for_room_again(const NodeName& node) {
  for (const auto& [at, id] : state_.room_asked_again) {
    Job* job = find(id);
    if (job == nullptr || job->placed() || job->finished() || job->too_small.erase(node) == 0) continue;
    touch(*job);
  }
}

// Whatever the attempt was ended for, nodes that were lost in it count.
void Machine::hold_if_deadly(Job& job) {
  if (job.ended_at - job.started_at >= stable_attempt) job.deadly_attempts = job.nodes_lost = 0;
  if (job.attempt_losses == 0) return;
  ++job.deadly_attempts;
  job.nodes_lost += job.attempt_losses;
  if (job.deadly_attempts < deadly_attempts_max || job.nodes_lost < deadly_nodes_max) return;
  job.held = "is held: " + std::to_string(job.nodes_lost) + " nodes were lost or set aside in " +
             std::to_string(job.deadly_attempts) + " of its last attempts; `tutti release " + job.id.text() +
             "` lets it start again";
  job.reason = job.held + "; " + job.last_end;
}

// One that would wait for longer than the longest pause was put off by a clock that has been set back since.
void Machine::wake_paused() {
  while (!state_.pauses.empty()) {
    const Instant first = state_.pauses.begin()->first;
    if (first > now_ && first - now_ <= restart_pause_max) return;
    state_.pauses.erase(state_.pauses.begin());
    effects_.schedule = true;
  }
}

Instant next_wake(const State& state, Instant now) {
  const auto paused = std::find_if(state.pauses.begin(), state.pauses.end(),
                                   [&](const auto& pause) { return pause.first > now; });
  const Instant planned = state.index.wake() > now ? state.index.wake() : sched::never;
  return paused == state.pauses.end() ? planned : std::min(planned, paused->first);
}

}  // namespace tutti::cluster
