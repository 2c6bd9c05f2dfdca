#include "control/sched/lineup.hpp"

#include <algorithm>
#include <tuple>

#include "base/index.hpp"

namespace tutti::sched {

std::vector<const JobView*> sorted(std::vector<const JobView*> jobs, const OrderOf& order) {
  std::vector<std::pair<OrderKey, const JobView*>> keyed;
  keyed.reserve(jobs.size());
  for (const JobView* job : jobs) keyed.emplace_back(order(*job), job);
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t next = 0; next < jobs.size(); ++next) jobs[next] = keyed[next].second;
  return jobs;
}

Shares::Shares(const Snapshot& snapshot) : queues_(snapshot.queues), users_(snapshot.users) {}

void Shares::add(const JobView& job, std::int64_t share) {
  for (QueueIndex queue = job.queue; queue >= 0; queue = queues_[at(queue)].parent)
    queues_[at(queue)].in_use += share;
  users_[at(job.user)].in_use += share;
}

std::int64_t Shares::allowed(const JobView& job) const {
  std::int64_t allowed = std::numeric_limits<std::int64_t>::max();
  for (QueueIndex at_queue = job.queue; at_queue >= 0; at_queue = queue(at_queue).parent) {
    if (queue(at_queue).limit != no_limit)
      allowed = std::min(allowed, queue(at_queue).limit - queue(at_queue).in_use);
  }
  if (queue(job.queue).user_limit != no_limit)
    allowed = std::min(allowed, queue(job.queue).user_limit - user(job.user).in_use);
  return allowed == std::numeric_limits<std::int64_t>::max() ? no_limit : std::max<std::int64_t>(allowed, 0);
}

std::string Shares::describe_limit(const JobView& job, std::int64_t share) const {
  for (QueueIndex at_queue = job.queue; at_queue >= 0; at_queue = queue(at_queue).parent) {
    const QueueView& known = queue(at_queue);
    if (known.limit != no_limit && known.in_use + share > known.limit)
      return "needs " + format_gpus(share) + (share == whole_share ? " GPU" : " GPUs") + "; queue " +
             known.name + " uses " + format_gpus(known.in_use) + " of at most " + format_gpus(known.limit);
  }
  const UserView& known = user(job.user);
  return "needs " + format_gpus(share) + (share == whole_share ? " GPU" : " GPUs") + "; user " + known.name +
         " uses " + format_gpus(known.in_use) + " of at most " + format_gpus(queue(job.queue).user_limit) +
         " in queue " + queue(job.queue).name;
}

// The queue itself or one above it.
bool Shares::above(QueueIndex queue_above, QueueIndex other) const {
  for (; other >= 0; other = queue(other).parent) {
    if (other == queue_above) return true;
  }
  return false;
}

bool Shares::guaranteed(const JobView& job, std::int64_t share, const JobView& other) const {
  for (QueueIndex mine = job.queue; mine >= 0 && !above(mine, other.queue); mine = queue(mine).parent) {
    if (queue(mine).in_use + share <= queue(mine).guarantee) return true;
  }
  return false;
}

bool Shares::borrowed(const JobView& job, std::int64_t share, const JobView& other) const {
  for (QueueIndex mine = job.queue; mine >= 0 && !above(mine, other.queue); mine = queue(mine).parent) {
    if (queue(mine).in_use - share < queue(mine).guarantee) return false;
  }
  return true;
}

Lineup::Lineup(const Snapshot& snapshot, const Shares& shares, const OrderOf& order)
    : shares_(shares), desks_(snapshot.queues.size()) {
  for (QueueIndex queue = 0; at(queue) < desks_.size(); ++queue) {
    const QueueIndex parent = shares_.queue(queue).parent;
    (parent < 0 ? roots_ : desks_[at(parent)].children).push_back(queue);
    if (parent >= 0) TUTTI_CHECK(parent < queue);
  }
  // By user and priority: one walk, then each line is sorted alone.
  std::map<std::tuple<QueueIndex, std::int32_t, UserIndex>, std::size_t> lines;
  for (const JobView* job : snapshot.queued) {
    Desk& desk = desks_[at(job->queue)];
    auto& of_priority = desk.by_priority[job->priority];
    const auto [line, added] = lines.try_emplace({job->queue, job->priority, job->user}, of_priority.size());
    if (added) of_priority.push_back({job->user, {}, 0});
    of_priority[line->second].jobs.push_back(job);
    ++desk.own;
    for (QueueIndex queue = job->queue; queue >= 0; queue = shares_.queue(queue).parent)
      ++desks_[at(queue)].pending;
  }
  for (Desk& desk : desks_) {
    for (auto& [priority, of_priority] : desk.by_priority) {
      for (Line& line : of_priority) line.jobs = sorted(std::move(line.jobs), order);
    }
  }
}

// From the top: first the queues that have less than their guarantee, then those that have had the least for
// their weight.
QueueIndex Lineup::choose_queue() const {
  const std::vector<QueueIndex>* choices = &roots_;
  QueueIndex chosen = -1;
  for (;;) {
    QueueIndex best = -1;
    const auto rank = [&](QueueIndex queue) {
      const QueueView& known = shares_.queue(queue);
      return std::tuple(known.in_use >= known.guarantee,
                        (static_cast<double>(known.in_use) + known.past) / known.weight, queue);
    };
    for (const QueueIndex queue : *choices) {
      if (desks_[at(queue)].pending == 0) continue;
      if (best < 0 || rank(queue) < rank(best)) best = queue;
    }
    if (best < 0) return chosen;
    chosen = best;
    // A queue's own jobs come before those of the queues below it.
    if (desks_[at(best)].own > 0) return best;
    choices = &desks_[at(best)].children;
  }
}

const JobView* Lineup::take_from(Desk& desk) {
  while (!desk.by_priority.empty()) {
    auto& lines = desk.by_priority.begin()->second;
    Line* best = nullptr;
    const auto rank = [&](const Line& line) {
      const UserView& known = shares_.user(line.user);
      return std::tuple(static_cast<double>(known.in_use) + known.past, line.jobs[line.at]->submitted_at,
                        line.jobs[line.at]->id);
    };
    for (Line& line : lines) {
      if (line.empty()) continue;
      if (best == nullptr || rank(line) < rank(*best)) best = &line;
    }
    if (best != nullptr) return best->jobs[best->at++];
    desk.by_priority.erase(desk.by_priority.begin());
  }
  return nullptr;
}

const JobView* Lineup::next() {
  const QueueIndex chosen = choose_queue();
  if (chosen < 0) return nullptr;
  Desk& desk = desks_[at(chosen)];
  const JobView* job = take_from(desk);
  TUTTI_CHECK(job != nullptr);
  --desk.own;
  for (QueueIndex queue = chosen; queue >= 0; queue = shares_.queue(queue).parent)
    --desks_[at(queue)].pending;
  return job;
}

}  // namespace tutti::sched
