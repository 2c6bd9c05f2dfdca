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
  changes_.push_back({job.queue, job.user});
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
    : shares_(shares),
      changes_seen_(shares.changes().size()),
      desks_(snapshot.queues.size()),
      ranked_of_user_(snapshot.users.size()) {
  // By user and priority: one walk, then each line is sorted alone.
  std::map<std::tuple<QueueIndex, std::int32_t, UserIndex>, std::size_t> lines;
  for (const JobView* job : snapshot.queued) add(*job, lines);
  for (QueueIndex queue = 0; at(queue) < desks_.size(); ++queue) {
    TUTTI_CHECK(shares_.queue(queue).parent < queue);
    for (auto& [priority, of_priority] : desks_[at(queue)].by_priority) {
      for (Line& line : of_priority) line.jobs = sorted(std::move(line.jobs), order);
    }
    if (desks_[at(queue)].pending > 0) rank(queue);
  }
}

void Lineup::add(const JobView& job,
                 std::map<std::tuple<QueueIndex, std::int32_t, UserIndex>, std::size_t>& lines) {
  auto& of_priority = desks_[at(job.queue)].by_priority[job.priority];
  const auto [line, added] = lines.try_emplace({job.queue, job.priority, job.user}, of_priority.size());
  if (added) {
    of_priority.emplace_back();
    of_priority.back().queue = job.queue;
    of_priority.back().user = job.user;
  }
  of_priority[line->second].jobs.push_back(&job);
  for (QueueIndex queue = job.queue; queue >= 0; queue = shares_.queue(queue).parent)
    ++desks_[at(queue)].pending;
}

Ranking<Lineup::Desk>& Lineup::beside(QueueIndex queue) {
  const QueueIndex parent = shares_.queue(queue).parent;
  return parent < 0 ? roots_ : desks_[at(parent)].desks_below;
}

// First the queues that have less than their guarantee, then those that have had the least for their weight.
void Lineup::rank(QueueIndex queue) {
  const QueueView& known = shares_.queue(queue);
  beside(queue).put(desks_[at(queue)],
                    std::tuple(known.in_use >= known.guarantee,
                               (static_cast<double>(known.in_use) + known.past) / known.weight, queue));
}

void Lineup::rank(Line& line) {
  const UserView& known = shares_.user(line.user);
  const JobView& head = *line.jobs[line.at];
  desks_[at(line.queue)].lines.put(
      line, std::tuple(static_cast<double>(known.in_use) + known.past, head.submitted_at, head.id));
}

// Only those move whose share has changed since.
void Lineup::catch_up() {
  for (; changes_seen_ < shares_.changes().size(); ++changes_seen_) {
    const Shares::Change& change = shares_.changes()[changes_seen_];
    for (QueueIndex queue = change.queue; queue >= 0; queue = shares_.queue(queue).parent) {
      if (desks_[at(queue)].is_ranked()) rank(queue);
    }
    for (Line* line : ranked_of_user_[at(change.user)]) rank(*line);
  }
}

// From the top. A queue's own jobs come before those of the queues below it.
QueueIndex Lineup::choose_queue() const {
  const Ranking<Desk>* choices = &roots_;
  while (!choices->empty()) {
    const Desk& best = choices->first();
    if (!best.by_priority.empty()) return std::get<QueueIndex>(best.rank);
    choices = &best.desks_below;
  }
  return -1;
}

// A user may have lines at many priorities: those that are not yet served need no rank, and cost nothing when
// the user's share changes.
void Lineup::open_lines(Desk& desk) {
  for (Line& line : desk.by_priority.begin()->second) {
    rank(line);
    ranked_of_user_[at(line.user)].push_back(&line);
  }
}

void Lineup::close_line(Desk& desk, Line& line) {
  desk.lines.drop(line);
  std::erase(ranked_of_user_[at(line.user)], &line);
  if (desk.lines.empty()) desk.by_priority.erase(desk.by_priority.begin());
}

const JobView* Lineup::take_from(Desk& desk) {
  if (desk.lines.empty()) open_lines(desk);
  Line& line = desk.lines.first();
  const JobView* job = line.jobs[line.at++];
  if (line.at < line.jobs.size()) {
    rank(line);
  } else {
    close_line(desk, line);
  }
  return job;
}

const JobView* Lineup::next() {
  catch_up();
  const QueueIndex chosen = choose_queue();
  if (chosen < 0) return nullptr;
  const JobView* job = take_from(desks_[at(chosen)]);
  for (QueueIndex queue = chosen; queue >= 0; queue = shares_.queue(queue).parent) {
    Desk& desk = desks_[at(queue)];
    if (--desk.pending == 0) beside(queue).drop(desk);
  }
  return job;
}

std::uint64_t Lineup::compared() const {
  std::uint64_t compared = roots_.compared();
  for (const Desk& desk : desks_) compared += desk.lines.compared() + desk.desks_below.compared();
  return compared;
}

}  // namespace tutti::sched
