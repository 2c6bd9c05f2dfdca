// The protocol of ranks that share a device, on a device that is threads of this host.
#include "comm/device_share.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "comm/fake_device_test.hpp"
#include "comm/watchdog.hpp"

namespace tutti::comm {
namespace {

constexpr std::size_t small_half = 4096;  // many chunks

// The ranks of a group: their pages and staging memory, which all of them reach.
class SharedDevice {
 public:
  explicit SharedDevice(int size, std::size_t half = small_half) : lines_(static_cast<std::size_t>(size)) {
    std::vector<DeviceShare::Peer> peers;
    std::vector<std::byte*> stagings;
    for (auto& line : lines_) {
      line = std::make_unique<DeviceLine>();
      peers.push_back({line.get(), nullptr});
      memory_.emplace_back(2 * half);
    }
    for (auto& memory : memory_) stagings.push_back(memory.data());
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<DeviceShare>(peers, rank));
      ranks_.back()->use_staging(stagings, half);
    }
  }
  DeviceShare& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  DeviceLine& line(int rank) { return *lines_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<DeviceLine>> lines_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<DeviceShare>> ranks_;
};

void await_that(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::yield();
  }
}

using Numbers = std::vector<std::int32_t>;

std::byte* bytes_of(Numbers& numbers) { return reinterpret_cast<std::byte*>(numbers.data()); }

// What rank r gives at place i.
std::int32_t given(int rank, std::size_t i) { return static_cast<std::int32_t>(i) * 7 + rank * 1000003; }

Numbers input(int rank, std::size_t count) {
  Numbers all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = given(rank, i);
  return all;
}

class DeviceShares : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, DeviceShares, testing::Values(1, 2, 3, 4));

// Every operation, in and out of place, in one chunk and in many, all in line before any of them is waited
// for.
TEST_P(DeviceShares, EveryOperationIsRightHoweverItIsCut) {
  const int size = GetParam();
  const auto all = static_cast<std::size_t>(size);
  SharedDevice shared(size);
  struct Step {
    Call call;
    Numbers in;
    Numbers out;
    Numbers expected;
  };
  std::vector<std::deque<Step>> steps(all);
  const int root = size - 1;
  for (const std::size_t count : {0UL, 1UL, 100UL, 1024UL, 5000UL}) {
    for (const Operation operation :
         {Operation::all_reduce, Operation::reduce, Operation::reduce_scatter, Operation::all_gather,
          Operation::broadcast, Operation::all_to_all, Operation::gather, Operation::scatter}) {
      for (const bool in_place : {false, true}) {
        for (int rank = 0; rank < size; ++rank) {
          const auto me = static_cast<std::size_t>(rank);
          Step step;
          step.call = {.operation = operation, .count = count, .type = DataType::i32, .root = root};
          std::size_t in = count;
          std::size_t out = count;
          std::size_t in_at = 0;  // of the whole, where the smaller one lies in place
          std::size_t out_at = 0;
          const auto sum = [&](std::size_t from) {
            for (std::size_t i = 0; i < count; ++i) {
              std::int32_t total = 0;
              for (int other = 0; other < size; ++other) total += given(other, from + i);
              step.expected.push_back(total);
            }
          };
          const auto block = [&](int from, std::size_t at) {
            for (std::size_t i = 0; i < count; ++i) step.expected.push_back(given(from, at + i));
          };
          switch (operation) {
            case Operation::all_reduce:
              sum(0);
              break;
            case Operation::reduce:
              if (rank == root) sum(0);
              break;
            case Operation::reduce_scatter:
              in = count * all;
              out_at = me * count;
              sum(me * count);
              break;
            case Operation::all_gather:
            case Operation::gather:
              out = count * all;
              in_at = me * count;
              for (int other = 0; operation == Operation::all_gather || rank == root; ++other) {
                if (other == size) break;
                block(other, 0);
              }
              break;
            case Operation::broadcast:
              block(root, 0);
              break;
            case Operation::all_to_all:
              in = out = count * all;
              for (int other = 0; other < size; ++other) block(other, me * count);
              break;
            case Operation::scatter:
              in = count * all;
              out_at = me * count;
              block(root, me * count);
              break;
            case Operation::send:
            case Operation::recv:
            case Operation::barrier:
              break;
          }
          step.in = input(rank, in);
          if (in_place || operation == Operation::broadcast) {
            if (in_at > 0 || out > in) {  // the input is a block of the output
              Numbers whole(out, -1);
              std::copy(step.in.begin(), step.in.end(), whole.begin() + static_cast<std::ptrdiff_t>(in_at));
              step.in = whole;
            }
          } else {
            step.out.assign(out, -1);
            in_at = out_at = 0;
          }
          steps[me].push_back(std::move(step));
          Step& kept = steps[me].back();
          Numbers& target = kept.out.empty() ? kept.in : kept.out;
          kept.call.in = bytes_of(kept.in) + 4 * in_at;
          kept.call.out = bytes_of(target) + 4 * out_at;
        }
      }
    }
  }
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      FakeQueue queue;
      Ticket ticket;
      for (Step& step : steps[static_cast<std::size_t>(rank)]) {
        const auto put = shared.rank(rank).enqueue(queue, step.call, step.call.fingerprint(), ticket);
        ASSERT_TRUE(put.ok()) << put.text;
      }
      await_that([&] { return shared.rank(rank).finished(ticket); });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < size; ++rank) {
    for (const Step& step : steps[static_cast<std::size_t>(rank)]) {
      Numbers got(step.expected.size());
      if (!got.empty()) std::memcpy(got.data(), step.call.out, got.size() * 4);
      EXPECT_EQ(got, step.expected) << name_of(step.call.operation) << " of " << step.call.count
                                    << (step.out.empty() ? " in place" : "") << " on rank " << rank;
    }
  }
}

TEST(DeviceShareMessages, ASenderIsAheadByTwoChunksAndNoMore) {
  SharedDevice shared(2);
  FakeQueue sender;
  FakeQueue receiver;
  constexpr std::size_t count = 3 * small_half / 4;  // three chunks
  Numbers data = input(0, count);
  Numbers got(count);
  Ticket sent;
  Ticket received;
  const Call send{.operation = Operation::send, .in = bytes_of(data), .count = count, .type = DataType::i32};
  const Call recv{.operation = Operation::recv, .out = bytes_of(got), .count = count, .type = DataType::i32};
  ASSERT_TRUE(shared.rank(0).enqueue(sender, send, send.fingerprint(), sent).ok());
  await_that([&] { return shared.line(0).finished.reached(sent.first + 1); });
  EXPECT_FALSE(shared.rank(0).finished(sent));
  EXPECT_EQ(shared.rank(0).missing(sent), 1);
  ASSERT_TRUE(shared.rank(1).enqueue(receiver, recv, recv.fingerprint(), received).ok());
  await_that([&] { return shared.rank(0).finished(sent) && shared.rank(1).finished(received); });
  EXPECT_EQ(got, data);
  EXPECT_EQ(shared.rank(1).missing(received), -1);
}

TEST(DeviceShareMessages, WhoCallsSomethingElseIsNamedByTheLater) {
  SharedDevice shared(2);
  FakeQueue first;
  FakeQueue second;
  Numbers data(10);
  Ticket ticket;
  const Call sum{.operation = Operation::all_reduce,
                 .in = bytes_of(data),
                 .out = bytes_of(data),
                 .count = 10,
                 .type = DataType::i32};
  Call other = sum;
  other.count = 9;
  ASSERT_TRUE(shared.rank(0).enqueue(first, sum, sum.fingerprint(), ticket).ok());
  const auto refused = shared.rank(1).enqueue(second, other, other.fingerprint(), ticket);
  EXPECT_EQ(refused.kind, Outcome::Kind::mismatch);
  EXPECT_EQ(refused.member, 0);
  shared.rank(0).release();
}

// A group as the watchdog sees it.
class WatchedShare : public Watched {
 public:
  explicit WatchedShare(DeviceShare& share) : share_(share) {}
  bool began(const Ticket& ticket) const override { return share_.began(ticket); }
  bool finished(const Ticket& ticket) const override { return share_.finished(ticket); }
  int missing(const Ticket& ticket) const override { return share_.missing(ticket); }
  std::string problem() override { return ""; }
  void release() override { share_.release(); }
  bool poisoned() const override { return share_.poisoned(); }

 private:
  DeviceShare& share_;
};

struct Blamed {
  Fault fault;
  std::atomic<int> member{-2};
  std::atomic<int> started{0};
  std::atomic<int> ended{0};
  Watchdog watchdog{fault,
                    {.started = [this](auto, auto) { ++started; },
                     .ended = [this](auto, auto) { ++ended; },
                     .blame =
                         [this](const OperationRecord&, auto, const Outcome& outcome) {
                           member = outcome.member;
                           fault.raise("late");
                         }}};
};

TEST(WatchdogTest, ARankThatDoesNotComeIsNamedAndNobodyWaitsForIt) {
  SharedDevice shared(3);
  FakeQueue queues[2];
  Numbers data[2] = {Numbers(10), Numbers(10)};
  Blamed blamed;
  std::vector<std::shared_ptr<WatchedShare>> groups;
  for (int rank = 0; rank < 2; ++rank) {
    groups.push_back(std::make_shared<WatchedShare>(shared.rank(rank)));
    blamed.watchdog.know(groups.back());
    for (int round = 0; round < 2; ++round) {
      const Call sum{.operation = Operation::all_reduce,
                     .in = bytes_of(data[rank]),
                     .out = bytes_of(data[rank]),
                     .count = 10,
                     .type = DataType::i32};
      Ticket ticket;
      ASSERT_TRUE(shared.rank(rank).enqueue(queues[rank], sum, sum.fingerprint(), ticket).ok());
      blamed.watchdog.watch({groups.back(), ticket, 0, {}, std::chrono::milliseconds(50)});
    }
  }
  await_that([&] { return blamed.ended == 4; });
  EXPECT_EQ(blamed.member, 2);
  EXPECT_EQ(blamed.started, 4);
  EXPECT_EQ(shared.line(2).poisoned.value, 1U);  // rank 2 learns that what it gets is garbage
  EXPECT_TRUE(blamed.watchdog.poisoned());       // and so do the two of one another
}

// What the caller computes before an operation is its own time.
TEST(WatchdogTest, ADeadlineCountsFromWhenTheDeviceComesToTheOperation) {
  SharedDevice shared(1);
  FakeQueue queue;
  Blamed blamed;
  Numbers data(10);
  std::atomic<bool> computed{false};
  ASSERT_TRUE(queue.put([&] { await_that([&] { return computed.load(); }); }).ok());
  const Call sum{.operation = Operation::all_reduce,
                 .in = bytes_of(data),
                 .out = bytes_of(data),
                 .count = 10,
                 .type = DataType::i32};
  Ticket ticket;
  ASSERT_TRUE(shared.rank(0).enqueue(queue, sum, sum.fingerprint(), ticket).ok());
  const auto group = std::make_shared<WatchedShare>(shared.rank(0));
  blamed.watchdog.watch({group, ticket, 0, {}, std::chrono::nanoseconds(1)});
  // Operations of others that come and go show that it is looked at.
  SharedDevice others(1);
  FakeQueue other_queue;
  const auto other_group = std::make_shared<WatchedShare>(others.rank(0));
  for (int look = 1; look <= 20; ++look) {
    ASSERT_TRUE(others.rank(0).enqueue(other_queue, sum, sum.fingerprint(), ticket).ok());
    blamed.watchdog.watch({other_group, ticket, 0, {}, std::chrono::seconds(60)});
    await_that([&] { return blamed.ended == look; });
  }
  EXPECT_FALSE(blamed.fault.raised());
  EXPECT_EQ(blamed.started, 20);
  computed = true;
  await_that([&] { return blamed.ended == 21; });
}

TEST(WatchdogTest, AnotherRanksFaultLetsGoAtOnce) {
  SharedDevice shared(2);
  FakeQueue queue;
  Blamed blamed;
  Numbers data(10);
  const Call sum{.operation = Operation::all_reduce,
                 .in = bytes_of(data),
                 .out = bytes_of(data),
                 .count = 10,
                 .type = DataType::i32};
  Ticket ticket;
  ASSERT_TRUE(shared.rank(0).enqueue(queue, sum, sum.fingerprint(), ticket).ok());
  blamed.watchdog.watch(
      {std::make_shared<WatchedShare>(shared.rank(0)), ticket, 0, {}, std::chrono::minutes(10)});
  await_that([&] { return blamed.started == 1; });
  blamed.fault.raise("rank 1 on node n1 died");
  await_that([&] { return blamed.ended == 1; });
  EXPECT_EQ(blamed.member, -2);  // nobody was asked
}

}  // namespace
}  // namespace tutti::comm
