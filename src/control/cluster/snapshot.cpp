#include <algorithm>

#include "base/index.hpp"
#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

// The numbers that queues and users have in one snapshot, and what it says of them.
class Numbers {
 public:
  Numbers(const State& state, const Usage& usage, Instant now, sched::Snapshot& snapshot)
      : usage_(usage), now_(now), snapshot_(snapshot) {
    // A queue comes after the one that it is a part of.
    for (const auto& [name, queue] : state.queues) {
      const Usage::Use use = usage.of_queue(name, now);
      const QueueName parent = parent_of(name);
      const sched::QueueIndex above = parent.empty() ? -1 : queues_.at(parent);
      queues_.emplace(name, static_cast<sched::QueueIndex>(snapshot.queues.size()));
      snapshot.queues.push_back(
          {name, above, queue.guarantee, queue.limit, queue.user_limit, queue.weight, use.in_use, use.past});
    }
  }

  void number(const JobSpec& spec, sched::JobView& view) {
    // Neighbours in the queue are often of one user.
    const bool same = last_ != nullptr && last_->queue == spec.queue && last_->user == spec.user;
    if (!same) last_user_ = user_of(spec);
    last_ = &spec;
    view.user = last_user_;
    view.queue = snapshot_.users[at(last_user_)].queue;
  }

 private:
  sched::UserIndex user_of(const JobSpec& spec) {
    const auto [user, added] =
        users_.try_emplace({spec.queue, spec.user}, static_cast<sched::UserIndex>(snapshot_.users.size()));
    if (added) {
      const Usage::Use use = usage_.of_user(spec.queue, spec.user, now_);
      snapshot_.users.push_back({spec.user, queues_.at(spec.queue), use.in_use, use.past});
    }
    return user->second;
  }

  const Usage& usage_;
  const Instant now_;
  sched::Snapshot& snapshot_;
  std::map<QueueName, sched::QueueIndex> queues_;
  std::map<std::pair<QueueName, std::string>, sched::UserIndex> users_;
  const JobSpec* last_ = nullptr;
  sched::UserIndex last_user_ = 0;
};

// Of those that it comes after; null if all have ended.
const Dependency* first_unfinished(const State& state, const Job& job) {
  if (const auto wait = state.index.waits().find(job.id); wait != state.index.waits().end())
    return &job.spec.after[wait->second.first];
  // One that nobody has submitted, and that is only asked about, is not followed.
  if (job.spec.after.empty() || state.jobs.contains(job.id)) return nullptr;
  const auto found =
      std::find_if(job.spec.after.begin(), job.spec.after.end(),
                   [&](const Dependency& dependency) { return state.active.contains(dependency.job); });
  return found == job.spec.after.end() ? nullptr : &*found;
}

std::string waits_for_array(const Job& job) {
  return "waits for other elements of its array: at most " + std::to_string(job.spec.array->limit) +
         " run at once";
}

}  // namespace

std::string waits_for(const State& state, const Job& job) {
  if (!job.held.empty()) return job.held;
  if (is_paused(state, job)) {
    return "waits until " + format_instant(job.not_before) + " to start again, because it ended badly " +
           std::to_string(job.bad_ends) + " times in a row: " + job.last_end;
  }
  if (const auto doomed = state.index.doomed().find(job.id); doomed != state.index.doomed().end())
    return "job " + doomed->second.text() + ", whose success it needs, had none: it is about to end";
  const Dependency* before = first_unfinished(state, job);
  if (before == nullptr) return "";
  return "waits for job " + before->job.text() + " to " + (before->success ? "succeed" : "end");
}

bool must_wait(const State& state, const Job& job) {
  return !job.held.empty() || is_paused(state, job) || state.index.doomed().contains(job.id) ||
         state.index.waits().contains(job.id);
}

ArrayRoom::ArrayRoom(const State& state) {
  for (const JobId id : state.holding) {
    if (const auto& part = state.jobs.at(id).spec.array) ++running_[part->first];
  }
}

bool ArrayRoom::take(const Job& job) {
  const auto& part = job.spec.array;
  if (!part || part->limit == 0) return true;
  std::int32_t& running = running_[part->first];
  if (running >= part->limit) return false;
  ++running;
  return true;
}

sched::Snapshot Index::snapshot(const State& state, Instant now) {
  forget_old_shapes(state);
  sched::Snapshot snapshot;
  snapshot.revision = state.revision;
  snapshot.room = floor_.free(state);
  snapshot.fabric = state.fabric;
  snapshot.mix = habits_.mix();
  snapshot.past = &habits_.past();
  snapshot.shape_classes = habits_.shape_classes();
  Numbers numbers(state, usage_, now, snapshot);
  ArrayRoom array_room(state);
  snapshot.queued.reserve(waiting_.size());
  // Both are in the order of ids: those that wait for others are passed over without being looked for.
  auto blocked = followers_.waits().begin();
  for (auto& [id, view] : waiting_) {
    while (blocked != followers_.waits().end() && blocked->first < id) ++blocked;
    if (blocked != followers_.waits().end() && blocked->first == id) continue;
    const Job& job = state.jobs.at(id);
    if (must_wait(state, job)) continue;
    if (!array_room.take(job)) {
      snapshot.held.push_back({id, waits_for_array(job)});
      continue;
    }
    numbers.number(job.spec, view);
    snapshot.queued.push_back(&view);
  }
  Views& running = floor_.running(state);
  snapshot.running.reserve(running.size());
  for (auto& [id, view] : running) {
    numbers.number(state.jobs.at(id).spec, view);
    snapshot.running.push_back(&view);
  }
  return snapshot;
}

sched::Snapshot snapshot(State& state, Instant now) { return state.index.snapshot(state, now); }

}  // namespace tutti::cluster
