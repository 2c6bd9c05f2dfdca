#include <map>

#include <gtest/gtest.h>

#include "learn/model/llama_1b_test.hpp"
#include "serve/cuda/model.hpp"
#include "serve/cuda/scratch.hpp"
#include "serve/cuda/sizes.hpp"
#include "serve/cuda/weights.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr std::uint64_t gigabyte = 1'000'000'000;
constexpr int multiprocessors = 132;
constexpr std::int64_t context = 2048;

TEST(PlanMemory, FillsItsBudgetWithBlocks) {
  const model::Shape shape = model::llama_1b(context);
  // A position: keys and values of 22 layers, 4 heads and 64 numbers of two bytes.
  constexpr std::uint64_t block_bytes = 16 * 2 * 22 * 4 * 64 * 2;
  const auto plan = plan_memory(shape, {}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(plan) << plan.error().text();
  EXPECT_EQ(plan->context, 2048);
  EXPECT_EQ(plan->cache_bytes, static_cast<std::uint64_t>(plan->blocks + 1) * block_bytes);
  const std::uint64_t taken = plan->weights_bytes + plan->scratch_bytes + plan->cache_bytes;
  EXPECT_LE(taken, 90 * gigabyte);
  EXPECT_GE(taken, 88 * gigabyte);
  const auto told = plan_memory(shape, {.memory_bytes = 8 * gigabyte}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(told) << told.error().text();
  EXPECT_LE(told->weights_bytes + told->scratch_bytes + told->cache_bytes, 8 * gigabyte);
  const auto few = plan_memory(shape, {.blocks_max = 300}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(few);
  EXPECT_EQ(few->blocks, 300);
}

TEST(PlanMemory, ACacheThatWasAskedForIsNoLarger) {
  const model::Shape shape = model::llama_1b(context);
  constexpr std::uint64_t block_bytes = 16 * 2 * 22 * 4 * 64 * 2;
  const auto plan = plan_memory(shape, {.cache_bytes = gigabyte}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(plan) << plan.error().text();
  EXPECT_LE(plan->cache_bytes, gigabyte);
  EXPECT_GT(plan->cache_bytes + block_bytes, gigabyte);
  EXPECT_EQ(plan->cache_bytes, static_cast<std::uint64_t>(plan->blocks + 1) * block_bytes);
  const auto too_large = plan_memory(shape, {.cache_bytes = 100 * gigabyte}, 100 * gigabyte, multiprocessors);
  ASSERT_FALSE(too_large);
  EXPECT_NE(too_large.error().text().find("the cache takes"), std::string::npos) << too_large.error().text();
  const auto too_small = plan_memory(shape, {.cache_bytes = 1'000'000}, 100 * gigabyte, multiprocessors);
  ASSERT_FALSE(too_small);
  EXPECT_NE(too_small.error().text().find("one sequence of 2048 tokens"), std::string::npos);
  EXPECT_NE(too_small.error().remedy().find("--cache"), std::string::npos);
}

TEST(PlanMemory, CountsEachWeightOnce) {
  const model::Shape shape = model::llama_1b(context);
  const auto plan = plan_memory(shape, {}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(plan);
  const auto parameters = static_cast<std::uint64_t>(model::parameters(shape));
  EXPECT_GE(plan->weights_bytes, 2 * parameters);
  EXPECT_LE(plan->weights_bytes, 2 * parameters + gigabyte / 100);
  const auto floats = plan_memory(shape, {.type = Type::f32}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(floats);
  EXPECT_GE(floats->weights_bytes, 4 * parameters);
}

TEST(PlanMemory, Fp8IsAByteAWeightOfTheLayers) {
  const model::Shape shape = model::llama_1b(context);
  const auto plain = plan_memory(shape, {}, 100 * gigabyte, multiprocessors);
  const auto plan = plan_memory(shape, {.is_fp8 = true}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(plain && plan);
  const auto looked_up = static_cast<std::uint64_t>(2 * shape.vocabulary * shape.hidden);
  const auto parameters = static_cast<std::uint64_t>(model::parameters(shape));
  EXPECT_GE(plan->weights_bytes, parameters - looked_up + 2 * looked_up);
  // A scale for each row, and norms in floats.
  EXPECT_LE(plan->weights_bytes, parameters + looked_up + gigabyte / 100);
  // The largest matrix is widened for products of many rows.
  EXPECT_EQ(plan->scratch_bytes - plain->scratch_bytes, 2U * 5632 * 2048 * 2);
  EXPECT_FALSE(plan_memory(shape, {.type = Type::f32, .is_fp8 = true}, 100 * gigabyte, multiprocessors));
  model::Shape mixed = shape;
  mixed.experts = {.count = 8, .chosen = 2, .intermediate = 5632};
  const auto of_experts = plan_memory(mixed, {.is_fp8 = true}, 100 * gigabyte, multiprocessors);
  const auto plain_experts = plan_memory(mixed, {}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(of_experts && plain_experts);
  EXPECT_LT(of_experts->weights_bytes, plain_experts->weights_bytes * 6 / 10);
  EXPECT_EQ(of_experts->scratch_bytes - plain_experts->scratch_bytes, 2560U * 2048 * 2)
      << "experts multiply theirs as they are";
}

TEST(PlanMemory, RefusesWhatDoesNotFit) {
  const model::Shape shape = model::llama_1b(context);
  const auto refused = [&](const Options& options, std::uint64_t free_bytes) {
    const auto plan = plan_memory(shape, options, free_bytes, multiprocessors);
    return plan ? std::string() : plan.error().message();
  };
  EXPECT_NE(refused({}, 2 * gigabyte).find("the model takes"), std::string::npos);
  EXPECT_NE(refused({.memory_bytes = 9 * gigabyte}, 8 * gigabyte), "");
  EXPECT_NE(refused({.blocks_max = 100}, 100 * gigabyte).find("one sequence of 2048 tokens"),
            std::string::npos);
  EXPECT_EQ(refused({.context_max = 1600, .blocks_max = 100}, 100 * gigabyte), "");
  EXPECT_NE(refused({.step_tokens_max = 0}, 100 * gigabyte), "");
  EXPECT_NE(refused({.step_tokens_max = 8, .step_rows_max = 9}, 100 * gigabyte), "");
  EXPECT_NE(refused({.step_rows_max = 1 << 20}, 100 * gigabyte), "");
  EXPECT_NE(refused({.memory_share = 0}, 100 * gigabyte), "");
  model::Shape wide = shape;
  wide.hidden = 16'448;
  EXPECT_FALSE(plan_memory(wide, {}, 1000 * gigabyte, multiprocessors));
}

// Nobody is asked: only the memory is planned.
class Nobody final : public Peers {
 public:
  Nobody(int rank, int count) : rank_(rank), count_(count) {}
  int rank() const override { return rank_; }
  int count() const override { return count_; }
  Result<> sum(float*, std::size_t) override { return failed("nobody is there"); }
  Result<> gather(const float*, float*, std::size_t) override { return failed("nobody is there"); }
  Result<std::int64_t> least(std::int64_t) override { return failed("nobody is there"); }
  void use_queue(void*) override {}
  Result<> check() const override { return {}; }

 private:
  int rank_;
  int count_;
};

TEST(PlanMemory, APartTakesItsShare) {
  const model::Shape shape = model::llama_1b(8192);
  const auto half = plan_memory(shape, {.cache_bytes = 4 * gigabyte, .peers = std::make_shared<Nobody>(1, 2)},
                                100 * gigabyte, multiprocessors);
  ASSERT_TRUE(half) << half.error().text();
  EXPECT_LE(half->cache_bytes, 2 * gigabyte) << "it is for all of them together";
  EXPECT_GE(half->cache_bytes, 2 * gigabyte - gigabyte / 100);
  const auto whole = plan_memory(shape, {.blocks_max = 1000}, 100 * gigabyte, multiprocessors);
  ASSERT_TRUE(whole) << whole.error().text();
  for (const int rank : {0, 1}) {
    const Options options{.blocks_max = 1000, .peers = std::make_shared<Nobody>(rank, 2)};
    const auto part = plan_memory(shape, options, 100 * gigabyte, multiprocessors);
    ASSERT_TRUE(part) << part.error().text();
    EXPECT_EQ(part->cache_bytes * 2, whole->cache_bytes);
    // The embedding is whole on each.
    EXPECT_LT(part->weights_bytes, whole->weights_bytes * 6 / 10);
  }
}

TEST(Ranks, TakeTheDevicesOneAfterTheOther) {
  EXPECT_EQ(device_of_rank({2, 4}, 8), 2);
  EXPECT_EQ(ranks_on_device_of({2, 4}, 8), 1);
  EXPECT_EQ(device_of_rank({3, 4}, 2), 1);
  EXPECT_EQ(ranks_on_device_of({3, 4}, 2), 2);
  EXPECT_EQ(ranks_on_device_of({1, 3}, 2), 1);
  EXPECT_EQ(ranks_on_device_of({0, 3}, 2), 2);
  EXPECT_EQ(ranks_on_device_of({0, 2}, 1), 2);
}

TEST(WeightLayout, TheHeadOfAPartIsItsTokens) {
  model::Shape shape = model::llama_1b(8192);
  shape.layers = 1;
  shape.vocabulary = 130;
  std::vector<std::byte> memory(1);  // nothing is written
  for (const bool tied : {false, true}) {
    shape.tied = tied;
    std::int64_t told = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const Part part{rank, 4};
      const WeightLayout layout(shape_of_part(shape, part), Type::bf16, Arena(memory.data()), part);
      const Weights& weights = layout.weights();
      EXPECT_EQ(weights.head.rows, 64);
      if (tied) {
        EXPECT_EQ(weights.embedding.rows, 256) << "as many as all heads";
        EXPECT_EQ(
            static_cast<std::byte*>(weights.head.data) - static_cast<std::byte*>(weights.embedding.data),
            rank * 64 * 2048 * 2);
      }
      for (const WeightPiece& piece : layout.pieces()) {
        if (piece.tensor != "lm_head.weight") continue;
        EXPECT_EQ(piece.first_row, told);
        told += piece.rows;
      }
    }
    EXPECT_EQ(told, tied ? 0 : 130);
  }
}

TEST(WeightLayout, HasEveryRowOfEveryTensorOnce) {
  model::Shape shape = model::llama_1b(context);
  shape.layers = 2;
  shape.hidden = 60;
  shape.intermediate = 100;
  shape.vocabulary = 101;
  shape.qkv_bias = true;
  shape.experts = {.count = 3, .chosen = 2, .intermediate = 40, .dense_layers = {1}};
  const WeightLayout layout(shape, Type::bf16, Arena());
  std::map<std::string, std::int64_t> rows;
  for (const WeightPiece& piece : layout.pieces()) {
    EXPECT_EQ(piece.first_row, rows[piece.tensor]) << piece.tensor;
    rows[piece.tensor] += piece.rows;
  }
  std::size_t tensors = 0;
  for (const model::Unit& unit : model::units(shape)) {
    for (const model::Tensor& tensor : unit.tensors) {
      EXPECT_EQ(rows[tensor.name], tensor.shape[0]) << tensor.name;
      ++tensors;
    }
  }
  EXPECT_EQ(rows.size(), tensors);
  EXPECT_EQ(layout.weights().layers[0].experts.each.size(), 3U);
  EXPECT_TRUE(layout.weights().layers[1].experts.each.empty());
  EXPECT_EQ(layout.weights().layers[1].feed_forward.up.rows, 2 * 128);
}

TEST(WeightLayout, PutsPartsOfAMatrixBelowEachOther) {
  const model::Shape shape = model::llama_1b(context);
  std::vector<std::byte> memory(1);  // nothing is written
  const WeightLayout layout(shape, Type::bf16, Arena(memory.data()));
  std::map<std::string, const WeightPiece*> first;
  for (const WeightPiece& piece : layout.pieces()) first.try_emplace(piece.tensor, &piece);
  const auto place = [&](const char* name) {
    return static_cast<std::byte*>(first.at(std::string("model.layers.0.") + name)->to);
  };
  EXPECT_EQ(place("self_attn.k_proj.weight") - place("self_attn.q_proj.weight"), 2048 * 2048 * 2);
  EXPECT_EQ(place("self_attn.v_proj.weight") - place("self_attn.k_proj.weight"), 256 * 2048 * 2);
  EXPECT_EQ(place("mlp.up_proj.weight") - place("mlp.gate_proj.weight"), 5632 * 2048 * 2);
}

TEST(WeightLayout, MatricesOfFp8HaveAScaleForEachRow) {
  const model::Shape shape = model::llama_1b(context);
  std::vector<std::byte> memory(1);  // nothing is written
  const WeightLayout layout(shape, Type::bf16, Arena(memory.data()), {}, true);
  const LayerWeights& layer = layout.weights().layers[0];
  EXPECT_EQ(layout.weights().embedding.scales, nullptr);
  EXPECT_EQ(layout.weights().head.scales, nullptr);
  std::map<std::string, std::int64_t> rows;
  for (const WeightPiece& piece : layout.pieces()) {
    const bool is_of_layer = piece.tensor.find("_proj.weight") != std::string::npos;
    EXPECT_EQ(piece.is_fp8, is_of_layer) << piece.tensor;
    if (!piece.tensor.starts_with("model.layers.0.")) continue;
    const std::int64_t row = rows[piece.tensor];
    rows[piece.tensor] += piece.rows;
    const auto expect_at = [&](const Matrix& matrix, std::int64_t first) {
      EXPECT_EQ(static_cast<std::byte*>(piece.to) - static_cast<std::byte*>(matrix.data),
                (first + row) * matrix.columns)
          << piece.tensor;
      EXPECT_EQ(piece.scales - matrix.scales, first + row) << piece.tensor;
    };
    if (piece.tensor.ends_with("v_proj.weight")) expect_at(layer.qkv, 2048 + 256);
    if (piece.tensor.ends_with("up_proj.weight")) expect_at(layer.feed_forward.up, 5632);
    if (piece.tensor.ends_with("down_proj.weight")) expect_at(layer.feed_forward.down, 0);
  }
  EXPECT_EQ(rows["model.layers.0.mlp.up_proj.weight"], 5632);
}

TEST(Sizes, ProductsComeInFewNumbersOfTokens) {
  std::int64_t before = 0;
  int numbers = 0;
  for (std::int64_t tokens = 1; tokens <= 4096; ++tokens) {
    const std::int64_t now = product_tokens(tokens);
    EXPECT_GE(now, tokens);
    EXPECT_GE(now, before);
    if (now != before) ++numbers;
    before = now;
  }
  EXPECT_LE(numbers, 70);
  EXPECT_EQ(product_tokens(256), 256);
}

TEST(Model, WithoutAGpuSaysSo) {
  if (devices() > 0) GTEST_SKIP() << "there is a GPU here: `tutti-worker check-serve` uses it";
  model::Shape shape = model::llama_1b(context);
  shape.layers = 1;
  const auto made = make_model(shape, {}, [](auto&&...) -> Result<> { return {}; });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::failed);
  EXPECT_FALSE(made.error().remedy().empty());
}

}  // namespace
}  // namespace tutti::serve::cuda
