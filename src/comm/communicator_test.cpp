#include "comm/communicator.hpp"

#include <atomic>
#include <cmath>
#include <random>

#include "comm/ranks_test.hpp"
#include "comm/reference_test.hpp"

namespace tutti::comm {
namespace {

struct Shape {
  int ranks;
  Transport transport;
};

class Everything : public testing::TestWithParam<Shape> {};

TEST_P(Everything, AsThreads) { run_threads(GetParam().ranks, GetParam().transport, check_everything); }

std::string shape_name(const testing::TestParamInfo<Shape>& info) {
  const char* const transport = info.param.transport == Transport::tcp ? "Tcp" : "Shm";
  return transport + std::to_string(info.param.ranks);
}

std::vector<Shape> shapes(int first, int last, Transport transport) {
  std::vector<Shape> all;
  for (int ranks = first; ranks <= last; ++ranks) all.push_back({ranks, transport});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shm, Everything, testing::ValuesIn(shapes(1, 8, Transport::shm)), shape_name);
INSTANTIATE_TEST_SUITE_P(Tcp, Everything, testing::ValuesIn(shapes(2, 8, Transport::tcp)), shape_name);

TEST(Communicator, RunsInProcessesOfTheirOwn) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    Meeting meeting(4, transport);
    RankProcesses ranks(meeting, check_everything);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(ranks.wait(rank), 0);
  }
}

// Sums of such numbers depend on their order.
std::vector<float> awkward(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::vector<float> data(count);
  for (float& value : data) value = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0F : -1.0F);
  return data;
}

TEST(Communicator, SumsAreBitForBitThoseOfAddingInTheOrderOfTheRanks) {
  constexpr std::size_t count = 300'001;
  std::vector<float> expected = awkward(0, count);
  for (int rank = 1; rank < 4; ++rank) {
    const auto data = awkward(rank, count);
    for (std::size_t i = 0; i < count; ++i) expected[i] += data[i];
  }
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    run_threads(4, transport, [&](Communicator& world) {
      const auto mine = awkward(world.rank(), count);
      for (const std::size_t part : {100UL, 10'000UL, count}) {
        std::vector<float> sum(part);
        ASSERT_TRUE(
            world.all_reduce(mine.data(), sum.data(), part, DataType::f32, Reduction::sum).wait().ok());
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), part * sizeof(float)), 0) << part;
      }
    });
  }
}

TEST(Communicator, SharedBuffersGiveTheSameResults) {
  run_threads(3, Transport::shm, [](Communicator& world) {
    constexpr std::size_t count = 300'003;
    constexpr std::size_t bytes = count * sizeof(float);
    auto in = allocate(bytes * 3);
    auto out = allocate(bytes * 3);
    ASSERT_TRUE(in.ok() && out.ok());
    const auto mine = make(DataType::f32, world.rank(), count * 3);
    const auto refill = [&] { std::memcpy(in->data(), mine.data(), mine.size()); };
    const auto sum = reduced(DataType::f32, Reduction::sum, 3, 0, count);
    const auto same = [&](const std::byte* data, const std::vector<std::byte>& expected) {
      return std::memcmp(data, expected.data(), expected.size()) == 0;
    };
    for (int round = 0; round < 3; ++round) {
      refill();
      ASSERT_TRUE(
          world.all_reduce(in->data(), out->data(), count, DataType::f32, Reduction::sum).wait().ok());
      EXPECT_TRUE(same(out->data(), sum));
      ASSERT_TRUE(world.all_reduce(in->data(), in->data(), count, DataType::f32, Reduction::sum).wait().ok());
      EXPECT_TRUE(same(in->data(), sum));
      refill();
      ASSERT_TRUE(world.reduce(in->data(), out->data(), count, DataType::f32, Reduction::sum, 1).wait().ok());
      if (world.rank() == 1) {
        EXPECT_TRUE(same(out->data(), sum));
      }
      ASSERT_TRUE(
          world.reduce_scatter(in->data(), out->data(), count, DataType::f32, Reduction::sum).wait().ok());
      EXPECT_TRUE(same(out->data(), reduced(DataType::f32, Reduction::sum, 3,
                                            count * static_cast<std::size_t>(world.rank()), count)));
      ASSERT_TRUE(world.all_gather(in->data(), out->data(), count, DataType::f32).wait().ok());
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_TRUE(
            same(out->data() + static_cast<std::size_t>(rank) * bytes, make(DataType::f32, rank, count)));
      }
      ASSERT_TRUE(world.broadcast(in->data(), count, DataType::f32, 2).wait().ok());
      EXPECT_TRUE(same(in->data(), make(DataType::f32, 2, count)));
    }
  });
}

// One rank keeps its data where the others cannot reach it: all must agree on the way that works for it.
TEST(Communicator, SharedAndOrdinaryBuffersMix) {
  run_threads(3, Transport::shm, [](Communicator& world) {
    constexpr std::size_t count = 300'003;
    auto shared = allocate(count * sizeof(float));
    ASSERT_TRUE(shared.ok());
    std::vector<std::byte> ordinary(count * sizeof(float));
    std::byte* const data = world.rank() == 1 ? ordinary.data() : shared->data();
    const auto mine = make(DataType::f32, world.rank(), count);
    std::memcpy(data, mine.data(), mine.size());
    ASSERT_TRUE(world.all_reduce(data, data, count, DataType::f32, Reduction::sum).wait().ok());
    const auto sum = reduced(DataType::f32, Reduction::sum, 3, 0, count);
    EXPECT_EQ(std::memcmp(data, sum.data(), sum.size()), 0);
  });
}

TEST(Communicator, SeveralOperationsAreInFlight) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    run_threads(3, transport, [](Communicator& world) {
      constexpr std::size_t counts[] = {10, 200'000, 1000, 100'000};
      std::vector<std::vector<float>> data;
      std::vector<Work> works;
      for (const std::size_t count : counts) data.emplace_back(count, static_cast<float>(world.rank()));
      for (auto& one : data) {
        works.push_back(world.all_reduce(one.data(), one.data(), one.size(), DataType::f32, Reduction::sum));
      }
      // Waited for backwards: the order of waiting does not matter.
      for (auto work = works.rbegin(); work != works.rend(); ++work) ASSERT_TRUE(work->wait().ok());
      for (const auto& one : data) EXPECT_EQ(one, std::vector<float>(one.size(), 3.0F));
    });
  }
}

// An operation that nobody waits for goes on by itself: the peer's wait ends while this rank computes.
TEST(Communicator, WorkGoesOnWithoutAWaiter) {
  for (const std::size_t count : {10UL, 20'000UL, 500'000UL}) {
    std::atomic<bool> peer_done{false};
    run_threads(2, Transport::shm, [&](Communicator& world) {
      std::vector<float> data(count, 1.0F);
      Work work = world.all_reduce(data.data(), data.data(), count, DataType::f32, Reduction::sum);
      if (world.rank() == 0) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!peer_done && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        EXPECT_TRUE(peer_done);
      }
      ASSERT_TRUE(work.wait().ok());
      EXPECT_EQ(data.back(), 2.0F);
      if (world.rank() == 1) peer_done = true;
    });
  }
}

TEST(Communicator, GroupsAreIndependent) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    run_threads(6, transport, [](Communicator& world) {
      const int rank = world.rank();
      auto rows = world.split(rank / 3, rank, "row");
      auto columns = world.split(rank % 3, -rank, "column");
      ASSERT_TRUE(rows.ok() && columns.ok());
      EXPECT_EQ(rows->size(), 3);
      EXPECT_EQ(rows->rank(), rank % 3);
      EXPECT_EQ(columns->size(), 2);
      EXPECT_EQ(columns->rank(), rank < 3 ? 1 : 0);  // the keys turn the order round
      EXPECT_EQ(rows->name(), "row");
      float row = static_cast<float>(rank);
      float column = static_cast<float>(rank);
      // In opposite orders on different ranks: only inside a group does the order count.
      Work first = rank % 2 == 0 ? rows->all_reduce(&row, &row, 1, DataType::f32, Reduction::sum)
                                 : columns->all_reduce(&column, &column, 1, DataType::f32, Reduction::sum);
      Work second = rank % 2 == 0 ? columns->all_reduce(&column, &column, 1, DataType::f32, Reduction::sum)
                                  : rows->all_reduce(&row, &row, 1, DataType::f32, Reduction::sum);
      ASSERT_TRUE(second.wait().ok());
      ASSERT_TRUE(first.wait().ok());
      EXPECT_EQ(row, rank < 3 ? 3.0F : 12.0F);
      EXPECT_EQ(column, static_cast<float>(rank % 3 * 2 + 3));
      auto alone = rows->split(rank, 0);
      ASSERT_TRUE(alone.ok());
      EXPECT_EQ(alone->size(), 1);
      EXPECT_TRUE(alone->barrier().wait().ok());
    });
  }
}

TEST(Communicator, WrongCallsAreRefusedWithoutHarm) {
  run_threads(2, Transport::shm, [](Communicator& world) {
    float value = 1;
    EXPECT_FALSE(world.broadcast(&value, 1, DataType::f32, 2).wait().ok());
    EXPECT_FALSE(world.send(&value, 1, DataType::f32, world.rank()).wait().ok());
    EXPECT_FALSE(world.recv(&value, 1, DataType::f32, -1).wait().ok());
    std::vector<float> data(8);
    const int other = 1 - world.rank();
    EXPECT_FALSE(world.all_gather(data.data() + other * 4, data.data(), 4, DataType::f32).wait().ok());
    EXPECT_FALSE(world.reduce_scatter(data.data(), data.data() + other * 4, 4, DataType::f32, Reduction::sum)
                     .wait()
                     .ok());
    EXPECT_FALSE(
        world.all_reduce(data.data(), data.data() + 1, 4, DataType::f32, Reduction::sum).wait().ok());
    EXPECT_TRUE(world.all_reduce(&value, &value, 1, DataType::f32, Reduction::sum).wait().ok());
    EXPECT_EQ(value, 2.0F);
  });
}

TEST(Options, AreReadFromTheEnvironmentOfARank) {
  const auto set = [](const char* name, const char* value) {
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  };
  const auto read = [&](const char* rank, const char* size, const char* address, const char* port) {
    set("RANK", rank);
    set("WORLD_SIZE", size);
    set("MASTER_ADDR", address);
    set("MASTER_PORT", port);
    return Options::from_environment();
  };
  auto good = read("3", "8", "10.0.0.1", "29400");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->rank, 3);
  EXPECT_EQ(good->size, 8);
  EXPECT_EQ(good->master_address, "10.0.0.1");
  EXPECT_EQ(good->master_port, 29400);
  EXPECT_TRUE(read("0", "1", nullptr, nullptr).ok());
  EXPECT_EQ(read(nullptr, "8", "a", "1").error().text(), "RANK is not set");
  EXPECT_EQ(read("8", "8", "a", "1").error().text(), "RANK is '8'");
  EXPECT_EQ(read("0", "2x", "a", "1").error().text(), "WORLD_SIZE is '2x'");
  EXPECT_EQ(read("0", "2", nullptr, "1").error().text(), "MASTER_ADDR is not set");
  EXPECT_EQ(read("0", "2", "a", "65536").error().text(), "MASTER_PORT is '65536'");
}

}  // namespace
}  // namespace tutti::comm
