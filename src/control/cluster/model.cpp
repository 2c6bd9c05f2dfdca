#include "control/cluster/machine.hpp"

namespace tutti::cluster {

namespace {

void list(std::set<JobId>& jobs, const Job& job, bool listed) {
  if (listed) {
    jobs.insert(job.id);
  } else {
    jobs.erase(job.id);
  }
}

bool is_held_back(const Job& job) {
  return !job.held.empty() || job.not_before != Instant() || !job.too_small.empty();
}

// The elements of an array were submitted together, so their ids follow each other from this one on.
Result<JobId> first_of_array(const State& state, JobId job) {
  const auto known = state.jobs.find(job);
  if (known == state.jobs.end()) return no_job(state, job);
  if (!known->second.spec.array)
    return invalid("job " + job.text() + " is not an element of an array").remedy("leave --array out");
  return known->second.spec.array->first;
}

bool is_element(const Job& job, JobId first) { return job.spec.array && job.spec.array->first == first; }

void derive_lists(State& state, const Job& job, Instant heard_at) {
  const bool was_active = state.active.contains(job.id);
  list(state.active, job, !job.finished());
  list(state.holding, job, job.placed());
  list(state.held_back, job, !job.finished() && is_held_back(job));
  if (!job.placed()) {
    state.tallies.erase(job.id);
  } else if (const auto at = state.tallies.lower_bound(job.id);
             at == state.tallies.end() || at->first != job.id) {
    state.tallies.emplace_hint(at, job.id, tally_of(job));
  }
  if (!job.finished() && !was_active) {
    state.bytes.comes(job);
    state.unfinished.add(job.spec.user, 1);
  }
  if (job.finished() && was_active) state.unfinished.remove(job.spec.user, 1);
  if (job.finished() && state.ended.add(job, heard_at)) {
    if (!was_active) state.bytes.comes(job);
    state.bytes.ends(job);
  }
}

}  // namespace

void derive(State& state, const Job& job, Instant now) {
  derive_lists(state, job, now);
  derive_replica(state, job, now);
  state.index.changed(state, job, now);
}

void derive(State& state, Instant now) {
  state.active.clear();
  state.holding.clear();
  state.held_back.clear();
  state.pauses.clear();
  state.room_asked_again.clear();
  state.noted.clear();
  state.submit_keys = {};
  state.blame = {};
  state.tallies.clear();
  state.unfinished = {};
  state.ended = {};
  state.bytes = {};
  state.asked.clear();
  for (const auto& [id, job] : state.jobs) {
    derive_lists(state, job, job.finished_at);
    if (!job.finished() && job.not_before > now) state.pauses.emplace(job.not_before, id);
    if (!job.too_small.empty()) state.room_asked_again.emplace(job.too_small_at + no_room_kept, id);
    if (!job.submit_key.empty()) state.submit_keys.add(job.spec.user, job.submit_key, id, job.submitted_at);
    state.next_job = std::max(state.next_job, id.number() + 1);
  }
  state.next_job_loaded = state.next_job;
  state.loaded_at = now;
  for (auto& [name, node] : state.nodes) {
    node.heard_at = now;
    node.greeted = false;
    node.reunited = false;
    node.doubted = false;
    node.asked_at = node.told_as_of = {};
    if (node.lost && node.lost_at == Instant()) node.lost_at = now;  // an older tutti did not note it
    node.strays.clear();
    node.ports.clear();
  }
  state.with_strays.clear();
  state.queues.try_emplace(default_queue, Queue{default_queue});
  state.index.rebuild(state, now);
  derive_fleets(state, now);
  state.fabric = std::make_shared<const Fabric>(only_between(*state.fabric, node_names(state)));
}

RankTally tally_of(const Job& job) {
  RankTally tally;
  for (const RankStatus& rank : job.ranks) {
    if (rank.state == RankState::assigned) ++tally.to_start;
    if (rank.state != RankState::exited) ++tally.to_end;
    tally.detail_bytes += rank.detail.size();
  }
  return tally;
}

QueueName parent_of(const QueueName& name) {
  const auto slash = name.rfind('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

sched::Shape shape_of(const Job& job) {
  sched::Shape shape = job.spec.shape;
  shape.avoid.assign(job.too_small.begin(), job.too_small.end());
  return shape;
}

std::set<NodeName> node_names(const State& state) {
  std::set<NodeName> names;
  for (const auto& [name, node] : state.nodes) names.insert(name);
  return names;
}

void keep_strays(State& fresh, const State& before) {
  if (before.revision > 0) {
    fresh.next_job_loaded = before.next_job_loaded;
    fresh.loaded_at = before.loaded_at;
  }
  for (auto& [name, node] : fresh.nodes) {
    if (const auto known = before.nodes.find(name); known != before.nodes.end())
      node.strays = known->second.strays;
    if (!node.strays.empty()) fresh.with_strays.insert(name);
  }
}

bool takes_work(const Node& node) {
  return !node.lost && !node.draining && node.fault.empty() && node.illness.empty() && node.greeted &&
         node.strays.empty();
}

NodeState node_state(const State& state, const Node& node) {
  if (node.lost) return NodeState::lost;
  if (!node.draining && node.fault.empty() && node.illness.empty()) return NodeState::ready;
  return state.index.jobs_on(node.name).empty() ? NodeState::drained : NodeState::draining;
}

std::string_view name_of(NodeState state) {
  switch (state) {
    case NodeState::ready:
      return "ready";
    case NodeState::draining:
      return "draining";
    case NodeState::drained:
      return "drained";
    case NodeState::lost:
      return "lost";
  }
  return "";
}

std::string_view name_of(JobState state) {
  switch (state) {
    case JobState::queued:
      return "queued";
    case JobState::starting:
      return "starting";
    case JobState::running:
      return "running";
    case JobState::restarting:
      return "restarting";
    case JobState::succeeded:
      return "succeeded";
    case JobState::failed:
      return "failed";
    case JobState::cancelled:
      return "cancelled";
  }
  return "";
}

std::string_view state_name(const Job& job) {
  return job.held.empty() || job.finished() ? name_of(job.state) : "held";
}

JobId asked_with(const Job& job) { return job.spec.array ? job.spec.array->first : job.id; }

const JobSpec* asked_under(const State& state, JobId first) {
  // Those that were asked for together have ids that follow each other.
  const auto at = state.jobs.lower_bound(first);
  return at != state.jobs.end() && asked_with(at->second) == first ? &at->second.spec : nullptr;
}

Error no_job(const State& state, JobId job) {
  if (job.number() > 0 && job.number() < state.next_job)
    return invalid("job " + job.text() + " is no longer kept")
        .remedy("it has ended; `tutti status` tells how many finished jobs are kept, and for how long");
  return invalid("there is no job " + job.text()).remedy("`tutti jobs --all` lists them");
}

Result<std::vector<JobId>> array_elements(const State& state, JobId job) {
  const auto first = first_of_array(state, job);
  if (!first) return first.error();
  std::vector<JobId> elements;
  // Those that ended long ago may be gone.
  for (auto at = state.jobs.lower_bound(*first); at != state.jobs.end(); ++at) {
    if (!is_element(at->second, *first)) break;
    elements.push_back(at->first);
  }
  return elements;
}

Result<std::vector<JobId>> array_elements_in(const std::set<JobId>& jobs, const State& state, JobId job) {
  const auto first = first_of_array(state, job);
  if (!first) return first.error();
  std::vector<JobId> elements;
  for (auto at = jobs.lower_bound(*first); at != jobs.end(); ++at) {
    if (!is_element(state.jobs.at(*at), *first)) break;
    elements.push_back(*at);
  }
  return elements;
}

std::set<NodeName> nodes_of(const Job& job) {
  std::set<NodeName> nodes;
  const NodeName* last = nullptr;
  for (const RankPlace& place : job.places) {
    if (last == nullptr || *last != place.node) nodes.insert(place.node);
    last = &place.node;
  }
  return nodes;
}

std::int32_t rank_count(const Job& job) {
  return job.places.empty() ? job.spec.shape.ranks : static_cast<std::int32_t>(job.places.size());
}

std::string reason_of(const Node& node) {
  if (!node.fault.empty())
    return node.fault + "; it is tried again after " + format_instant(node.back_at) +
           (node.illness.empty() ? "" : ", if this is over: " + node.illness);
  if (!node.illness.empty() || node.lost || node.strays.empty()) return node.illness;
  return "still runs ranks of job " + node.strays.begin()->job.text() +
         ", of an attempt that is over: it takes work when they have ended";
}

std::string reason_of(const State& state, const Job& job) {
  if (!job.finished() && !job.placed()) {
    if (std::string why = waits_for(state, job); !why.empty()) return why;
    if (const std::string* why = state.index.why_waiting(job.id)) return *why;
  }
  return job.reason;
}

std::int64_t gpu_share_total(const Job& job) {
  return std::int64_t{rank_count(job)} * job.spec.shape.gpu_share;
}

}  // namespace tutti::cluster
