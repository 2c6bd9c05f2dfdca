// Jobs that are large or many: what a turn writes and how much of it, and what an earlier version had stored.
#include <gtest/gtest.h>

#include "control/driver/turns.hpp"
#include "control/store/memory/memory_store.hpp"
#include "control/wire/objects.hpp"

namespace tutti::driver {
namespace {

// A store that counts what it is given, and may be told that its file is gone.
struct CountingStore final : store::Store {
  store::MemoryStore memory;
  std::size_t bytes = 0;
  bool moved = false;

  Result<std::uint64_t> read(const Each& each) override { return memory.read(each); }
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override {
    if (moved) return {store::CommitResult::Status::unknown, 0, "it was moved away"};
    for (const store::Write& write : writes)
      bytes += write.key.size() + (write.value ? write.value->size() : 0);
    return memory.commit(revision, writes);
  }
  Result<> tidy() override {
    if (moved) return failed("it was moved away").remedy("put it back");
    return {};
  }
};

struct LargeJobsTest : testing::Test {
  CountingStore store;
  Instant now{1000s};
  Turns turns{store, [this] { return now; }};

  void SetUp() override { ASSERT_TRUE(turns.load().ok()); }

  static cluster::JobSpec spec(std::size_t command_bytes = 1) {
    cluster::JobSpec spec;
    spec.command = {"true", std::string(command_bytes, 'x')};
    return spec;
  }
  Turns::Outcome happen(std::vector<cluster::Event> events) {
    std::vector<Item> items;
    for (cluster::Event& event : events) items.push_back({std::move(event), nullptr, nullptr});
    return turns.turn(std::move(items), false);
  }
  std::size_t written(std::vector<cluster::Event> events) {
    const std::size_t before = store.bytes;
    happen(std::move(events));
    return store.bytes - before;
  }
  const cluster::State& state() const { return turns.state(); }
};

TEST_F(LargeJobsTest, TheEndOfAJobWithLargeDependentsWritesLittle) {
  happen({cluster::Submit{{spec()}}});
  cluster::JobSpec needs = spec(100'000);
  needs.after = {{cluster::JobId(1), true}};
  for (int job = 0; job < 900; ++job) happen({cluster::Submit{{needs}}});
  ASSERT_EQ(state().active.size(), 901U);
  EXPECT_LT(written({cluster::Cancel{cluster::JobId(1), "", false}}), 900U * 300);
  EXPECT_TRUE(state().active.empty());
}

TEST_F(LargeJobsTest, AnArrayIsWrittenOnceAndNotForEachElement) {
  cluster::Submit array;
  for (std::int32_t index = 0; index < 1'000; ++index) {
    array.specs.push_back(spec(100'000));
    array.specs.back().array = cluster::ArrayPart{{}, index, 1'000, 0};
  }
  EXPECT_LT(written({array}), 100'000U + 1'000 * 300);
  Turns again(store, [this] { return now; });
  ASSERT_TRUE(again.load().ok());
  EXPECT_EQ(again.state().jobs, state().jobs);
  EXPECT_EQ(again.state().bytes, state().bytes);
}

TEST_F(LargeJobsTest, ThousandsOfDependentsEndOverSeveralTurns) {
  happen({cluster::Submit{{spec()}}});
  cluster::JobSpec needs = spec();
  needs.after = {{cluster::JobId(1), true}};
  std::vector<cluster::Event> many(3 * cluster::doomed_per_step_max, cluster::Submit{{needs}});
  happen(std::move(many));
  happen({cluster::Cancel{cluster::JobId(1), "", false}});
  EXPECT_EQ(state().active.size(), 2 * cluster::doomed_per_step_max);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(turns.patience(), Duration::zero()) << "the next ones are not made to wait";
    happen({});
  }
  EXPECT_TRUE(state().active.empty());
  EXPECT_GT(turns.patience(), Duration::zero());
}

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 128; number /= 128) bytes += static_cast<char>(number % 128 + 128);
  return bytes + static_cast<char>(number);
}

// With the spec inside, as an earlier version wrote it.
std::string as_earlier(const cluster::Job& job) {
  const std::string spec = wire::encode_asked(job.spec);
  constexpr std::uint64_t spec_tag = 2 << 3 | 2;
  constexpr std::uint64_t spec_apart_tag = 190 << 3;
  return wire::encode(job) + varint(spec_tag) + varint(spec.size()) + spec + varint(spec_apart_tag) +
         varint(0);
}

TEST_F(LargeJobsTest, AStoreOfAnEarlierVersionIsRenewedBeforeAnythingChanges) {
  for (int job = 0; job < 2'500; ++job) happen({cluster::Submit{{spec()}}});
  const auto jobs = state().jobs;
  std::vector<store::Write> old;
  for (const auto& [id, job] : jobs) {
    old.push_back({wire::asked_key(id), std::nullopt});
    old.push_back({wire::job_key(id), as_earlier(job)});
  }
  ASSERT_EQ(store.memory.commit(store.memory.load()->revision, old).status,
            store::CommitResult::Status::done);
  Turns fresh(store, [this] { return now; });
  ASSERT_TRUE(fresh.load().ok());
  EXPECT_EQ(fresh.state().jobs, jobs);
  EXPECT_TRUE(fresh.state().stored_whole.empty());
  const auto contents = *store.load();
  EXPECT_TRUE(contents.objects.contains(wire::asked_key(cluster::JobId(2'500))));
  std::vector<Item> items;
  items.push_back({cluster::Cancel{cluster::JobId(1), "", false}, nullptr, nullptr});
  fresh.turn(std::move(items), false);
  Turns again(store, [this] { return now; });
  ASSERT_TRUE(again.load().ok());
  EXPECT_EQ(again.state().jobs.at(cluster::JobId(1)).state, cluster::JobState::cancelled);
}

TEST_F(LargeJobsTest, AStoreThatIsGoneIsNoticedAlsoWhenNothingHappens) {
  turns.rest();
  store.moved = true;
  now += 11s;
  turns.rest();
  EXPECT_FALSE(turns.health().ok);
  EXPECT_EQ(turns.health().error, "it was moved away: put it back");
  happen({cluster::Submit{{spec()}}});
  EXPECT_TRUE(state().jobs.empty());
  store.moved = false;
  now += 2s;
  happen({});
  EXPECT_TRUE(turns.health().ok) << "it was put back";
}

}  // namespace
}  // namespace tutti::driver
