#include "control/sched/lineup.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "base/prng.hpp"
#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

// No more than a few steps down a heap of queues and one of users.
constexpr std::uint64_t compared_per_job_max = 64;

// Who is next, as it is meant: everybody who could be is looked at, every time.
class Walk {
 public:
  Walk(const Snapshot& snapshot, const Shares& shares, const OrderOf& order)
      : snapshot_(snapshot), shares_(shares) {
    for (const JobView* job : sorted(snapshot.queued, order))
      lines_[{job->queue, -job->priority, job->user}].push_back(job);
  }

  const JobView* next() {
    QueueIndex chosen = -1;
    do {
      chosen = best_below(chosen);
      if (chosen < 0) return nullptr;
    } while (!has_own(chosen));
    auto best = lines_.end();
    for (auto line = lines_.begin(); line != lines_.end(); ++line) {
      if (std::get<0>(line->first) != chosen) continue;
      if (best != lines_.end() && std::get<1>(line->first) != std::get<1>(best->first)) break;
      if (best == lines_.end() || rank(line->second) < rank(best->second)) best = line;
    }
    const JobView* job = best->second.front();
    best->second.erase(best->second.begin());
    if (best->second.empty()) lines_.erase(best);
    return job;
  }

 private:
  using Jobs = std::vector<const JobView*>;

  bool has_own(QueueIndex queue) const {
    const auto line = lines_.lower_bound({queue, std::numeric_limits<std::int32_t>::min(), 0});
    return line != lines_.end() && std::get<0>(line->first) == queue;
  }

  bool has_any(QueueIndex queue) const {
    if (has_own(queue)) return true;
    for (QueueIndex below = queue + 1; at(below) < snapshot_.queues.size(); ++below) {
      if (snapshot_.queues[at(below)].parent == queue && has_any(below)) return true;
    }
    return false;
  }

  QueueIndex best_below(QueueIndex parent) const {
    QueueIndex best = -1;
    for (QueueIndex queue = 0; at(queue) < snapshot_.queues.size(); ++queue) {
      if (snapshot_.queues[at(queue)].parent != parent || !has_any(queue)) continue;
      if (best < 0 || queue_rank(queue) < queue_rank(best)) best = queue;
    }
    return best;
  }

  std::tuple<bool, double, QueueIndex> queue_rank(QueueIndex queue) const {
    const QueueView& known = shares_.queue(queue);
    return {known.in_use >= known.guarantee, (static_cast<double>(known.in_use) + known.past) / known.weight,
            queue};
  }

  std::tuple<double, Instant, JobId> rank(const Jobs& jobs) const {
    const UserView& known = shares_.user(jobs.front()->user);
    return {static_cast<double>(known.in_use) + known.past, jobs.front()->submitted_at, jobs.front()->id};
  }

  const Snapshot& snapshot_;
  const Shares& shares_;
  std::map<std::tuple<QueueIndex, std::int32_t, UserIndex>, Jobs> lines_;
};

struct Sizes {
  std::uint64_t queues = 1;
  std::uint64_t users = 1;
  std::uint64_t priorities = 1;
  std::uint64_t jobs = 1;
};

// Small numbers, so that many are equal.
World random_world(Prng& prng, const Sizes& sizes) {
  World world({node("a", 1)});
  world.queues.clear();
  for (std::uint64_t at = 0; at < sizes.queues; ++at) {
    QueueView queue{.name = "q" + std::to_string(at)};
    queue.parent = static_cast<QueueIndex>(prng.below(at + 1)) - 1;
    queue.guarantee = static_cast<std::int64_t>(prng.below(4)) * 5000;
    queue.weight = static_cast<double>(1 + prng.below(3));
    queue.in_use = static_cast<std::int64_t>(prng.below(4)) * 1000;
    queue.past = static_cast<double>(prng.below(3)) * 500;
    world.queues.push_back(queue);
  }
  world.users.clear();
  for (std::uint64_t at = 0; at < sizes.users; ++at) {
    world.users.push_back({.name = "u" + std::to_string(at),
                           .queue = static_cast<QueueIndex>(prng.below(sizes.queues)),
                           .in_use = static_cast<std::int64_t>(prng.below(3)) * 1000,
                           .past = static_cast<double>(prng.below(3)) * 500});
  }
  for (std::uint64_t id = 1; id <= sizes.jobs; ++id) {
    JobView& job = world.add(id, gpus(1), static_cast<int>(prng.below(sizes.priorities)),
                             Instant(std::chrono::seconds(prng.below(50))));
    job.user = static_cast<UserIndex>(prng.below(sizes.users));
    job.queue = world.users[at(job.user)].queue;
    job.served = static_cast<double>(prng.below(5));
  }
  return world;
}

OrderKey by_time(const JobView& job) { return {0, 0, 0, job.submitted_at, job.id}; }
OrderKey by_service(const JobView& job) { return {-job.served, 0, 0, job.submitted_at, job.id}; }

// Some start, some wait, and some that run make way for them.
void expect_as_walked(Prng& prng, const World& world, const OrderOf& order) {
  const Snapshot snapshot = world.snapshot();
  Shares shares(snapshot);
  Lineup lineup(snapshot, shares, order);
  Walk walk(snapshot, shares, order);
  std::vector<const JobView*> running;
  for (std::size_t turn = 0; turn <= snapshot.queued.size(); ++turn) {
    const JobView* job = lineup.next();
    ASSERT_EQ(job, walk.next()) << "turn " << turn;
    if (job == nullptr) return;
    while (!running.empty() && prng.chance(0.2)) {
      std::swap(running[prng.below(running.size())], running.back());
      shares.add(*running.back(), -whole_share);
      running.pop_back();
    }
    if (prng.chance(0.4)) continue;
    shares.add(*job, whole_share);
    running.push_back(job);
  }
  FAIL() << "more jobs than there are";
}

TEST(Lineup, IsInTheOrderOfAWalkOverEverybody) {
  Prng prng(14);
  for (int round = 0; round < 300 && !testing::Test::HasFatalFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const World world = random_world(prng, {.queues = 1 + prng.below(12),
                                            .users = 1 + prng.below(40),
                                            .priorities = 1 + prng.below(4),
                                            .jobs = 1 + prng.below(200)});
    expect_as_walked(prng, world, round % 2 == 0 ? by_time : by_service);
  }
}

TEST(Lineup, IsInTheOrderOfAWalkOverThousands) {
  Prng prng(15);
  for (const Sizes& sizes :
       {Sizes{.queues = 40, .users = 400, .priorities = 3, .jobs = 3000}, Sizes{.users = 2000, .jobs = 2000},
        Sizes{.queues = 2, .users = 3, .priorities = 1000, .jobs = 2000}})
    expect_as_walked(prng, random_world(prng, sizes), by_service);
}

// A user belongs to one queue; one who does not is served all the same.
TEST(Lineup, TakesAUserOfSeveralQueues) {
  Prng prng(16);
  World world = random_world(prng, {.queues = 5, .users = 8, .priorities = 2, .jobs = 300});
  for (JobView& job : world.jobs) job.queue = static_cast<QueueIndex>(prng.below(5));
  expect_as_walked(prng, world, by_time);
}

std::uint64_t compared_with(const Sizes& sizes) {
  Prng prng(17);
  const World world = random_world(prng, sizes);
  const Snapshot snapshot = world.snapshot();
  Shares shares(snapshot);
  Lineup lineup(snapshot, shares, by_time);
  std::uint64_t taken = 0;
  for (const JobView* job = lineup.next(); job != nullptr; job = lineup.next()) {
    ++taken;
    shares.add(*job, whole_share);
  }
  EXPECT_EQ(taken, sizes.jobs);
  return lineup.compared();
}

TEST(Lineup, ManyUsersCostLittleMoreThanFew) {
  const std::uint64_t few = compared_with({.users = 400, .jobs = 40'000});
  const std::uint64_t many = compared_with({.users = 40'000, .jobs = 40'000});
  EXPECT_LT(many, 3 * few);
  EXPECT_LT(many, 40'000 * compared_per_job_max);
}

TEST(Lineup, ManyQueuesAndPrioritiesCostLittleMoreThanFew) {
  EXPECT_LT(compared_with({.queues = 1000, .users = 20'000, .jobs = 40'000}), 40'000 * compared_per_job_max);
  EXPECT_LT(compared_with({.users = 1, .priorities = 20'000, .jobs = 40'000}), 40'000 * compared_per_job_max);
}

}  // namespace
}  // namespace tutti::sched
