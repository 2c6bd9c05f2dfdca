#include <algorithm>
#include <utility>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {

// Both sides compare full state and converge: what the node runs and should not is ended, what it should run
// and does not know of is started, what has vanished is an end that the program did not cause.
void Machine::on(const Hello& event) {
  auto [at, added] = state_.nodes.try_emplace(event.node);
  Node& node = at->second;
  Node fresh = node;
  fresh.name = event.node;
  fresh.location = event.location;
  fresh.address = event.address;
  fresh.agent_pid = event.agent_pid;
  fresh.inventory = event.inventory;
  fresh.lost = false;
  fresh.lost_at = {};
  const bool stored = !added && fresh == node;
  fresh.heard_at = now_;
  fresh.greeted = true;
  const Node before = std::exchange(node, std::move(fresh));
  state_.index.changed(before, node);
  if (!stored) touch(node);
  for (const RankReport& report : event.ranks) apply(node.name, report);
  ask_for_strays(event, node);
  for (const JobId id : std::set(state_.index.jobs_on(event.node))) compare(event, state_.jobs.at(id));
  effects_.schedule = true;
}

// What was sent to the node before it was given up may still be under way: that a stray is not there yet does
// not mean that it will not come. The node is told to end it, and answers.
void Machine::ask_for_strays(const Hello& hello, Node& node) {
  for (auto at = node.strays.begin(); at != node.strays.end();) {
    const Stray stray = *at++;
    const Job* job = find(stray.job);
    const auto rank = static_cast<std::size_t>(stray.rank);
    const bool wanted = job != nullptr && job->placed() && job->attempt == stray.attempt &&
                        rank < job->ranks.size() && !job->ranks[rank].vanished;
    if (wanted) node.strays.erase(stray);
    const bool told = std::any_of(hello.ranks.begin(), hello.ranks.end(), [&](const RankReport& report) {
      return Stray{report.job, report.attempt, report.rank} == stray;
    });
    if (!wanted && !told)
      effects_.sends.push_back(EndRanks{node.name, stray.job, stray.attempt, {stray.rank}});
  }
  state_.index.changed(node);
}

void Machine::compare(const Hello& hello, Job& job) {
  if (!job.placed()) return;
  StartRanks missing{hello.node, job.id, job.attempt, {}};
  std::vector<std::int32_t> vanished;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(job.places.size()); ++rank) {
    const auto& status = job.ranks[static_cast<std::size_t>(rank)];
    if (job.places[static_cast<std::size_t>(rank)].node != hello.node || status.state == RankState::exited)
      continue;
    const bool known = std::any_of(hello.ranks.begin(), hello.ranks.end(), [&](const RankReport& report) {
      return report.job == job.id && report.attempt == job.attempt && report.rank == rank;
    });
    if (known) continue;
    // One that was told to start and is not there: the start may still be under way to the node. It is sent
    // again, or, if the attempt is being ended, the end is, which the node answers.
    if (status.state == RankState::assigned) {
      if (job.ending == EndCause::none) missing.ranks.push_back(rank);
    } else {
      vanished.push_back(rank);
    }
  }
  for (const std::int32_t rank : vanished) {
    if (job.placed())
      set_rank(job, rank, {RankState::exited, 0, "it vanished from node " + hello.node, true});
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
    node->heard_at = now_;
    node->kept = event.kept;
  }
}

void Machine::lose(Node& node) {
  node.lost = true;
  node.lost_at = now_;
  touch(node);
  for (const JobId id : std::set(state_.index.jobs_on(node.name))) {
    Job& job = state_.jobs.at(id);
    for (std::size_t rank = 0; rank < job.places.size() && job.placed(); ++rank) {
      if (job.places[rank].node != node.name || job.ranks[rank].state == RankState::exited) continue;
      node.strays.insert({job.id, job.attempt, static_cast<std::int32_t>(rank)});
      set_rank(job, static_cast<std::int32_t>(rank),
               {RankState::exited, 0, "node " + node.name + " was lost", true});
    }
  }
  effects_.schedule = true;
}

void Machine::on(const Tick&) {
  for (auto& [name, node] : state_.nodes) {
    if (!node.lost && now_ - node.heard_at > lease) lose(node);
  }
  for (const JobId id : state_.holding) {
    Job& job = state_.jobs.at(id);
    const bool over = job.spec.time_limit > Duration::zero() && now_ - job.started_at > job.spec.time_limit;
    if (job.ending == EndCause::none && over) {
      end(job, EndCause::time_limit, "ran past its time limit of " + format_duration(job.spec.time_limit));
    }
  }
  if (now_ >= state_.index.wake()) effects_.schedule = true;
}

}  // namespace tutti::cluster
