#include "learn/train/gradients.hpp"

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include "comm/ranks_test.hpp"
#include "learn/train/failure.hpp"

namespace tutti::train {
namespace {

constexpr int replicas = 4;
constexpr std::int64_t size = 8;

// What the replicas' gradients of one vector add up to, on a rank that owns all of it or a part. Rank 0 has
// 256, the others 1: in bf16, which has eight bits, 256 + 1 is 256.
double summed(Zero zero, at::ScalarType type, int microbatches) {
  double most = 0;  // what lies behind the vector, so that the parts are equal, is zero
  std::mutex mutex;
  comm::run_threads(replicas, comm::Transport::automatic, [&](comm::Communicator& world) {
    const auto done = caught([&] {
      const double mine = world.rank() == 0 ? 256 : 1;
      Groups groups = Groups::make(world, {.data = replicas});
      Workspace workspace(groups, {.zero = zero, .type = type, .microbatches = microbatches});
      const Layout layout({{.name = "scale", .shape = {size}}}, Role::single, {}, replicas);
      const Range owned = zero == Zero::none ? layout.whole() : layout.part(groups.data.rank());
      Gradients gradients(workspace, layout, owned);
      for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
        gradients.of(layout.view({"scale"})).add_(mine);
        gradients.backward_done(microbatch + 1 == microbatches);
      }
      workspace.settle(0);
      gradients.finish();
      const at::Tensor sums = gradients.owned();
      EXPECT_EQ(sums.scalar_type(), at::kFloat);
      const std::lock_guard lock(mutex);
      most = std::max(most, sums.max().item<double>());
    });
    EXPECT_TRUE(done.ok()) << done.error().text();
  });
  return most;
}

TEST(Gradients, OfReplicasAreSummedInF32WhateverThePrecision) {
  for (const Zero zero : {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const int microbatches : {1, 2}) {
        // Between reductions the host adds f32 alone: bf16 is for GPUs.
        if (type == at::kBFloat16 && microbatches > 1 && zero < Zero::gradients) continue;
        EXPECT_EQ(summed(zero, type, microbatches), microbatches * (256 + replicas - 1))
            << "zero " << static_cast<int>(zero) << ", " << microbatches << " microbatches";
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train
