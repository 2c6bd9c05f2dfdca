#include <algorithm>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

constexpr std::int32_t master_port_min = 20'000;  // below the ports that systems hand out by themselves
constexpr std::int32_t master_port_count = 10'000;

std::string describe_exit(const Job& job, std::int32_t rank, const RankStatus& status) {
  const std::string who =
      "rank " + std::to_string(rank) + " on node " + job.places[static_cast<std::size_t>(rank)].node;
  if (status.vanished) return who + ": " + status.detail;
  const std::string how = status.exit_code > 128
                              ? "was ended by signal " + std::to_string(status.exit_code - 128)
                              : "exited with " + std::to_string(status.exit_code);
  return who + " " + how + (status.detail.empty() ? "" : "; " + status.detail);
}

}  // namespace

// The plan was made from a snapshot: a placement becomes truth only if there is still room for all of it.
void Machine::on(const Planned& event) {
  if (event.generation != state_.index.generation()) {
    effects_.schedule = true;  // nodes came or changed since: its numbers mean others now
    return;
  }
  for (const sched::Stop& stopped : event.plan.stops) stop(stopped);
  ArrayRoom array_room(state_);
  for (const sched::Start& planned : event.plan.starts) {
    Job* job = find(planned.job);
    if (job == nullptr || job->finished() || job->placed() || job->attempt != planned.attempt) continue;
    if (!waits_for(state_, *job).empty() || !array_room.take(*job)) continue;
    const sched::Room& room = state_.index.room(state_);
    const sched::Shape& shape = job->spec.shape;
    if (sched::runs_with(shape, static_cast<std::size_t>(planned.places.ranks())) &&
        room.fits(shape, planned.places)) {
      start(*job, room.expand(shape, planned.places));
    } else {
      effects_.schedule = true;
    }
  }
  state_.index.planned(event.plan);
}

// The gang is told, saves its work within its grace period, and goes back to its place in the queue.
void Machine::stop(const sched::Stop& planned) {
  Job* job = find(planned.job);
  if (job == nullptr || !job->placed() || job->attempt != planned.attempt) return;
  end(*job, EndCause::preempted, planned.why);
}

void Machine::start(Job& job, const std::vector<RankPlace>& places) {
  job.holds = true;
  job.places = places;
  job.ranks.assign(places.size(), {});
  job.state = JobState::starting;
  job.started_at = now_;
  job.saved_at = {};
  job.reason = job.last_end.empty() ? "" : "started again: " + job.last_end;
  job.ending = EndCause::none;
  job.master_port = free_port(job, state_.nodes.at(places.front().node).address);
  touch(job);
  std::map<NodeName, std::vector<std::int32_t>> by_node;
  for (std::size_t rank = 0; rank < places.size(); ++rank)
    by_node[places[rank].node].push_back(static_cast<std::int32_t>(rank));
  for (auto& [node, ranks] : by_node)
    effects_.sends.push_back(StartRanks{node, job.id, job.attempt, std::move(ranks)});
}

// Unique among the gangs whose first rank has the same address, and different from attempt to attempt. Should
// there be more gangs than ports on one address, which takes thousands on one node, they share.
std::int32_t Machine::free_port(const Job& job, const std::string& address) const {
  const std::uint64_t wanted = job.id.number() + static_cast<std::uint64_t>(job.attempt) * 97;
  auto offset = static_cast<std::int32_t>(wanted % master_port_count);
  for (std::int32_t tried = 0; tried < master_port_count; ++tried) {
    if (!state_.index.port_taken(address, master_port_min + offset)) break;
    offset = (offset + 1) % master_port_count;
  }
  return master_port_min + offset;
}

void Machine::on(const Reported& event) { apply(event.node, event.rank); }

// A report about the running attempt moves it on; about anything else it is answered, never believed.
void Machine::apply(const NodeName& node, const RankReport& report) {
  if (report.status.state == RankState::exited) remove_stray(node, report);
  Job* job = find(report.job);
  const bool current = job != nullptr && job->placed() && job->attempt == report.attempt &&
                       report.rank >= 0 && static_cast<std::size_t>(report.rank) < job->places.size() &&
                       job->places[static_cast<std::size_t>(report.rank)].node == node;
  if (!current) return answer_stale(node, report);
  const RankStatus& known = job->ranks[static_cast<std::size_t>(report.rank)];
  if (known.vanished && report.status.state != RankState::exited) return answer_stale(node, report);
  // A running rank may say what keeps it waiting, and take it back.
  const bool same = report.status.state == RankState::started && known.state == RankState::started;
  if (same && (report.status.detail != known.detail || report.status.saved_at != known.saved_at))
    return note(*job, report.rank, report.status);
  // States only move forward: a late or doubled message changes nothing.
  if (report.status.state <= known.state) return;
  set_rank(*job, report.rank, report.status);
}

void Machine::note(Job& job, std::int32_t rank, const RankStatus& status) {
  job.ranks[static_cast<std::size_t>(rank)].detail = status.detail;
  job.ranks[static_cast<std::size_t>(rank)].saved_at = status.saved_at;
  // The folder may be older than the attempt, and a node's clock may be ahead.
  if (status.saved_at > job.started_at && status.saved_at > job.saved_at && status.saved_at <= now_)
    job.saved_at = status.saved_at;
  touch(job);
}

void Machine::answer_stale(const NodeName& node, const RankReport& report) {
  if (report.status.state == RankState::exited) {
    const Job* job = find(report.job);
    effects_.sends.push_back(
        ForgetRanks{node, report.job, report.attempt, job != nullptr && job->finished()});
  } else {
    effects_.sends.push_back(EndRanks{node, report.job, report.attempt, {report.rank}});
    if (Node* home = find(node); home != nullptr && home->strays.size() < strays_max) {
      home->strays.insert({report.job, report.attempt, report.rank});
      state_.index.changed(*home);
    }
  }
}

void Machine::remove_stray(const NodeName& node, const RankReport& report) {
  Node* home = find(node);
  if (home == nullptr || home->strays.erase({report.job, report.attempt, report.rank}) == 0) return;
  state_.index.changed(*home);
  if (home->strays.empty()) effects_.schedule = true;
}

void Machine::set_rank(Job& job, std::int32_t rank, RankStatus status) {
  status.vanished = status.vanished && status.state == RankState::exited;
  job.ranks[static_cast<std::size_t>(rank)] = status;
  touch(job);
  if (status.state == RankState::exited && status.vanished) {
    end(job, EndCause::node_lost, describe_exit(job, rank, status));
  } else if (status.state == RankState::exited && status.exit_code != 0) {
    if (job.ending == EndCause::none) job.exit_code = status.exit_code;
    end(job, EndCause::rank_failed, describe_exit(job, rank, status));
  }
  settle(job);
}

// The whole gang ends; the first cause decides what comes after.
void Machine::end(Job& job, EndCause cause, std::string reason) {
  if (job.ending == EndCause::rank_failed && cause == EndCause::node_lost) {
    // Ranks notice that a peer is gone before the controller knows that its whole node is: the node is the
    // cause.
    job.ending = cause;
    job.exit_code = 0;
    job.reason = std::move(reason);
    touch(job);
    return;
  }
  if (job.ending != EndCause::none) return;
  job.ending = cause;
  job.reason = std::move(reason);
  touch(job);
  send_end(job);
}

void Machine::send_end(const Job& job) {
  std::map<NodeName, std::vector<std::int32_t>> by_node;
  for (std::size_t rank = 0; rank < job.places.size(); ++rank) {
    if (job.ranks[rank].state != RankState::exited)
      by_node[job.places[rank].node].push_back(static_cast<std::int32_t>(rank));
  }
  for (auto& [node, ranks] : by_node)
    effects_.sends.push_back(EndRanks{node, job.id, job.attempt, std::move(ranks)});
}

// What follows from the ranks' states: running when all have started, over when all have ended.
void Machine::settle(Job& job) {
  const auto all = [&](auto test) { return std::all_of(job.ranks.begin(), job.ranks.end(), test); };
  if (!all([](const RankStatus& rank) { return rank.state == RankState::exited; })) {
    const bool started = all([](const RankStatus& rank) { return rank.state != RankState::assigned; });
    if (started && job.state == JobState::starting) job.state = JobState::running;
    return;
  }
  switch (job.ending) {
    case EndCause::none:
      return finish(job, JobState::succeeded, "");
    case EndCause::cancelled:
      return finish(job, JobState::cancelled, job.reason);
    case EndCause::time_limit:
      return finish(job, JobState::failed, job.reason);
    case EndCause::drained:
      return requeue(job);
    case EndCause::preempted:
      ++job.preemptions;
      return requeue(job);
    case EndCause::rank_failed:
      if (++job.failures <= job.spec.restart_on_failure) return requeue(job);
      return finish(job, JobState::failed, job.reason);
    case EndCause::node_lost:
      if (++job.losses <= job.spec.restarts) return requeue(job);
      return finish(job, JobState::failed,
                    job.reason + "; it was restarted " + std::to_string(job.spec.restarts) +
                        " times, which is its limit");
  }
}

void Machine::finish(Job& job, JobState state, std::string reason) {
  end_job(job, state, std::move(reason));
  if (state != JobState::succeeded) cancel_dependents({job.id});
}

void Machine::end_job(Job& job, JobState state, std::string reason) {
  release(job, true);
  job.state = state;
  job.reason = std::move(reason);
  job.finished_at = now_;
  if (state == JobState::succeeded) job.exit_code = 0;
  if (state != JobState::succeeded && job.exit_code == 0) job.exit_code = 1;
  touch(job);
  effects_.schedule = true;
}

// What needs the success of a job that had none will never start, nor will what needs the success of that. A
// job comes after jobs that were there before it, so one walk in the order of ids finds them all. The jobs
// come in that order too.
void Machine::cancel_dependents(const std::vector<JobId>& without_success) {
  if (without_success.empty()) return;
  std::map<JobId, JobId> doomed;  // and by whom
  for (const JobId id : without_success) doomed.emplace(id, id);
  for (auto at = state_.active.upper_bound(without_success.front()); at != state_.active.end(); ++at) {
    const Job& waiting = state_.jobs.at(*at);
    if (waiting.placed()) continue;
    for (const Dependency& dependency : waiting.spec.after) {
      if (dependency.success && doomed.contains(dependency.job)) doomed.emplace(*at, dependency.job);
    }
  }
  for (const JobId id : without_success) doomed.erase(id);
  for (const auto& [id, by] : doomed) {
    const std::string how(name_of(state_.jobs.at(by).state));
    end_job(state_.jobs.at(id), JobState::cancelled, "job " + by.text() + ", whose success it needs, " + how);
  }
}

void Machine::requeue(Job& job) {
  release(job, false);
  ++job.attempt;
  job.state = JobState::restarting;
  job.exit_code = 0;
  job.last_end = job.reason;
  job.reason = "waits to start again: " + job.last_end;
  job.queued_at = now_;
  touch(job);
  effects_.schedule = true;
}

// The end of the attempt is about to be stored: its nodes need not report it any more. What follows says what
// becomes of the job, and touches it.
void Machine::release(Job& job, bool job_ended) {
  if (!job.placed()) return;
  for (const NodeName& node : nodes_of(job)) {
    if (!state_.nodes.at(node).lost)
      effects_.sends.push_back(ForgetRanks{node, job.id, job.attempt, job_ended});
  }
  job.served += static_cast<double>(gpu_share_total(job)) / sched::whole_share *
                std::chrono::duration<double>(now_ - job.started_at).count();
  job.holds = false;
  job.ending = EndCause::none;
}

}  // namespace tutti::cluster
