// What is over and is not kept any longer: by age and number, or because somebody says so.
#include "control/cluster/retention.hpp"

#include <algorithm>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

bool is_over(Duration age, Duration age_max) { return age_max > Duration::zero() && age > age_max; }

std::size_t expired_per_step(std::size_t finished, std::size_t kept_max) {
  const std::size_t too_many = finished - std::min(finished, kept_max);
  return std::clamp(too_many / expired_share, expired_per_step_min, expired_per_step_max);
}

// Somebody waits for the job to end, and nothing that it writes while it ends may be lost.
bool ends_a_cancelled_job(const State& state, const RankReport& report) {
  if (report.status.state != RankState::exited) return false;
  const auto job = state.jobs.find(report.job);
  return job != state.jobs.end() &&
         (job->second.ending == EndCause::cancelled || job->second.ending == EndCause::killed);
}

std::size_t said_bytes_of(const Job& job) {
  std::size_t bytes = job.reason.size() + job.last_end.size() + job.held.size();
  for (const RankStatus& rank : job.ranks) bytes += rank.detail.size();
  return bytes;
}

}  // namespace

bool Ended::add(const Job& job) {
  const auto [entry, added] = entries_.try_emplace({job.finished_at, job.id});
  if (!added) return false;
  entry->second = said_bytes_of(job);
  said_bytes_ += entry->second;
  ranks_ += job.places.size();
  users_.add(job.spec.user, 1);
  return true;
}

void Ended::remove(const Job& job) {
  const auto entry = entries_.find({job.finished_at, job.id});
  if (entry == entries_.end()) return;
  said_bytes_ -= entry->second;
  ranks_ -= job.places.size();
  users_.remove(job.spec.user, 1);
  entries_.erase(entry);
}

bool frees_room(const State& state, const Event& event) {
  if (const auto* reported = std::get_if<Reported>(&event))
    return std::any_of(reported->ranks.begin(), reported->ranks.end(),
                       [&](const RankReport& report) { return ends_a_cancelled_job(state, report); });
  return std::holds_alternative<Cancel>(event) || std::holds_alternative<Drain>(event) ||
         std::holds_alternative<RemoveNode>(event) || std::holds_alternative<RemoveJobs>(event);
}

// Ids are counted on from the newest job, also after a restart: it stays until there is a newer one.
bool Machine::is_newest(JobId id) const { return state_.jobs.rbegin()->first == id; }

void Machine::drop(const Job& job) {
  const JobId id = job.id;
  const QueueUser who(job.spec.queue, job.spec.user);
  if (job.served > 0 && (state_.past_use.size() < past_use_max || state_.past_use.contains(who))) {
    state_.past_use[who].add(job.served, job.finished_at);
    effects_.past_use.insert(who);
  }
  effects_.jobs.insert(id);
  effects_.shown.erase(id);
  effects_.asked.insert(asked_with(job));
  state_.ended.remove(job);
  state_.bytes.goes(job);
  state_.jobs.erase(id);
}

void Machine::drop(const Node& node) {
  const NodeName name = node.name;
  effects_.nodes.insert(name);
  state_.nodes.erase(name);
  state_.blame.forget(name);
  state_.index.removed_node();
  Fabric left = only_between(*state_.fabric, node_names(state_));
  if (left.size() != state_.fabric->size()) {
    state_.fabric = std::make_shared<const Fabric>(std::move(left));
    effects_.fabric = true;
  }
  effects_.schedule = true;
}

std::size_t Machine::expire_jobs(const Retention& keep) {
  std::size_t dropped = 0;
  const std::size_t most = expired_per_step(state_.ended.jobs(), keep.jobs_max);
  const std::size_t bytes_before = state_.bytes.all();
  const auto& entries = state_.ended.entries();
  for (auto at = entries.begin(); at != entries.end() && dropped < most;) {
    if (bytes_before - state_.bytes.all() > expired_bytes_per_step_max) break;
    const auto [ended_at, id] = (at++)->first;
    if (now_ - ended_at < keep.jobs_age_min) break;
    const bool too_many = state_.ended.jobs() > keep.jobs_max || state_.ended.ranks() > kept_ranks_max ||
                          state_.bytes.finished() + state_.ended.said_bytes() > kept_bytes_max;
    if (!too_many && !is_over(now_ - ended_at, keep.jobs_age_max)) break;
    if (is_newest(id)) continue;
    drop(state_.jobs.at(id));
    ++dropped;
  }
  return dropped;
}

// One that a person drained stays: it would take work again if it came back as a new one.
void Machine::expire_nodes(const Retention& keep, std::size_t nodes_max) {
  std::vector<const Node*> due;
  for (const auto& [name, node] : state_.nodes) {
    if (due.size() == nodes_max) break;
    if (node.lost && !node.draining && is_over(now_ - node.lost_at, keep.nodes_age_max) &&
        state_.index.jobs_on(name).empty())
      due.push_back(&node);
  }
  for (const Node* node : due) drop(*node);
}

void Machine::on(const Expire& event) {
  state_.kept_jobs_max = event.keep.jobs_max;
  const std::size_t dropped = expire_jobs(event.keep);
  expire_nodes(event.keep, expired_per_step_min - std::min(dropped, expired_per_step_min));
}

void Machine::on(const RemoveNode& event) {
  const Node* node = find(event.node);
  if (node == nullptr)
    return fail(invalid("there is no node '" + event.node + "'").remedy("`tutti nodes` lists them"));
  if (!node->lost)
    return fail(invalid("node '" + event.node + "' is alive")
                    .remedy("drain it and end its agent; when it is lost it can be removed"));
  if (const auto& jobs = state_.index.jobs_on(event.node); !jobs.empty())
    return fail(invalid("node '" + event.node + "' has ranks of job " + jobs.begin()->text())
                    .remedy("wait until that gang has ended, or cancel it"));
  drop(*node);
}

// All of them or none; one that is gone already is no reason to keep the others.
void Machine::on(const RemoveJobs& event) {
  std::set<JobId> asked(event.jobs.begin(), event.jobs.end());
  std::erase_if(asked, [this](JobId id) { return find(id) == nullptr; });
  for (const JobId id : asked) {
    const Job* job = find(id);
    if (!job->finished())
      return fail(invalid("job " + id.text() + " has not ended").remedy("cancel it first"));
    if (is_newest(id))
      return fail(invalid("job " + id.text() + " is the newest")
                      .remedy("ids are counted on from it: it can be removed when there is a newer one"));
  }
  for (const JobId id : asked) drop(state_.jobs.at(id));
  effects_.reply = std::vector<JobId>(asked.begin(), asked.end());
}

}  // namespace tutti::cluster
