#include <algorithm>
#include <utility>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {

constexpr std::uint64_t ids_passed_over_max = 10'000'000;
// After the state was loaded: agents that were connected before come back within this.
constexpr Duration reunion_max = 1min;

// Both sides compare full state and converge: what the node runs and should not is ended, what it should run
// and does not know of is started, what has vanished is an end that the program did not cause.
void Machine::on(const Hello& event) {
  if (is_revoked(event.node)) return;  // its connection is cut, and this was under way
  auto [at, added] = state_.nodes.try_emplace(event.node);
  Node& node = at->second;
  const bool same = !added && !event.identity.empty() && node.identity == event.identity &&
                    now_ - state_.loaded_at <= reunion_max;
  const bool reunion = same && !node.greeted;
  // A disk takes its time to tell, and is heard once as well.
  const bool reunited = reunion || (same && node.reunited);
  Node fresh = node;
  fresh.name = event.node;
  fresh.location = event.location;
  fresh.address = event.address;
  fresh.agent_pid = event.agent_pid;
  fresh.inventory = event.inventory;
  fresh.lost = false;
  fresh.illness = event.illness;
  fresh.lacks = event.lacks;
  fresh.identity = event.identity;
  fresh.lost_at = {};
  const bool stored = !added && fresh == node;
  fresh.heard_at = now_;
  fresh.greeted = true;
  fresh.reunited = reunited && event.jobs_saved == 0;
  fresh.ports = event.ports;
  fresh.keeps = event.keeps;
  fresh.doubted = false;
  fresh.told_as_of = std::max(fresh.told_as_of, std::exchange(fresh.asked_at, {}));
  const Node before = std::exchange(node, std::move(fresh));
  state_.index.changed(before, node);
  if (!stored) touch(node);
  pass_over_ids(event, Memory::agent, event.jobs_seen, reunion);
  pass_over_ids(event, Memory::disk, event.jobs_saved, reunited);
  // Its agent may be another one than before, which has only what is on record of an end, and that may be the
  // rank's own word: while the node said that it runs it had not ended.
  for (const RankReport& report : event.ranks) apply(node.name, report, node.vouched_at);
  node.vouched_at = now_;
  std::set<Stray> told;
  for (const RankReport& report : event.ranks) told.insert({report.job, report.attempt, report.rank});
  ask_for_strays(told, node);
  for (const JobId id : std::set(state_.index.jobs_on(event.node)))
    compare(event.node, told, state_.jobs.at(id));
  ask_for_room_again(event.node);
  effects_.schedule = true;
}

// Before that nothing can be saved under its id.
bool Machine::has_begun(JobId id) {
  const Job* job = find(id);
  return job != nullptr && (job->placed() || job->attempt > 0 || job->started_at != Instant());
}

// An id that some node has seen, or under which something is saved on its disk, is never given out again:
// this store may be an older copy, and the folder of the agent, too. Nobody's word ends a job, though. One
// that was submitted since the start and has such an id could find the checkpoints of another one: it is held
// for a person to look at, and only on the word of an agent that this store knows, in the first moments, when
// those of an older copy are heard.
void Machine::pass_over_ids(const Hello& hello, Memory told_by, std::uint64_t seen, bool reunion) {
  if (hello.cluster != state_.cluster_id || seen < state_.next_job_loaded) return;
  if (seen >= state_.next_job) {
    // No older copy of a store lacks so many: whoever says so is wrong, and would use up the ids.
    if (seen - state_.next_job > ids_passed_over_max) return;
    state_.next_job = seen + 1;
    effects_.cluster = true;
  } else if (told_by == Memory::disk && has_begun(JobId(seen))) {
    return;  // given out since the start: its folder is on a disk that all of them see
  }
  // Else somebody has told the same before, whose word holds nothing.
  if (!reunion) return;
  const auto first = state_.active.lower_bound(JobId(state_.next_job_loaded));
  const auto last = state_.active.upper_bound(JobId(seen));
  for (const JobId id : std::vector(first, last)) {
    Job& job = state_.jobs.at(id);
    // The agent itself gives back what has run there before.
    if (job.placed() || job.attempt > 0 || !job.held.empty()) continue;
    job.held = "node " + hello.node + " has seen a job up to " + std::to_string(seen) +
               ": the store may be an older copy, and job " + id.text() +
               " would find what another one has left; cancel it and submit it again, or release it if the "
               "node is wrong";
    touch(job);
  }
}

// What was sent to the node before it was given up may still be under way: that a stray is not there yet does
// not mean that it will not come. The node is told to end it, and answers.
void Machine::ask_for_strays(const std::set<Stray>& told, Node& node) {
  for (auto at = node.strays.begin(); at != node.strays.end();) {
    const Stray stray = *at++;
    const Job* job = find(stray.job);
    const auto rank = static_cast<std::size_t>(stray.rank);
    const bool wanted = job != nullptr && job->placed() && job->attempt == stray.attempt &&
                        rank < job->ranks.size() && !job->ranks[rank].vanished;
    if (wanted) node.strays.erase(stray);
    if (!wanted && !told.contains(stray))
      effects_.sends.push_back(
          EndRanks{node.name, stray.job, stray.attempt, {stray.rank}, is_past_saving(stray)});
  }
  state_.index.changed(node);
}

void Machine::compare(const NodeName& node, const std::set<Stray>& told, Job& job) {
  if (!job.placed()) return;
  StartRanks missing{node, job.id, job.attempt, {}};
  std::vector<std::int32_t> vanished;
  const RankRun here = state_.index.ranks_on(node, job.id);
  for (std::int32_t rank = here.first; rank < here.first + here.count; ++rank) {
    const auto& status = job.ranks[static_cast<std::size_t>(rank)];
    if (status.state == RankState::exited || told.contains({job.id, job.attempt, rank})) continue;
    // One that was told to start and is not there: the start may still be under way to the node. It is sent
    // again, or, if the attempt is being ended, the end is, which the node answers.
    if (status.state == RankState::assigned) {
      if (job.ending == EndCause::none) missing.ranks.push_back(rank);
    } else {
      vanished.push_back(rank);
    }
  }
  RankStatus gone{RankState::exited, 0, "it vanished from node " + node, true};
  if (job.attempt_told > job.attempt) {
    // It was not lost: it ended in its time, and what came of that is what the store lacks.
    gone.detail = "a later attempt has run already: the controller's store is older than that";
    gone.vanished = false;
    gone.stopped = true;
  }
  for (const std::int32_t rank : vanished) {
    if (job.placed()) set_rank(job, rank, gone);
  }
  if (!job.placed()) return;
  if (!missing.ranks.empty()) effects_.sends.push_back(missing);
  if (job.ending != EndCause::none) send_end(job);
}

void Machine::on(const Heard& event) {
  Node* node = find(event.node);
  // A lost node is taken back only with all that it runs: it may still have ranks of attempts that are over.
  // So is one that was removed.
  if (node == nullptr || node->lost) {
    effects_.sends.emplace_back(AskHello{event.node});
  } else {
    node->heard_at = node->vouched_at = now_;
    node->doubted = false;
    node->kept = event.kept;
    if (node->illness == event.illness) return;
    node->illness = event.illness;
    touch(*node);
    effects_.schedule = true;
  }
}

void Machine::on(const PortsHeld& event) {
  if (Node* node = find(event.node); node != nullptr) node->ports = event.ports;
}

void Machine::lose(Node& node) {
  node.lost = true;
  node.lost_at = now_;
  touch(node);
  for (const JobId id : std::set(state_.index.jobs_on(node.name))) {
    Job& job = state_.jobs.at(id);
    bool counted = false;
    const RankRun here = state_.index.ranks_on(node.name, id);
    for (std::int32_t rank = here.first; rank < here.first + here.count && job.placed(); ++rank) {
      if (job.ranks[static_cast<std::size_t>(rank)].state == RankState::exited) continue;
      add_stray(node, {job.id, job.attempt, rank});
      if (!std::exchange(counted, true)) ++job.attempt_losses;
      set_rank(job, rank, {RankState::exited, 0, "node " + node.name + " was lost", true});
    }
  }
  effects_.schedule = true;
}

// Of many that fall silent at once the network of the controller is the likelier cause, or a loop of its own.
// Their last words are up to a heartbeat apart.
void Machine::judge_silence() {
  std::vector<Node*> silent;
  std::size_t others = 0;  // that were lost, or are doubted, within the same lease, or are about to be silent
  std::size_t known = 0;
  for (auto& [name, node] : state_.nodes) {
    const bool lost_lately = node.lost && now_ >= node.lost_at && now_ - node.lost_at <= lease;
    if (!node.lost || lost_lately) ++known;
    if (lost_lately) ++others;
    const Duration unheard = now_ - node.heard_at;
    if (node.lost || unheard <= lease - heartbeat_every) continue;
    if (unheard <= lease || (node.doubted && unheard <= 2 * lease)) {
      ++others;
    } else {
      silent.push_back(&node);
    }
  }
  const std::size_t together = silent.size() + others;
  const bool mass = together >= mass_silence_nodes_min && together * mass_silence_part > known;
  for (Node* node : silent) {
    if (mass && !node->doubted) {
      node->doubted = true;
    } else {
      lose(*node);
    }
  }
}

void Machine::on(const Tick& event) {
  if (!event.deaf) {
    judge_silence();
    judge_time_limits();
  }
  look_after_nodes();
  end_late_strays();
  wake_paused();
  ask_for_room_again();
  store_notes();
  forget_gateways();
  sound_alarms();
  if (now_ >= state_.index.wake()) effects_.schedule = true;
}

}  // namespace tutti::cluster
