#include "control/sched/explain.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.hpp"
#include "control/sched/forecast.hpp"
#include "control/sched/lineup.hpp"

namespace tutti::sched {
namespace {

constexpr std::array<Duration, 9> round_limits{48h, 24h, 12h, 8h, 4h, 2h, 1h, 30min, 10min};
constexpr int suggestion_passes_max = 200;
constexpr std::size_t other_queues_max = 8;

// The snapshot with this job in the place of the one with its id, or at the end of the queue.
Snapshot with(Snapshot snapshot, const JobView& job) {
  const auto found = std::find_if(snapshot.queued.begin(), snapshot.queued.end(),
                                  [&](const JobView* queued) { return queued->id == job.id; });
  if (found == snapshot.queued.end()) {
    snapshot.queued.push_back(&job);
  } else {
    *found = &job;
  }
  snapshot.shape_classes = std::max(snapshot.shape_classes, job.shape_class + 1);
  return snapshot;
}

class Suggestions {
 public:
  Suggestions(const Snapshot& snapshot, const JobView& job, Instant now, std::optional<Instant> expected,
              const Enough& enough)
      : snapshot_(snapshot),
        job_(job),
        now_(now),
        until_(expected.value_or(never)),
        passes_(std::min(passes_max(snapshot), suggestion_passes_max)),
        enough_(enough),
        whole_(snapshot.room) {
    for (const JobView* running : snapshot.running) whole_.give(*running->shape, running->places);
  }

  std::vector<Suggestion> all() {
    fewer();
    other_models();
    wider();
    other_queues();
    shorter();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Suggestion& a, const Suggestion& b) { return a.start < b.start; });
    if (found_.size() > suggestions_max) found_.resize(suggestions_max);
    return std::move(found_);
  }

 private:
  // When it would start with these changes, if that is sooner.
  std::optional<Instant> start_of(const JobView& changed, Instant until) {
    if (passes_ <= 0 || (enough_ && enough_())) return std::nullopt;
    const Forecast found = forecast(with(trial_, changed), changed.id, now_, {until, &passes_, enough_});
    if (!found.start || *found.start >= until_) return std::nullopt;
    return found.start;
  }

  std::optional<Instant> start_with(const Shape& shape, Instant until) {
    if (!place(whole_, shape, TightestNode())) return std::nullopt;  // not even if all others had ended
    JobView changed = job_;
    changed.shape = std::make_shared<const Shape>(shape);
    changed.shape_class = snapshot_.shape_classes;
    return start_of(changed, until);
  }

  bool starts_now_with(const Shape& shape) { return start_with(shape, now_) == now_; }

  void suggest(std::string change, std::optional<Instant> start) {
    if (start) found_.push_back({std::move(change), *start, *start == now_});
  }

  // ---- the changes

  // So many of its nodes, or of its ranks where it names no number of nodes.
  static Shape part_of(const Shape& shape, std::int32_t nodes, std::int32_t ranks, std::int32_t count) {
    Shape part = shape;
    part.rank_counts.clear();
    if (nodes > 1) part.nodes = count;
    part.ranks = nodes > 1 ? static_cast<std::int32_t>(std::int64_t{ranks} * count / nodes) : count;
    return part;
  }

  // The largest count below its own that starts now.
  void fewer() {
    const Shape& shape = *job_.shape;
    const std::int32_t ranks = counts_of(shape).back();
    const std::int32_t nodes = nodes_for(shape, ranks);
    const std::int32_t own = nodes > 1 ? nodes : ranks;
    const auto part = [&](std::int32_t count) { return part_of(shape, nodes, ranks, count); };
    const std::int32_t fits = largest(own - 1, [&](std::int32_t count) {
      return place(snapshot_.room, part(count), TightestNode()).has_value();
    });
    std::int32_t starts = 0;
    if (fits > 0 && starts_now_with(part(fits))) {
      starts = fits;
    } else {
      starts = largest(fits - 1, [&](std::int32_t count) { return starts_now_with(part(count)); });
    }
    if (starts == 0) return;
    suggest(std::to_string(starts) + " instead of " + std::to_string(own) + (nodes > 1 ? " nodes" : " ranks"),
            now_);
  }

  // The largest number from 1 to `most` that does, 0 if none does. What does not, does not with more.
  template <class Does>
  static std::int32_t largest(std::int32_t most, Does does) {
    std::int32_t least = 0;
    while (least < most) {
      const std::int32_t middle = least + (most - least + 1) / 2;
      if (does(middle)) {
        least = middle;
      } else {
        most = middle - 1;
      }
    }
    return least;
  }

  void other_models() {
    const Shape& shape = *job_.shape;
    if (shape.gpu_share == 0 || shape.gpu_model.empty()) return;
    const auto own = split(shape.gpu_model, '|');
    std::set<std::string> models;
    for (std::size_t kind = 0; kind < snapshot_.room.kinds(); ++kind) {
      const std::string& model = snapshot_.room.model(kind);
      if (!model.empty() && std::find(own.begin(), own.end(), model) == own.end()) models.insert(model);
    }
    for (const std::string& model : models) {
      Shape other = shape;
      other.gpu_model = model;
      suggest(model + " instead of " + shape.gpu_model, start_with(other, until_));
    }
  }

  // The next larger part of the fabric, else anywhere.
  void wider() {
    const Level own = job_.shape->within;
    if (own == Level::cluster) return;
    const std::string narrow = std::string(name_of(own));
    Shape shape = *job_.shape;
    shape.within = static_cast<Level>(static_cast<int>(own) - 1);
    if (shape.within != Level::cluster) {
      if (const auto start = start_with(shape, until_))
        return suggest("within one " + std::string(name_of(shape.within)) + " instead of one " + narrow,
                       start);
    }
    shape.within = Level::cluster;
    suggest("anywhere instead of within one " + narrow, start_with(shape, until_));
  }

  // The longest round limit that starts it soonest: it is over before what is promised to others.
  void shorter() {
    std::optional<Instant> best;
    Duration limit{};
    for (const Duration shorter : round_limits) {
      if (job_.expected != Duration::zero() && shorter + job_.grace >= job_.expected) continue;
      JobView changed = job_;
      changed.time_limit = shorter;
      changed.expected = shorter + job_.grace;
      const auto start = start_of(changed, best.value_or(until_));
      if (start && (!best || *start < *best)) best = start, limit = shorter;
      if (best == now_) break;
    }
    if (!best) return;
    const bool had = job_.time_limit != Duration::zero();
    suggest("time limit of " + format_duration(limit) +
                (had ? " instead of " + format_duration(job_.time_limit) : " instead of none"),
            best);
  }

  // Only if a limit of its own queue, or of its user there, is what it waits for.
  void other_queues() {
    const std::int64_t least = std::int64_t{counts_of(*job_.shape).back()} * job_.shape->gpu_share;
    const std::int64_t allowed = Shares(snapshot_).allowed(job_);
    if (allowed == no_limit || least <= allowed) return;
    std::size_t tried = 0;
    for (QueueIndex queue = 0; queue < static_cast<QueueIndex>(snapshot_.queues.size()); ++queue) {
      if (queue == job_.queue || tried == other_queues_max) continue;
      JobView changed = job_;
      changed.queue = queue;
      changed.user = user_in(queue);
      const std::int64_t there = Shares(trial_).allowed(changed);
      if (there != no_limit && least > there) continue;
      ++tried;
      suggest("queue " + queue_name(queue) + " instead of " + queue_name(job_.queue),
              start_of(changed, until_));
    }
  }

  const std::string& queue_name(QueueIndex queue) const {
    return snapshot_.queues[static_cast<std::size_t>(queue)].name;
  }

  // The job's user in another queue, who may be new there.
  UserIndex user_in(QueueIndex queue) {
    const std::string& name = snapshot_.users[static_cast<std::size_t>(job_.user)].name;
    const auto found = std::find_if(trial_.users.begin(), trial_.users.end(), [&](const UserView& user) {
      return user.queue == queue && user.name == name;
    });
    if (found != trial_.users.end()) return static_cast<UserIndex>(found - trial_.users.begin());
    trial_.users.push_back({name, queue, 0, 0});
    return static_cast<UserIndex>(trial_.users.size() - 1);
  }

  const Snapshot& snapshot_;
  Snapshot trial_ = snapshot_;  // with users of other queues as they are tried
  const JobView& job_;
  Instant now_;
  Instant until_;  // it starts then without any change
  int passes_;
  const Enough& enough_;
  Room whole_;  // if nothing ran
  std::vector<Suggestion> found_;
};

}  // namespace

Explanation explain(const Snapshot& snapshot, const JobView& job, Instant now, const Patience& patience) {
  Explanation answer;
  answer.queue = snapshot.queues[static_cast<std::size_t>(job.queue)].name;
  for (const Held& held : snapshot.held) {
    if (held.job == job.id) {
      answer.why = held.why;
      answer.unknown = "it does not wait for room";
      return answer;
    }
  }
  const Snapshot whole = with(snapshot, job);
  int passes = passes_max(whole);
  const Forecast found = forecast(whole, job.id, now, {never, &passes, patience.start});
  answer.starts_now = found.start == now;
  answer.why = found.why;
  answer.ahead = found.ahead.size();
  answer.ahead_ids = found.ahead;
  if (answer.ahead_ids.size() > ahead_named_max) answer.ahead_ids.resize(ahead_named_max);
  answer.expected_start = found.start;
  answer.unknown = found.unknown;
  if (!answer.starts_now)
    answer.suggestions = Suggestions(whole, job, now, found.start, patience.changes).all();
  return answer;
}

}  // namespace tutti::sched
