#include "serve/cpu/model.hpp"

#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "serve/cpu/families_test.hpp"
#include "serve/cpu/instructions.hpp"
#include "serve/cpu/reference_test.hpp"
#include "serve/cpu/rows_test.hpp"

namespace tutti::serve::cpu {
namespace {

std::unique_ptr<Model> made_model(const model::Shape& shape, const MadeTensors& tensors,
                                  Options options = {}) {
  options.cache_bytes = small_cache_bytes;
  if (options.threads == 0) options.threads = 2;
  auto made = make_model(shape, options, reader_of(tensors));
  EXPECT_TRUE(made) << made.error().text();
  return made ? std::move(*made) : nullptr;
}

// All tokens at once.
Rows whole(Model& model, const std::vector<Token>& tokens, int sequence = 0) {
  const auto blocks = blocks_of(sequence, tokens.size());
  const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = static_cast<std::int32_t>(tokens.size())};
  const auto done = model.step({&chunk, 1});
  EXPECT_TRUE(done) << done.error().text();
  Rows rows;
  for (std::int32_t row = 0; row < chunk.rows; ++row) rows.push_back(*model.logits(row));
  return rows;
}

TEST(WeightsTest, ThatAreNoNumbersAreRefusedByName) {
  const model::Shape shape = small_llama();
  for (const auto& [name, tensor] : made_tensors(shape)) {
    for (const float wrong :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      MadeTensors tensors = made_tensors(shape);
      tensors.at(name).values.back() = wrong;
      for (const WeightType type : {WeightType::f32, WeightType::int8}) {
        const auto made = make_model(shape, {.weights = type, .threads = 2, .cache_bytes = small_cache_bytes},
                                     reader_of(tensors));
        ASSERT_FALSE(made) << name;
        EXPECT_NE(made.error().text().find(name), std::string::npos) << made.error().text();
      }
    }
  }
}

// The head times what is hidden is the row of logits.
TEST(HiddenTest, IsWhatTheHeadReads) {
  const model::Shape shape = small_llama();
  const MadeTensors tensors = made_tensors(shape);
  const auto model = made_model(shape, tensors);
  ASSERT_NE(model, nullptr);
  const Rows rows = whole(*model, made_tokens(shape, 9, 3));
  const std::vector<Choice> choices{{.row = 8, .pooling = Pooling::last}, {.row = 7}};
  const auto chosen = model->choose(choices);
  ASSERT_TRUE(chosen);
  EXPECT_TRUE((*chosen)[1].hidden.empty());
  const std::vector<float>& hidden = (*chosen)[0].hidden;
  ASSERT_EQ(hidden.size(), static_cast<std::size_t>(shape.hidden));
  const auto head = std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) {
    return each.second.shape == std::vector<std::int64_t>{shape.vocabulary, shape.hidden} &&
           each.first.find("head") != std::string::npos;
  });
  ASSERT_NE(head, tensors.end());
  for (std::size_t token = 0; token < rows[8].size(); ++token) {
    double sum = 0;
    for (std::size_t at = 0; at < hidden.size(); ++at)
      sum += static_cast<double>(hidden[at]) * head->second.values[token * hidden.size() + at];
    EXPECT_NEAR(rows[8][token], sum, 1e-4);
  }
}

// The sum over a chunk is that of its rows, and parts of a text add up to the whole, bit by bit.
TEST(HiddenTest, SumsAddUp) {
  const model::Shape shape = small_llama();
  const MadeTensors tensors = made_tensors(shape);
  const auto model = made_model(shape, tensors);
  ASSERT_NE(model, nullptr);
  const auto tokens = made_tokens(shape, 23, 3);
  const auto blocks = blocks_of(0, tokens.size());
  const auto sum_of = [&](std::size_t first, std::size_t count) {
    const auto part = std::span(tokens).subspan(first, count);
    const Chunk chunk{.tokens = part, .first = static_cast<std::int64_t>(first), .blocks = blocks, .rows = 1};
    // Another sequence in front of it, so that neither rows nor tokens are counted from the step's first.
    const auto others = blocks_of(1, 3);
    const std::vector<Chunk> both{{.tokens = std::span(tokens).first(3), .blocks = others, .rows = 2}, chunk};
    EXPECT_TRUE(model->step(both));
    const Choice choice{.row = 2, .given = 0, .pooling = Pooling::mean};
    const auto chosen = model->choose({&choice, 1});
    EXPECT_TRUE(chosen);
    return chosen->front().hidden_sum;
  };
  std::vector<double> expected(static_cast<std::size_t>(shape.hidden));
  whole(*model, tokens);
  for (std::int32_t row = 0; row < 23; ++row) {
    const Choice choice{.row = row, .pooling = Pooling::last};
    const auto chosen = model->choose({&choice, 1});
    ASSERT_TRUE(chosen);
    for (std::size_t at = 0; at < expected.size(); ++at)
      expected[at] += static_cast<double>(chosen->front().hidden[at]);
  }
  EXPECT_EQ(sum_of(0, 23), expected);
  std::vector<double> sum(expected.size());
  for (const auto& [first, count] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 7}, {7, 1}, {8, 15}}) {
    const auto part = sum_of(first, count);
    for (std::size_t at = 0; at < sum.size(); ++at) sum[at] += part[at];
  }
  for (std::size_t at = 0; at < sum.size(); ++at)
    EXPECT_EQ(static_cast<float>(sum[at]), static_cast<float>(expected[at]));
}

class ModelTest : public testing::TestWithParam<Family> {};

TEST_P(ModelTest, AgreesWithTheFormulas) {
  const model::Shape& shape = GetParam().shape;
  const MadeTensors tensors = made_tensors(shape);
  const auto tokens = made_tokens(shape, 37, 1);
  const auto expected = Reference(shape, tensors).run(tokens);
  // Where a router is in doubt, a little noise sends a token elsewhere: those bounds are wide.
  const bool has_experts = shape.experts.count > 0;
  const std::vector<std::pair<WeightType, double>> bounds{{WeightType::f32, 1e-5},
                                                          {WeightType::bf16, has_experts ? 0.3 : 0.025},
                                                          {WeightType::int8, has_experts ? 0.5 : 0.05},
                                                          {WeightType::int4, has_experts ? 1.5 : 0.5}};
  for (const Kernels* kernels : all_kernels()) {
    for (const auto& [type, bound] : bounds) {
      const auto model = made_model(shape, tensors, {.weights = type, .kernels = kernels});
      ASSERT_NE(model, nullptr);
      const Rows rows = whole(*model, tokens);
      double worst = 0;
      for (std::size_t at = 0; at < rows.size(); ++at)
        worst = std::max(worst, distance(rows[at], expected[at]));
      EXPECT_LE(worst, bound) << kernels->name << " " << name_of(type);
      EXPECT_EQ(rows.size(), tokens.size());
    }
  }
}

TEST_P(ModelTest, GivesTheSameBitsHoweverTheTokensCome) {
  const model::Shape& shape = GetParam().shape;
  const MadeTensors tensors = made_tensors(shape);
  for (const Kernels* kernels : all_kernels()) {
    for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int8, WeightType::int4}) {
      const auto model = made_model(shape, tensors, {.weights = type, .kernels = kernels});
      ASSERT_NE(model, nullptr);
      std::vector<std::vector<Token>> sequences;
      std::vector<std::vector<BlockId>> blocks;
      std::vector<Rows> expected;
      for (int sequence = 0; sequence < 5; ++sequence) {
        sequences.push_back(made_tokens(shape, 21 + static_cast<std::size_t>(sequence) * 4,
                                        static_cast<std::uint64_t>(sequence) + 7));
        blocks.push_back(blocks_of(sequence, sequences.back().size()));
        expected.push_back(whole(*model, sequences.back(), sequence));
      }
      // All sequences side by side, in pieces of 1 to 5 tokens, with another number of sequences in each
      // step.
      std::vector<std::size_t> done(sequences.size(), 0);
      for (std::size_t turn = 0;
           std::accumulate(done.begin(), done.end(), std::size_t{0}) < 21U + 25U + 29U + 33U + 37U; ++turn) {
        std::vector<Chunk> chunks;
        std::vector<std::size_t> whose;
        for (std::size_t at = 0; at < sequences.size(); ++at) {
          const std::size_t left = sequences[at].size() - done[at];
          if (left == 0 || (turn + at) % 3 == 0) continue;
          const std::size_t count = std::min(left, (turn + 2 * at) % 5 + 1);
          chunks.push_back({.tokens = std::span(sequences[at]).subspan(done[at], count),
                            .first = static_cast<std::int64_t>(done[at]),
                            .blocks = blocks[at],
                            .rows = static_cast<std::int32_t>(count)});
          whose.push_back(at);
        }
        ASSERT_TRUE(model->step(chunks));
        std::int32_t row = 0;
        for (std::size_t at = 0; at < chunks.size(); ++at) {
          for (std::int32_t token = 0; token < chunks[at].rows; ++token, ++row) {
            ASSERT_EQ(*model->logits(row),
                      expected[whose[at]][done[whose[at]] + static_cast<std::size_t>(token)])
                << kernels->name << " " << name_of(type) << " sequence " << whose[at];
          }
          done[whose[at]] += chunks[at].tokens.size();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, ModelTest, testing::ValuesIn(small_families()),
                         [](const auto& family) { return family.param.name; });

TEST(Model, DoesNotDependOnTheNumberOfThreads) {
  const model::Shape shape = small_llama();
  const MadeTensors tensors = made_tensors(shape);
  const auto tokens = made_tokens(shape, 30, 3);
  const auto alone = made_model(shape, tensors, {.threads = 1});
  const auto many = made_model(shape, tensors, {.threads = 5});
  EXPECT_EQ(whole(*alone, tokens), whole(*many, tokens));
}

TEST(Model, ChoosesTheLargest) {
  const model::Shape shape = small_llama();
  const MadeTensors tensors = made_tensors(shape);
  const auto model = made_model(shape, tensors);
  const Rows rows = whole(*model, made_tokens(shape, 4, 5));
  const std::vector<Choice> choices{{.row = 3}, {.row = 0}};
  const auto chosen = model->choose(choices);
  ASSERT_TRUE(chosen);
  ASSERT_EQ(chosen->size(), 2U);
  for (std::size_t at = 0; at < 2; ++at) {
    const auto& row = rows[at == 0 ? 3 : 0];
    EXPECT_EQ((*chosen)[at].token, std::max_element(row.begin(), row.end()) - row.begin());
  }
  EXPECT_FALSE(model->choose(std::vector<Choice>{{.row = 4}}));
}

TEST(Model, ReadsWhatAnotherSequenceHasWritten) {
  const model::Shape shape = small_llama();
  const MadeTensors tensors = made_tensors(shape);
  const auto model = made_model(shape, tensors);
  const auto tokens = made_tokens(shape, 40, 9);
  const Rows expected = whole(*model, tokens, 0);
  // The first two blocks are shared, the rest is the sequence's own.
  std::vector<BlockId> blocks = blocks_of(0, 40);
  blocks[2] = 50;
  const Chunk chunk{.tokens = std::span(tokens).subspan(32), .first = 32, .blocks = blocks, .rows = 1};
  ASSERT_TRUE(model->step({&chunk, 1}));
  EXPECT_EQ(*model->logits(0), expected[39]);
}

TEST(Model, RefusesAStepThatWouldReachBeyondItsMemory) {
  const model::Shape shape = small_llama();
  const MadeTensors tensors = made_tensors(shape);
  const auto model = made_model(shape, tensors, {.step_tokens_max = 8, .step_rows_max = 2});
  const std::vector<Token> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<BlockId> blocks{0, 1, 2, 3, 4, 5, 6, 7};
  const auto refuses = [&](const Chunk& chunk) {
    const auto done = model->step({&chunk, 1});
    return !done && done.error().code() == ErrorCode::invalid && !model->logits(0);
  };
  EXPECT_TRUE(refuses({.tokens = tokens, .blocks = blocks, .rows = 1}));  // too many tokens
  const auto eight = std::span(tokens).first(8);
  EXPECT_TRUE(refuses({.tokens = eight, .blocks = blocks, .rows = 3}));
  EXPECT_TRUE(refuses({.tokens = eight, .blocks = blocks, .rows = 9}));
  EXPECT_TRUE(refuses({.tokens = eight, .blocks = blocks, .rows = -1}));
  EXPECT_TRUE(refuses({.tokens = eight, .first = 121, .blocks = blocks, .rows = 1}));
  EXPECT_TRUE(refuses({.tokens = eight, .first = -1, .blocks = blocks, .rows = 1}));
  EXPECT_TRUE(refuses({.tokens = eight, .first = 9, .blocks = std::span(blocks).first(1), .rows = 1}));
  EXPECT_TRUE(refuses({.tokens = eight, .blocks = blocks, .rows = 1, .adapter = 1}));
  const std::vector<Token> strangers{1, 101};
  EXPECT_TRUE(refuses({.tokens = strangers, .blocks = blocks, .rows = 1}));
  const std::vector<Token> negative{-1};
  EXPECT_TRUE(refuses({.tokens = negative, .blocks = blocks, .rows = 1}));
  const std::vector<BlockId> beyond{model->limits().blocks};
  EXPECT_TRUE(refuses({.tokens = eight, .blocks = beyond, .rows = 1}));
  const Chunk fine{.tokens = eight, .blocks = blocks, .rows = 2};
  EXPECT_TRUE(model->step({&fine, 1}));
}

TEST(Model, TellsWhyATensorCouldNotBeRead) {
  const model::Shape shape = small_llama();
  const auto made = make_model(shape, {.threads = 2, .cache_bytes = small_cache_bytes},
                               [](const std::string& tensor, auto, auto, auto) -> Result<> {
                                 if (tensor == "model.norm.weight") return failed("the disk is gone");
                                 return {};
                               });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message(), "the disk is gone");
}

TEST(PlanMemory, FillsAShareOfWhatIsFreeAndNotMoreThanIsOfUse) {
  const model::Shape shape = small_llama();
  // A position: 2 layers · 2 heads · (16 keys + 16 values) floats.
  constexpr std::uint64_t block_bytes = 16 * 2 * 2 * 32 * sizeof(float);
  const auto some = plan_memory(shape, {.cache_bytes = 100 * block_bytes}, 2, 1 << 30);
  ASSERT_TRUE(some) << some.error().text();
  EXPECT_EQ(some->blocks, 100);
  EXPECT_EQ(some->cache_bytes, 100 * block_bytes);
  EXPECT_EQ(some->context, 128);
  const auto all = plan_memory(shape, {.step_rows_max = 64}, 2, 1 << 30);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->blocks, 64 * 128 / 16);
  const std::uint64_t before = all->weights_bytes + all->scratch_bytes;
  const auto share = plan_memory(shape, {.cache_share = 0.25}, 2, before + 400 * block_bytes);
  ASSERT_TRUE(share) << share.error().text();
  EXPECT_EQ(share->blocks, 100);
  EXPECT_FALSE(plan_memory(shape, {}, 2, before));
  const auto little = plan_memory(shape, {.cache_bytes = 7 * block_bytes}, 2, 1 << 30);
  ASSERT_FALSE(little);
  EXPECT_NE(little.error().message().find("one sequence of 128 tokens"), std::string::npos)
      << little.error().text();
  const auto shorter = plan_memory(shape, {.context_max = 100, .cache_bytes = 7 * block_bytes}, 2, 1 << 30);
  ASSERT_TRUE(shorter);
  EXPECT_EQ(shorter->context, 100);
  EXPECT_FALSE(plan_memory(shape, {.cache_bytes = 1ULL << 40}, 2, 1 << 30));
  EXPECT_FALSE(plan_memory(shape, {.step_tokens_max = 0}, 2, 1 << 30));
  EXPECT_FALSE(plan_memory(shape, {.step_rows_max = 1 << 30}, 2, 1 << 30));
  EXPECT_FALSE(plan_memory(shape, {.cache_share = 1.5}, 2, 1 << 30));
}

}  // namespace
}  // namespace tutti::serve::cpu
