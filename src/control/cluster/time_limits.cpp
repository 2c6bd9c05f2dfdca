// A job is ended by its time limit only on the word of its nodes: what was heard last may be older than the
// limit, because the controller was away, its ears were, or a report is still under way.
#include "control/cluster/machine.hpp"

namespace tutti::cluster {

// An answer may get lost with its connection; a node that stays silent is the matter of its lease.
constexpr Duration ask_again_after = lease;
// Before its program runs a gang may have to wait on its nodes: others have folders laid out there, too. That
// is not the time it was given, and has a bound of its own.
constexpr Duration starting_max = std::chrono::minutes(10);

// True if the node has told what it runs, and was asked at that time or later; else it is asked.
bool Machine::has_told_since(Node& node, Instant since) {
  if (node.told_as_of >= since) return true;
  const bool under_way = node.asked_at >= since && now_ - node.asked_at <= ask_again_after;
  if (under_way) return false;
  node.asked_at = now_;
  effects_.sends.emplace_back(AskHello{node.name});
  return false;
}

void Machine::judge_time_limits() {
  for (const JobId id : state_.holding) {
    Job& job = state_.jobs.at(id);
    if (job.ending != EndCause::none || job.spec.time_limit <= Duration::zero()) continue;
    const bool starts = job.running_at == Instant();
    const Instant due = (starts ? job.started_at + starting_max : job.running_at) + job.spec.time_limit;
    if (now_ <= due) continue;
    bool all_told = true;
    const NodeName* before = nullptr;  // ranks of one node are neighbours
    for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
      const NodeName& name = job.places[rank].node;
      if (job.ranks[rank].state == RankState::exited || (before != nullptr && *before == name)) continue;
      before = &name;
      all_told = has_told_since(state_.nodes.at(name), due) && all_told;
    }
    if (all_told)
      end(job, EndCause::time_limit,
          (starts ? "had not started when it was past its time limit of " : "ran past its time limit of ") +
              format_duration(job.spec.time_limit));
  }
}

}  // namespace tutti::cluster
