#include "control/sched/forecast.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/index.hpp"
#include "control/sched/policies.hpp"

namespace tutti::sched {
namespace {

constexpr std::size_t named_max = 3;  // jobs in one sentence
constexpr const char* too_much = "too much happens before it can start";

// A copy of the cluster that goes on. What was used lately is left as it was: it changes in days.
class Future {
 public:
  Future(const Snapshot& snapshot, Instant now) : snapshot_(snapshot) {
    for (const JobView* job : snapshot_.running) {
      const Instant end = release_of(*job, now);
      if (end != never) ends_.emplace(end, End{job, false});
    }
  }

  const Snapshot& snapshot() const { return snapshot_; }
  Instant next_end() const { return ends_.empty() ? never : ends_.begin()->first; }

  void apply(const Plan& plan, Instant now) {
    for (const Stop& stop : plan.stops) end_early(stop.job, now);
    std::map<JobId, const Start*> starts;
    for (const Start& start : plan.starts) starts.emplace(start.job, &start);
    std::erase_if(snapshot_.queued, [&](const JobView* job) {
      const auto found = starts.find(job->id);
      if (found == starts.end()) return false;
      start(*job, found->second->places, now);
      return true;
    });
  }

  // Ends what is expected to have ended by then.
  void advance(Instant now) {
    std::set<const JobView*> ended;
    for (; !ends_.empty() && ends_.begin()->first <= now; ends_.erase(ends_.begin())) {
      const End& end = ends_.begin()->second;
      snapshot_.room.give(*end.job->shape, end.job->places);
      use(*end.job, -1);
      ended.insert(end.job);
      if (end.returns) requeue(*end.job, now);
    }
    std::erase_if(snapshot_.running, [&](const JobView* job) { return ended.contains(job); });
  }

  // "job 12, 15 run without a time limit".
  std::string describe_endless() const {
    std::string named;
    std::size_t count = 0;
    for (const JobView* job : snapshot_.running) {
      if (job->ending || job->expected != Duration::zero()) continue;
      if (++count <= named_max) named += (named.empty() ? "" : ", ") + job->id.text();
    }
    if (count == 0) return "nothing that runs now makes room for it";
    if (count > named_max) named += " and " + std::to_string(count - named_max) + " more";
    return (count == 1 ? "job " : "jobs ") + named + (count == 1 ? " runs" : " run") +
           " without a time limit";
  }

 private:
  struct End {
    const JobView* job = nullptr;
    bool returns = false;  // to the queue
  };

  void use(const JobView& job, int sign) {
    const std::int64_t share = sign * held_share(job);
    for (QueueIndex queue = job.queue; queue >= 0; queue = snapshot_.queues[at(queue)].parent)
      snapshot_.queues[at(queue)].in_use += share;
    snapshot_.users[at(job.user)].in_use += share;
  }

  void start(const JobView& waiting, const Places& places, Instant now) {
    JobView& job = changed_.emplace_back(waiting);
    job.places = places;
    job.started_at = now;
    job.saved_at = {};
    snapshot_.room.take(*job.shape, job.places);
    use(job, 1);
    snapshot_.running.push_back(&job);
    if (const Instant end = expected_end(job, now, now); end != never) ends_.emplace(end, End{&job, false});
  }

  void end_early(JobId id, Instant now) {
    const auto found = std::find_if(snapshot_.running.begin(), snapshot_.running.end(),
                                    [&](const JobView* job) { return job->id == id; });
    if (found == snapshot_.running.end() || (*found)->ending) return;
    const auto end = std::find_if(ends_.begin(), ends_.end(),
                                  [&](const auto& entry) { return entry.second.job == *found; });
    if (end != ends_.end()) ends_.erase(end);
    JobView& job = changed_.emplace_back(**found);
    job.ending = true;
    job.ends_by = now + job.grace;
    job.makes_way = true;
    *found = &job;
    ends_.emplace(job.ends_by, End{&job, true});
  }

  void requeue(const JobView& ended, Instant now) {
    JobView& job = changed_.emplace_back(ended);
    job.served = served_by(ended, now);
    job.places = {};
    job.ending = false;
    job.ends_by = {};
    job.makes_way = false;
    job.queued_at = now;
    ++job.attempt;
    snapshot_.queued.push_back(&job);
  }

  Snapshot snapshot_;
  std::deque<JobView> changed_;  // what is no more as the snapshot has it
  std::multimap<Instant, End> ends_;
};

// Nobody plans further ahead.
constexpr Duration horizon = 366 * 24h;

// Its start, if the plan says when.
std::optional<Instant> start_in(const Plan& plan, JobId job, Instant now) {
  for (const Start& start : plan.starts) {
    if (start.job == job) return now;
  }
  for (const Soon& soon : plan.soon) {
    if (soon.job == job) return soon.start;
  }
  for (const Promise& promise : plan.promises) {
    if (promise.job == job) return promise.start;
  }
  return std::nullopt;
}

}  // namespace

int passes_max(const Snapshot& snapshot) {
  const std::size_t size = 1'000 + snapshot.queued.size() + static_cast<std::size_t>(snapshot.room.nodes());
  return static_cast<int>(std::clamp<std::size_t>(2'000'000 / size, 8, 2'000));
}

Forecast forecast(const Snapshot& snapshot, JobId job, Instant now, const ForecastLimits& limits) {
  Forecast found;
  Future future(snapshot, now);
  bool first = true;
  bool cut = false;
  const auto is_enough = [&] { return !first && limits.enough && limits.enough(); };
  for (Instant time = now;; first = false) {
    if (--*limits.passes < 0 || is_enough()) {
      found.unknown = too_much;
      return found;
    }
    const Plan plan = schedule_tutti(future.snapshot(), time, [&](const JobView& turn) {
      if (turn.id != job && first) found.ahead.push_back(turn.id);
      if (turn.id == job) return true;
      return cut = is_enough();
    });
    if (cut) {
      found.unknown = too_much;
      return found;
    }
    if (first) {
      const std::string* why = plan.waiting->find(job);
      found.why = why == nullptr ? "" : *why;
    }
    found.start = start_in(plan, job, time);
    if (found.start) return found;
    future.apply(plan, time);
    const Instant next = std::min(future.next_end(), plan.wake);
    const bool endless = next == never || next > now + horizon;
    if (endless) found.unknown = future.describe_endless();
    if (next >= limits.until || endless) return found;
    time = std::max(time, next);
    future.advance(time);
  }
}

}  // namespace tutti::sched
