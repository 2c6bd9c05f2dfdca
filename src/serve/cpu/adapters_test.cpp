#include "serve/cpu/adapters.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "serve/batch/batch.hpp"
#include "serve/cpu/families_test.hpp"
#include "serve/cpu/instructions.hpp"
#include "serve/cpu/model.hpp"
#include "serve/cpu/reference_test.hpp"
#include "serve/cpu/rows_test.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve::cpu {
namespace {

// Two adapters of one model: everything that can be changed, by a rank that fills no panel; and a few
// matrices, by one that fills more than one.
class Adapted {
 public:
  explicit Adapted(const model::Shape& from)
      : shape(from),
        tensors(made_tensors(from)),
        all(from, {.rank = 5, .alpha = 7, .seed = 3}),
        few(from, {.rank = 20,
                   .alpha = 10,
                   .seed = 4,
                   .by_root = true,
                   .targets = {"q_proj", "v_proj", "down_proj", "c_attn"}}) {}

  std::unique_ptr<Model> make(Options options = {}) const {
    for (const auto* made : {&all, &few}) {
      auto adapter = lora::Adapter::open(made->path(), shape);
      EXPECT_TRUE(adapter) << adapter.error().text();
      if (adapter) options.adapters.push_back(std::move(*adapter));
    }
    return plain(tensors, options);
  }
  std::unique_ptr<Model> plain(const MadeTensors& from, Options options = {}) const {
    options.cache_bytes = small_cache_bytes;
    if (options.threads == 0) options.threads = 2;
    auto model = make_model(shape, options, reader_of(from));
    EXPECT_TRUE(model) << model.error().text();
    return model ? std::move(*model) : nullptr;
  }
  // The weights with what an adapter adds to them.
  MadeTensors merged(std::int32_t adapter) const {
    MadeTensors sums = tensors;
    if (adapter == 0) return sums;
    for (const auto& [name, change] : (adapter == 1 ? all : few).changes()) {
      std::vector<float>& values = sums.at(name).values;
      EXPECT_EQ(values.size(), change.size()) << name;
      for (std::size_t at = 0; at < change.size(); ++at)
        values[at] = static_cast<float>(static_cast<double>(values[at]) + change[at]);
    }
    return sums;
  }

  model::Shape shape;
  MadeTensors tensors;
  lora::MadeAdapter all;
  lora::MadeAdapter few;
};

Rows alone(Model& model, const std::vector<Token>& tokens, std::int32_t adapter, int sequence = 0) {
  const auto blocks = blocks_of(sequence, tokens.size());
  const Chunk chunk{.tokens = tokens,
                    .blocks = blocks,
                    .rows = static_cast<std::int32_t>(tokens.size()),
                    .adapter = adapter};
  const auto done = model.step({&chunk, 1});
  EXPECT_TRUE(done) << done.error().text();
  Rows rows;
  for (std::int32_t row = 0; row < chunk.rows; ++row) rows.push_back(*model.logits(row));
  return rows;
}

class AdaptersTest : public testing::TestWithParam<Family> {};

TEST_P(AdaptersTest, AddTheirMatricesToTheModels) {
  const Adapted adapted(GetParam().shape);
  const auto tokens = made_tokens(adapted.shape, 37, 1);
  for (const Kernels* kernels : all_kernels()) {
    const auto model = adapted.make({.kernels = kernels});
    ASSERT_NE(model, nullptr);
    for (const std::int32_t adapter : {0, 1, 2}) {
      const auto expected = Reference(adapted.shape, adapted.merged(adapter)).run(tokens);
      const Rows rows = alone(*model, tokens, adapter);
      double worst = 0;
      for (std::size_t at = 0; at < rows.size(); ++at)
        worst = std::max(worst, distance(rows[at], expected[at]));
      EXPECT_LE(worst, 1e-5) << kernels->name << " adapter " << adapter;
    }
  }
}

// Weights of few bits change with the model; what an adapter adds is as exact beside them as beside floats.
TEST_P(AdaptersTest, GiveTheSameBitsInAnyCompany) {
  const Adapted adapted(GetParam().shape);
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int8, WeightType::int4}) {
    const auto model = adapted.make({.weights = type});
    const auto plain = adapted.plain(adapted.tensors, {.weights = type});
    ASSERT_NE(model, nullptr);
    std::vector<std::vector<Token>> sequences;
    std::vector<std::vector<BlockId>> blocks;
    std::vector<Rows> expected;
    const std::vector<std::int32_t> adapters{1, 0, 2, 1, 0, 2};
    for (std::size_t at = 0; at < adapters.size(); ++at) {
      sequences.push_back(made_tokens(adapted.shape, 21 + at * 4, at + 7));
      blocks.push_back(blocks_of(static_cast<int>(at), sequences.back().size()));
      expected.push_back(alone(*model, sequences.back(), adapters[at], static_cast<int>(at)));
      if (adapters[at] == 0) {
        EXPECT_EQ(expected.back(), alone(*plain, sequences.back(), 0)) << "as if there were no adapters";
      }
    }
    std::vector<std::size_t> done(sequences.size(), 0);
    const auto is_left = [&] {
      for (std::size_t at = 0; at < done.size(); ++at)
        if (done[at] < sequences[at].size()) return true;
      return false;
    };
    for (std::size_t turn = 0; is_left(); ++turn) {
      std::vector<Chunk> chunks;
      std::vector<std::size_t> whose;
      for (std::size_t at = 0; at < sequences.size(); ++at) {
        const std::size_t left = sequences[at].size() - done[at];
        if (left == 0 || (turn + at) % 3 == 0) continue;
        const std::size_t count = std::min(left, (turn + 2 * at) % 5 + 1);
        chunks.push_back({.tokens = std::span(sequences[at]).subspan(done[at], count),
                          .first = static_cast<std::int64_t>(done[at]),
                          .blocks = blocks[at],
                          .rows = static_cast<std::int32_t>(count),
                          .adapter = adapters[at]});
        whose.push_back(at);
      }
      ASSERT_TRUE(model->step(chunks));
      std::int32_t row = 0;
      for (std::size_t at = 0; at < chunks.size(); ++at) {
        for (std::int32_t token = 0; token < chunks[at].rows; ++token, ++row) {
          ASSERT_EQ(*model->logits(row),
                    expected[whose[at]][done[whose[at]] + static_cast<std::size_t>(token)])
              << name_of(type) << " sequence " << whose[at];
        }
        done[whose[at]] += chunks[at].tokens.size();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, AdaptersTest, testing::ValuesIn(small_families()),
                         [](const auto& family) { return family.param.name; });

// Long prompts are cut into slices, and threads share them.
TEST(Adapters, DoNotDependOnTheNumberOfThreads) {
  const Adapted adapted(small_llama());
  const auto tokens = made_tokens(adapted.shape, 100, 3);
  EXPECT_EQ(alone(*adapted.make({.threads = 1, .step_rows_max = 100}), tokens, 1),
            alone(*adapted.make({.threads = 5, .step_rows_max = 100}), tokens, 1));
}

// One answer, one token at a time, all of it computed again for each: no batch, no cache, nothing shared.
std::vector<Token> answer_alone(Model& model, std::vector<Token> tokens, std::int32_t adapter,
                                std::int32_t count) {
  std::vector<Token> answer;
  while (static_cast<std::int32_t>(answer.size()) < count) {
    const auto blocks = blocks_of(0, tokens.size());
    const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 1, .adapter = adapter};
    EXPECT_TRUE(model.step({&chunk, 1}));
    const std::vector<Choice> choices{{.row = 0}};
    answer.push_back(model.choose(choices)->front().token);
    tokens.push_back(answer.back());
  }
  return answer;
}

// Requests of all adapters with few beginnings, with guesses, sent back for want of room: each is answered as
// it is alone, by the same model and by one whose weights have the adapter's added.
TEST(Adapters, MixedRequestsAreAnsweredAsIfAlone) {
  const Adapted adapted(small_llama());
  const auto model = adapted.make();
  const auto reference = adapted.make({.threads = 1});
  Limits limits = model->limits();
  limits.blocks = 9;
  limits.step_tokens_max = 40;
  limits.step_rows_max = 12;
  Batch batch(limits, {.sequences_max = 12, .drafts_max = 2}, [](Token) { return std::string_view("x"); });
  Prng random(5);
  std::map<RequestId, Request> requests;
  std::map<RequestId, std::vector<Token>> answers;
  constexpr std::uint64_t count = 1'000;
  std::uint64_t ids = 0;
  while (ids < count || !batch.empty()) {
    while (ids < count && (batch.counts().requests < 3 || random.chance(0.5))) {
      Request request;
      request.adapter = static_cast<std::int32_t>(random.below(3));
      request.tokens_max = static_cast<std::int32_t>(1 + random.below(24));
      const auto beginning = random.below(3);
      request.prompt = made_tokens(adapted.shape, 1 + random.below(40), beginning);
      request.prompt.push_back(static_cast<Token>(random.below(101)));
      // What says the same again and again is answered so: guesses come true.
      if (random.chance(0.3)) request.prompt.insert(request.prompt.end(), 12, request.prompt.back());
      const RequestId id(++ids);
      ASSERT_TRUE(batch.submit(id, request));
      requests.emplace(id, std::move(request));
    }
    const Plan& plan = batch.plan();
    if (plan.empty()) continue;
    ASSERT_TRUE(model->step(plan.chunks));
    const auto chosen = model->choose(plan.choices);
    ASSERT_TRUE(chosen);
    for (const Piece& piece : batch.take(*chosen)) {
      auto& answer = answers[piece.request];
      answer.insert(answer.end(), piece.tokens.begin(), piece.tokens.end());
    }
    ASSERT_TRUE(batch.invariants());
  }
  EXPECT_GT(batch.counts().cached_tokens, 0);
  EXPECT_GT(batch.counts().preemptions, 0);
  EXPECT_GT(batch.counts().accepted_tokens, 100) << "of " << batch.counts().drafted_tokens;
  std::vector<std::unique_ptr<Model>> merged;
  for (const std::int32_t adapter : {0, 1, 2}) merged.push_back(adapted.plain(adapted.merged(adapter)));
  for (const auto& [id, request] : requests) {
    ASSERT_EQ(answers[id], answer_alone(*reference, request.prompt, request.adapter, request.tokens_max))
        << id.text() << " adapter " << request.adapter;
    // Where merging rounds otherwise the numbers agree.
    const auto blocks = blocks_of(0, request.prompt.size());
    Chunk chunk{.tokens = request.prompt, .blocks = blocks, .rows = 1, .adapter = request.adapter};
    ASSERT_TRUE(reference->step({&chunk, 1}));
    chunk.adapter = 0;
    Model& other = *merged[static_cast<std::size_t>(request.adapter)];
    ASSERT_TRUE(other.step({&chunk, 1}));
    const auto own = reference->logits(0);
    const auto theirs = other.logits(0);
    for (std::size_t at = 0; at < own->size(); ++at) ASSERT_NEAR((*own)[at], (*theirs)[at], 1e-4);
  }
}

TEST(Adapters, TakeMemoryThatIsPlanned) {
  const Adapted adapted(small_llama());
  Options options{.cache_bytes = small_cache_bytes};
  const auto without = plan_memory(adapted.shape, options, 2, 1 << 30);
  options.adapters.push_back(*lora::Adapter::open(adapted.all.path(), adapted.shape));
  const auto with = plan_memory(adapted.shape, options, 2, 1 << 30);
  ASSERT_TRUE(without && with);
  // Of each layer: 7 matrices of one panel of rows, and of 5 columns beside them.
  const std::uint64_t shrinks = 16 * (64 * 3 + 64 + 64 * 2 + 96);
  const std::uint64_t expands = 5 * (64 + 32 + 32 + 64 + 96 + 96 + 64);
  const std::uint64_t numbers = 2 * (shrinks + expands) * sizeof(float);
  EXPECT_GE(with->weights_bytes - without->weights_bytes, numbers);
  EXPECT_LE(with->weights_bytes - without->weights_bytes, numbers + 2 * 14 * 256)
      << "each begins at a whole line";
  EXPECT_GT(with->scratch_bytes, without->scratch_bytes);
  EXPECT_FALSE(plan_memory(adapted.shape, options, 2, without->weights_bytes + without->scratch_bytes + 1));
}

TEST(Adapters, AStepMayOnlyAskForThoseThatThereAre) {
  const Adapted adapted(small_llama());
  const auto model = adapted.make();
  EXPECT_EQ(model->limits().adapters, 2);
  const std::vector<Token> tokens{1, 2};
  const std::vector<BlockId> blocks{0};
  for (const std::int32_t adapter : {-1, 3, std::numeric_limits<std::int32_t>::max()}) {
    const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 1, .adapter = adapter};
    EXPECT_FALSE(model->step({&chunk, 1})) << adapter;
  }
}

// Its numbers are finite, what comes of them is not: whoever asked for it hears so, and nobody else.
TEST(Adapters, OneWhoseProductsOverflowGivesNoToken) {
  for (const char* const part :
       {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}) {
    Adapted adapted(small_llama());
    for (auto& tensor : adapted.all.tensors) {
      if (tensor.name.find(part) == std::string::npos) continue;
      for (float& number : tensor.values) number *= 1e25F;
    }
    adapted.all.write_tensors();
    const auto tokens = made_tokens(adapted.shape, 37, 1);
    const auto blocks = blocks_of(0, tokens.size());
    const auto others = blocks_of(1, tokens.size());
    for (const Kernels* kernels : all_kernels()) {
      for (const WeightType type : {WeightType::f32, WeightType::int8}) {
        const auto model = adapted.make({.weights = type, .kernels = kernels});
        const Rows expected = alone(*model, tokens, 0);
        const std::vector<Chunk> both{{.tokens = tokens, .blocks = blocks, .rows = 1, .adapter = 1},
                                      {.tokens = tokens, .blocks = others, .rows = 1}};
        ASSERT_TRUE(model->step(both));
        const auto chosen = model->choose(std::vector<Choice>{{.row = 0}, {.row = 1}});
        ASSERT_TRUE(chosen);
        EXPECT_EQ(chosen->front().token, no_number) << part << " " << kernels->name << " " << name_of(type);
        EXPECT_EQ(*model->logits(1), expected.back()) << part;
        // What it left in its blocks harms nobody who has them next.
        EXPECT_EQ(alone(*model, tokens, 0), expected) << part;
      }
    }
  }
}

TEST(Adapters, OneWithNumbersThatAreNoneIsNotServed) {
  Adapted adapted(small_llama());
  adapted.all.tensors.front().values.back() = std::numeric_limits<float>::quiet_NaN();
  adapted.all.write_tensors();
  Options options{.threads = 1, .cache_bytes = small_cache_bytes};
  options.adapters.push_back(*lora::Adapter::open(adapted.all.path(), adapted.shape));
  const auto made = make_model(adapted.shape, options, reader_of(adapted.tensors));
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().text().find("q_proj.lora_A"), std::string::npos) << made.error().text();
}

}  // namespace
}  // namespace tutti::serve::cpu
