#include "learn/train/resume.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "comm/ranks_test.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/initial_values.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

const model::Shape tiny = model::make_shape(
    "gpt2", {.vocabulary = 61, .layers = 1, .hidden = 32, .heads = 4, .intermediate = 96, .context = 16});

// Two ranks on two nodes, n0 and n1, that fill a model each; what each of them was told.
std::array<Filled, 2> fill_two(const std::function<void(int rank)>& before_a_read, Duration deadline = 60s) {
  comm::Meeting meeting(2);
  meeting.options().deadline = deadline;
  std::array<Filled, 2> told;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&told, &before_a_read, rank, options = meeting.of(rank)]() mutable {
      options.node = "n" + std::to_string(rank);
      auto world = comm::Communicator::connect(options);
      ASSERT_TRUE(world.ok()) << world.error().text();
      Groups alone;
      Transformer model({.setup = Setup::make(tiny, alone, 1, tiny.context, at::kCPU)}, alone);
      const Parameters::Source source = [&](Kind, const model::Tensor&, const checkpoint::Box&,
                                            std::span<float> out) {
        before_a_read(rank);
        std::fill(out.begin(), out.end(), 0.0F);
      };
      const auto filled = caught([&] { return fill_everywhere(*world, model.parameters(), source, true); });
      ASSERT_TRUE(filled.ok()) << filled.error().text();
      told[static_cast<std::size_t>(rank)] = *filled;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return told;
}

TEST(Resume, WhatOneRankAloneReadsWrongIsNoDamage) {
  for (const int bad : {0, 1}) {
    for (const Filled& filled : fill_two([&](int rank) {
           if (rank == bad) throw Failure(damaged("block 3 is damaged"));
         })) {
      EXPECT_FALSE(filled.damaged);
      const std::string n = std::to_string(bad);
      const std::string other = std::to_string(1 - bad);
      EXPECT_EQ(filled.problem, "rank " + n + " on node n" + n + ": block 3 is damaged; rank " + other +
                                    " on node n" + other + " reads it as it was written: it is not the disk");
    }
  }
}

TEST(Resume, WhatAnotherNodeReadsWrongTooIsDamage) {
  for (const Filled& filled : fill_two([](int) { throw Failure(damaged("block 3 is damaged")); })) {
    EXPECT_TRUE(filled.damaged);
    EXPECT_EQ(filled.problem, "rank 0 on node n0: block 3 is damaged; rank 1 on node n1: block 3 is damaged");
  }
}

// The deadline of an operation is for ranks that are in step, and one of these reads three times as long.
TEST(Resume, RanksThatReadAtDifferentSpeedsMeet) {
  constexpr Duration of_an_operation = std::chrono::milliseconds(200);
  std::atomic<bool> slept{false};
  const auto told = fill_two(
      [&](int rank) {
        if (rank == 1 && !slept.exchange(true)) std::this_thread::sleep_for(3 * of_an_operation);
      },
      of_an_operation);
  for (const Filled& filled : told) EXPECT_EQ(filled.problem, "");
}

}  // namespace
}  // namespace tutti::train
