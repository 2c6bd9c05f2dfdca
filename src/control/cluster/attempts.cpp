#include <algorithm>
#include <optional>
#include <utility>

#include "base/exit_codes.hpp"
#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

// Below the ports that systems hand out by themselves, and above those that agents keep (agent/ports.hpp).
constexpr std::int32_t master_port_min = 25'000;
constexpr std::int32_t master_port_count = 5'000;
constexpr std::int32_t port_tries_max = 100;
constexpr std::uint64_t other_cluster_stride = 2'654'435'761;  // spreads neighbouring numbers

constexpr std::int32_t signal_base = 128;

// No older copy of a store lacks so many attempts of one job: whoever says so is wrong, and would use up the
// numbers.
constexpr std::int32_t attempts_passed_over_max = 1'000;

std::string describe_exit(const Job& job, std::int32_t rank, const RankStatus& status) {
  const std::string who =
      "rank " + std::to_string(rank) + " on node " + job.places[static_cast<std::size_t>(rank)].node;
  if (status.vanished || status.node_fault || status.stopped) return who + ": " + status.detail;
  const std::string how = status.by_signal
                              ? "was ended by signal " + std::to_string(status.exit_code - signal_base)
                              : "exited with " + std::to_string(status.exit_code);
  return who + " " + how + (status.detail.empty() ? "" : "; " + status.detail);
}

// Those that are chosen. Ranks of one node are neighbours: a node is looked up once for all of them.
template <class Chosen>
std::map<NodeName, std::vector<std::int32_t>> ranks_by_node(const Job& job, Chosen chosen) {
  std::map<NodeName, std::vector<std::int32_t>> by_node;
  std::vector<std::int32_t>* here = nullptr;
  for (std::size_t rank = 0; rank < job.places.size(); ++rank) {
    if (rank == 0 || job.places[rank].node != job.places[rank - 1].node) here = nullptr;
    if (!chosen(job.ranks[rank])) continue;
    if (here == nullptr) here = &by_node[job.places[rank].node];
    here->push_back(static_cast<std::int32_t>(rank));
  }
  return by_node;
}

// A rank that says that another attempt would end as this one did, whichever rank was heard first, or whose
// program is not there. What has saved something has run: then its program is missing on some node only, and
// the next attempt may find another one.
std::optional<std::int32_t> rank_that_ended_for_good(const Job& job) {
  if (job.spec.restart_on_failure == 0) return std::nullopt;
  const auto found = std::find_if(job.ranks.begin(), job.ranks.end(), [&job](const RankStatus& rank) {
    return rank.state == RankState::exited && !rank.vanished &&
           (rank.exit_code == exit_final || (rank.no_program && !job.has_saved));
  });
  if (found == job.ranks.end()) return std::nullopt;
  return static_cast<std::int32_t>(found - job.ranks.begin());
}

// Its work was done before anybody told it to end: that it was to move, to make way or to end in time comes
// too late.
bool was_done_before_it_was_told(const Job& job) {
  switch (job.ending) {
    case EndCause::time_limit:
    case EndCause::drained:
    case EndCause::preempted:
    case EndCause::stopped:
      return std::all_of(job.ranks.begin(), job.ranks.end(), [](const RankStatus& rank) {
        return rank.state == RankState::exited && rank.told == Told::no && rank.exit_code == 0 &&
               !rank.vanished && !rank.node_fault && !rank.stopped;
      });
    case EndCause::none:
    case EndCause::cancelled:
    case EndCause::killed:
    case EndCause::rank_failed:
    case EndCause::node_lost:
    case EndCause::node_fault:
    case EndCause::withheld:
      return false;
  }
  return false;
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
    if (must_wait(state_, *job)) continue;
    if (const auto secrets = secrets_of(state_, job->spec); !secrets) {
      withhold(*job, secrets.error().message());
      touch(*job);
      effects_.schedule = true;  // others may have its room
      continue;
    }
    if (!array_room.take(*job)) continue;
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

void Machine::start(Job& job, std::vector<RankPlace> places) {
  job.holds = true;
  job.attempt = std::max(job.attempt, job.attempt_told + 1);
  job.places = std::move(places);
  job.ranks.assign(job.places.size(), {});
  job.state = JobState::starting;
  job.started_at = now_;
  job.running_at = {};
  job.witness = -1;
  job.witness_since = {};
  job.ended_at = {};
  job.told_at = {};
  job.saved_at = {};
  job.attempt_losses = 0;
  job.reason = job.last_end.empty() ? "" : "started again: " + job.last_end;
  job.ending = EndCause::none;
  job.master_port = take_port(job, state_.nodes.at(job.places.front().node));
  touch(job);
  for (auto& [node, ranks] : ranks_by_node(job, [](const RankStatus&) { return true; }))
    effects_.sends.push_back(StartRanks{node, job.id, job.attempt, std::move(ranks)});
  end_strays(job);
}

// One that the agent of rank 0 has found free and keeps, as long as it has told of some.
std::int32_t Machine::take_port(const Job& job, Node& node) {
  while (!node.ports.empty()) {
    const std::int32_t port = node.ports.back();
    node.ports.pop_back();
    if (!state_.index.port_taken(node.address, port)) return port;
  }
  return guess_port(job, node.address);
}

// Unique among the gangs whose first rank has the same address, different from attempt to attempt and from
// cluster to cluster; the agent looks whether it is free. Where many in a row are taken, which takes
// thousands of gangs on one address, they share.
std::int32_t Machine::guess_port(const Job& job, const std::string& address) const {
  std::uint64_t wanted = job.id.number() + static_cast<std::uint64_t>(job.attempt) * 97;
  for (const char letter : state_.cluster_id)
    wanted = wanted * 31 + static_cast<unsigned char>(letter) * other_cluster_stride;
  auto offset = static_cast<std::int32_t>(wanted % master_port_count);
  for (std::int32_t tried = 0; tried < port_tries_max; ++tried) {
    if (!state_.index.port_taken(address, master_port_min + offset)) break;
    offset = (offset + 1) % master_port_count;
  }
  return master_port_min + offset;
}

// Whoever reports is there, also while its heartbeats wait behind its reports.
void Machine::on(const Reported& event) {
  if (Node* node = find(event.node); node != nullptr && !node->lost) {
    node->heard_at = now_;
    node->doubted = false;
  }
  for (const RankReport& report : event.ranks) apply(event.node, report);
}

// A report about the running attempt moves it on; about anything else it is answered, never believed.
void Machine::apply(const NodeName& node, const RankReport& report, Instant end_min) {
  if (report.status.state == RankState::exited) remove_stray(node, report);
  Job* job = find(report.job);
  const bool current = job != nullptr && job->placed() && job->attempt == report.attempt &&
                       report.rank >= 0 && static_cast<std::size_t>(report.rank) < job->places.size() &&
                       job->places[static_cast<std::size_t>(report.rank)].node == node;
  if (job != nullptr) pass_over_attempts(*job, report.attempt);
  if (!current) return answer_stale(node, report);
  const RankStatus& known = job->ranks[static_cast<std::size_t>(report.rank)];
  if (known.vanished && report.status.state != RankState::exited) return answer_stale(node, report);
  hear_how_long(*job, report);
  // A running rank may say what keeps it waiting, and take it back.
  const bool same = report.status.state == RankState::started && known.state == RankState::started;
  if (same && (report.status.detail != known.detail || report.status.saved_at != known.saved_at))
    return note(*job, report.rank, report.status);
  // States only move forward: a late or doubled message changes nothing.
  if (report.status.state <= known.state) return;
  const bool had_started = known.state == RankState::started;
  set_rank(*job, report.rank, report.status, report.ended_ago, had_started ? end_min : Instant());
}

// The store is an older copy, and a later attempt than any that it knows has run: the next one comes after
// that, because checkpoints are fenced by the number of the attempt and no rank runs twice. It is stored
// before the node is told to forget it.
void Machine::pass_over_attempts(Job& job, std::int32_t told) {
  if (job.finished() || told <= job.attempt || told <= job.attempt_told) return;
  if (told - job.attempt > attempts_passed_over_max) return;
  job.attempt_told = told;
  effects_.jobs.insert(job.id);
}

// A rank may say something new at every moment, and an agent that there is something new: it is stored with
// the next tick that is due, and told again after a crash.
void Machine::note(Job& job, std::int32_t rank, const RankStatus& status) {
  // An agent that has come back tells of its ranks before it has looked at what they say: a replica that was
  // ready is so until it says something else.
  if (!job.spec.service || !status.detail.empty()) say(job, rank, status.detail);
  const Instant before = std::exchange(job.ranks[static_cast<std::size_t>(rank)].saved_at, status.saved_at);
  state_.noted.insert(job.id);
  derive_replica(state_, job, now_);
  if (status.saved_at != Instant()) job.has_saved = true;
  // The folder may be older than the attempt, and the clock of whose disk it is may be wrong; but one that
  // has changed again since has changed now.
  const bool again = before != Instant() && status.saved_at > before;
  const bool credible = status.saved_at > job.started_at && status.saved_at <= now_;
  const Instant saved_at = again && !credible ? now_ : status.saved_at;
  if (saved_at <= job.started_at || saved_at <= job.saved_at || saved_at > now_) return;
  job.saved_at = saved_at;
  derive(state_, job, now_);
}

void Machine::say(Job& job, std::int32_t rank, std::string detail) {
  std::string& said = job.ranks[static_cast<std::size_t>(rank)].detail;
  std::size_t& bytes = state_.tallies.at(job.id).detail_bytes;
  bytes -= said.size();
  if (bytes + detail.size() > job_details_bytes_max) detail.clear();
  bytes += detail.size();
  said = std::move(detail);
}

void Machine::store_notes() {
  const bool due = now_ >= state_.notes_due || state_.notes_due - now_ > note_every;
  if (!due || state_.noted.empty()) return;
  state_.notes_due = now_ + note_every;
  for (const JobId id : std::exchange(state_.noted, {})) {
    if (state_.jobs.contains(id)) effects_.jobs.insert(id);
  }
}

// What an attempt that was given up saves in its grace period the next one can go on with. Beside that, or
// when the job has ended, it would only be in the way, for up to a day. So it would while the job waits: for
// this very node perhaps, which takes no work before it has ended.
bool Machine::is_past_saving(const Stray& stray) {
  const Job* job = find(stray.job);
  if (job == nullptr) return false;
  if (job->placed()) return job->attempt != stray.attempt || job->ending == EndCause::killed;
  return job->finished() || now_ - job->queued_at > stray_time_max;
}

void Machine::add_stray(Node& node, const Stray& stray) {
  node.strays.insert(stray);
  state_.with_strays.insert(node.name);
}

void Machine::end_strays(const Job& job) {
  for (const NodeName& name : state_.with_strays) {
    const Node* node = find(name);
    if (node == nullptr || node->lost) continue;  // it is told when it is back
    for (auto stray = node->strays.lower_bound({.job = job.id, .attempt = 0, .rank = 0});
         stray != node->strays.end() && stray->job == job.id; ++stray) {
      if (is_past_saving(*stray))
        effects_.sends.push_back(EndRanks{name, job.id, stray->attempt, {stray->rank}, true});
    }
  }
}

// They are told again from time to time, until the node has told their end.
void Machine::end_late_strays() {
  const bool due = now_ >= state_.strays_due || state_.strays_due - now_ > strays_told_every;
  if (!due) return;
  state_.strays_due = now_ + strays_told_every;
  std::erase_if(state_.with_strays, [this](const NodeName& name) {
    const Node* node = find(name);
    return node == nullptr || node->strays.empty();
  });
  for (const NodeName& name : state_.with_strays) {
    const Node& node = state_.nodes.at(name);
    if (node.lost) continue;
    for (const Stray& stray : node.strays) {
      if (is_past_saving(stray))
        effects_.sends.push_back(EndRanks{name, stray.job, stray.attempt, {stray.rank}, true});
    }
  }
}

void Machine::answer_stale(const NodeName& node, const RankReport& report) {
  if (report.status.state == RankState::exited) {
    const Job* job = find(report.job);
    effects_.sends.push_back(
        ForgetRanks{node, report.job, report.attempt, job != nullptr && job->finished()});
  } else {
    const Stray stray{report.job, report.attempt, report.rank};
    effects_.sends.push_back(
        EndRanks{node, report.job, report.attempt, {report.rank}, is_past_saving(stray)});
    if (Node* home = find(node); home != nullptr && home->strays.size() < strays_max) {
      add_stray(*home, stray);
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

void Machine::set_rank(Job& job, std::int32_t rank, RankStatus status, Duration ended_ago, Instant end_min) {
  status.vanished = status.vanished && status.state == RankState::exited;
  if (status.state != RankState::exited) status.told = Told::unknown;
  status.stopped = status.stopped && status.state == RankState::exited && !status.vanished;
  status.node_fault = status.node_fault && status.state == RankState::exited && !status.vanished;
  status.no_room = status.no_room && status.node_fault;
  status.blameless = status.blameless && status.node_fault;
  status.by_signal = status.by_signal && status.state == RankState::exited && status.exit_code > signal_base;
  status.no_program = status.no_program && status.state == RankState::exited && !status.vanished &&
                      !status.node_fault && status.exit_code != 0;
  // A start that was refused while the attempt was ended already tells as much about the node.
  const NodeName& home = job.places[static_cast<std::size_t>(rank)].node;
  const bool at_fault = status.node_fault && !status.no_room && !status.blameless;
  if (at_fault && blame_node(home, job, status.detail)) ++job.attempt_losses;
  if (status.state == RankState::started) credit_node(home);
  RankStatus& known = job.ranks[static_cast<std::size_t>(rank)];
  RankTally& tally = state_.tallies.at(job.id);
  if (known.state == RankState::assigned && status.state != RankState::assigned) --tally.to_start;
  if (known.state != RankState::exited && status.state == RankState::exited) --tally.to_end;
  say(job, rank, status.detail);
  std::string said = std::move(known.detail);
  known = status;
  known.detail = std::move(said);
  // That a rank has started need not be stored at once: its agent tells it again, and gangs are large. When
  // the last has, the job is.
  if (known.state == RankState::exited) {
    job.ended_at =
        std::max(job.ended_at, std::min(now_, std::max({job.started_at, end_min, now_ - ended_ago})));
    effects_.jobs.insert(job.id);
  } else {
    state_.noted.insert(job.id);
  }
  if (status.state == RankState::exited && status.vanished) {
    end(job, EndCause::node_lost, describe_exit(job, rank, status));
  } else if (status.stopped) {
    end(job, EndCause::stopped, describe_exit(job, rank, status));
  } else if (status.node_fault) {
    end(job, EndCause::node_fault, describe_exit(job, rank, status));
  } else if (status.told == Told::yes && job.ending == EndCause::none) {
    // Not by this controller: its store may be older than that, or the node was about to join another
    // cluster.
    end(job, EndCause::stopped,
        describe_exit(job, rank, status) + "; it had been told to end, for a reason that is not known here");
  } else if (status.state == RankState::exited && status.exit_code != 0) {
    if (job.ending == EndCause::none) {
      job.exit_code = status.exit_code;
      if (job.ended_at - job.started_at < quick_failure) state_.blame.failed_quickly(home, job);
    }
    end(job, EndCause::rank_failed, describe_exit(job, rank, status));
  }
  settle(job);
}

// The whole gang ends; the first cause decides what comes after.
void Machine::end(Job& job, EndCause cause, std::string reason) {
  const bool from_node =
      cause == EndCause::node_lost || cause == EndCause::node_fault || cause == EndCause::stopped;
  if (job.ending == EndCause::rank_failed && from_node) {
    // Ranks notice that a peer is gone or never came before the controller knows that its whole node is, or
    // that it could not start it: the node is the cause.
    job.ending = cause;
    job.exit_code = 0;
    job.reason = std::move(reason);
    touch(job);
    return;
  }
  if (job.ending != EndCause::none) return;
  job.ending = cause;
  // Who is told again has no more time than before.
  if (job.told_at == Instant()) job.told_at = now_;
  job.reason = std::move(reason);
  touch(job);
  send_end(job);
}

void Machine::send_end(const Job& job) {
  const auto runs = [](const RankStatus& rank) { return rank.state != RankState::exited; };
  for (auto& [node, ranks] : ranks_by_node(job, runs))
    effects_.sends.push_back(
        EndRanks{node, job.id, job.attempt, std::move(ranks), job.ending == EndCause::killed});
}

// What follows from the ranks' states: running when all have started, over when all have ended.
void Machine::settle(Job& job) {
  const RankTally& tally = state_.tallies.at(job.id);
  if (tally.to_end > 0) {
    if (tally.to_start == 0 && job.state == JobState::starting) {
      job.state = JobState::running;
      job.running_at = now_;
      if (job.ending == EndCause::none) state_.blame.forget_refusals(job);
      touch(job);
    }
    return;
  }
  if (was_done_before_it_was_told(job)) job.ending = EndCause::none;
  note_end(job);
  switch (job.ending) {
    case EndCause::none:
      return finish(job, JobState::succeeded, "");
    case EndCause::cancelled:
    case EndCause::killed:
      return finish(job, JobState::cancelled, job.reason);
    case EndCause::time_limit:
      return finish(job, JobState::failed, job.reason);
    case EndCause::drained:
    case EndCause::stopped:
      return requeue(job);
    case EndCause::preempted:
      ++job.preemptions;
      return requeue(job);
    case EndCause::withheld:
      requeue(job);
      withhold(job, job.last_end);
      return touch(job);
    case EndCause::rank_failed:
      if (const auto rank = rank_that_ended_for_good(job)) {
        const RankStatus& last = job.ranks[static_cast<std::size_t>(*rank)];
        job.exit_code = last.exit_code;
        return finish(job, JobState::failed,
                      describe_exit(job, *rank, last) +
                          (last.no_program ? "; no restart would change that" : "; it asks for no restart"));
      }
      if (++job.failures <= job.spec.restart_on_failure) return restart(job);
      return finish(job, JobState::failed, job.reason);
    case EndCause::node_fault:
      return restart(job);
    case EndCause::node_lost:
      if (++job.losses <= job.spec.restarts) return restart(job);
      return finish(job, JobState::failed,
                    job.reason + "; it was restarted " + std::to_string(job.spec.restarts) +
                        " times, which is its limit");
  }
}

void Machine::finish(Job& job, JobState state, std::string reason) {
  note_replica_end(job, state, reason);
  job.finished_at = job.placed() ? job.ended_at : now_;
  release(job, true);
  job.state = state;
  job.reason = std::move(reason);
  effects_.ended.insert(job.id);
  end_strays(job);
  if (state == JobState::succeeded) job.exit_code = 0;
  if (state != JobState::succeeded && job.exit_code == 0) job.exit_code = 1;
  touch(job);
  effects_.schedule = true;
}

// What needs the success of a job that had none will never start, nor will what needs the success of that: a
// job that ends dooms its followers, which come after it in the order of ids.
void Machine::on(const EndDoomed&) {
  const auto& doomed = state_.index.doomed();
  for (std::size_t ended = 0; ended < doomed_per_step_max && !doomed.empty(); ++ended) {
    const auto [id, by] = *doomed.begin();
    const Job* before = find(by);
    const std::string end = before == nullptr ? "did not succeed" : std::string(name_of(before->state));
    finish(state_.jobs.at(id), JobState::cancelled, "job " + by.text() + ", whose success it needs, " + end);
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
  hold_if_deadly(job);
  hold_if_nobody_can_start(job);
  go_where_there_is_room(job);
  touch(job);
  effects_.schedule = true;
}

// The end of the attempt is about to be stored: its nodes need not report it any more. What follows says what
// becomes of the job, and touches it. One that ends while it waits has left what it saved where it ran last.
void Machine::release(Job& job, bool job_ended) {
  if (!job.placed() && !job_ended) return;
  for (const NodeName& name : nodes_of(job)) {
    if (const Node* node = find(name); node != nullptr && !node->lost)
      effects_.sends.push_back(ForgetRanks{name, job.id, job.attempt, job_ended});
  }
  if (!job.placed()) return;
  job.served += static_cast<double>(gpu_share_total(job)) / sched::whole_share *
                std::chrono::duration<double>(job.ended_at - job.started_at).count();
  job.holds = false;
  job.ending = EndCause::none;
  job.told_at = {};
}

}  // namespace tutti::cluster
