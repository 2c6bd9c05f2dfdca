// A model of several ranks computes what one process does: number by number within rounding, and token by
// token over requests of every kind.
#include "serve/parallel/together_test.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/prng.hpp"
#include "serve/batch/batch.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve::parallel {
namespace {

// Sums over ranks are the same numbers added in another order.
constexpr double rounding = 1e-5;
constexpr std::size_t requests_of_case = 200;

struct Case {
  std::string name;
  model::Shape shape;
  int ranks;
};

void PrintTo(const Case& which, std::ostream* out) { *out << which.name; }

// All families of the small models in two parts and in four, where heads of keys and values are shared by
// ranks, parts fill no panel, and the last has hardly any of the vocabulary.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (cpu::Family family : cpu::small_families()) {
    model::Shape& shape = family.shape;
    if (shape.heads == 3) shape.heads = shape.kv_heads = 4, shape.head_size = 15;
    for (const int ranks : {2, 4})
      all.push_back({family.name + "_in_" + std::to_string(ranks), shape, ranks});
  }
  return all;
}

cpu::Options small_options() { return {.threads = 1, .cache_bytes = 8 << 20, .step_tokens_max = 48}; }

// A model with two adapters: everything that can be changed, by a rank that fills no panel; and a few
// matrices, by one that fills more than one.
struct Adapted {
  explicit Adapted(const model::Shape& shape)
      : all(shape, {.rank = 5, .alpha = 7, .seed = 3}),
        few(shape, {.rank = 20, .seed = 4, .targets = {"k_proj", "o_proj", "down_proj", "c_attn"}}) {
    for (const auto* made : {&all, &few}) {
      auto adapter = lora::Adapter::open(made->path(), shape);
      EXPECT_TRUE(adapter) << adapter.error().text();
      if (adapter) options.adapters.push_back(std::move(*adapter));
    }
  }

  lora::MadeAdapter all;
  lora::MadeAdapter few;
  cpu::Options options = small_options();
};

std::unique_ptr<Model> alone(const model::Shape& shape, const cpu::MadeTensors& tensors,
                             const cpu::Options& options = small_options()) {
  auto made = cpu::make_model(shape, options, cpu::reader_of(tensors));
  EXPECT_TRUE(made) << made.error().text();
  return made ? std::move(*made) : nullptr;
}

std::vector<std::vector<float>> rows_of(Model& model, const std::vector<Token>& tokens,
                                        std::int32_t adapter = 0) {
  const std::vector<BlockId> blocks{5, 2, 7};
  const Chunk chunk{.tokens = tokens,
                    .blocks = blocks,
                    .rows = static_cast<std::int32_t>(tokens.size()),
                    .adapter = adapter};
  EXPECT_TRUE(model.step({&chunk, 1}));
  std::vector<std::vector<float>> rows;
  for (std::int32_t row = 0; row < chunk.rows; ++row) {
    auto logits = model.logits(row);
    EXPECT_TRUE(logits) << logits.error().text();
    rows.push_back(logits ? std::move(*logits) : std::vector<float>());
  }
  return rows;
}

// The largest distance in relation to the largest number of its row.
double distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t row = 0; row < std::min(a.size(), b.size()); ++row) {
    if (a[row].size() != b[row].size()) return INFINITY;
    double largest = 0;
    double off = 0;
    for (std::size_t at = 0; at < a[row].size(); ++at) {
      largest = std::max(largest, std::abs(static_cast<double>(a[row][at])));
      off = std::max(off, std::abs(static_cast<double>(a[row][at]) - static_cast<double>(b[row][at])));
    }
    most = std::max(most, off / largest);
  }
  return most;
}

std::vector<Token> some_tokens(const model::Shape& shape, std::size_t count) {
  Prng random(7);
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < count; ++at)
    tokens.push_back(static_cast<Token>(random.below(static_cast<std::uint64_t>(shape.vocabulary))));
  return tokens;
}

Request any_request(Prng& random, const model::Shape& shape, std::int32_t adapters) {
  const auto vocabulary = static_cast<std::uint64_t>(shape.vocabulary);
  Request request;
  // Few beginnings and many ends, so that prefixes are shared.
  Prng words(random.below(3));
  for (std::size_t left = 1 + random.below(40); left > 0; --left)
    request.prompt.push_back(static_cast<Token>(words.below(vocabulary)));
  for (std::size_t left = random.below(5); left > 0; --left)
    request.prompt.push_back(static_cast<Token>(random.below(vocabulary)));
  // What says the same again and again is answered so: guesses come true.
  if (random.chance(0.5))
    std::fill(request.prompt.rbegin(),
              request.prompt.rend() - static_cast<std::ptrdiff_t>(request.prompt.size() / 2),
              request.prompt.back());
  request.tokens_max = static_cast<std::int32_t>(1 + random.below(16));
  if (random.chance(0.2)) request.sampling.repetition_penalty = 1.3F;
  if (adapters > 0)
    request.adapter = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(adapters) + 1));
  if (random.chance(0.3)) {
    request.sampling.temperature = 0.8F;
    request.sampling.top_k = 20;
    request.sampling.seed = random.next();
  }
  return request;
}

// One request at a time, one token at a time, on one rank.
std::vector<Token> answered_alone(Model& model, const Request& request) {
  std::vector<BlockId> blocks(static_cast<std::size_t>(model.limits().context / 16));
  for (std::size_t at = 0; at < blocks.size(); ++at) blocks[at] = static_cast<BlockId>(at);
  std::vector<Token> tokens = request.prompt;
  std::size_t computed = 0;
  std::vector<Token> answer;
  while (answer.size() < static_cast<std::size_t>(request.tokens_max)) {
    const Chunk chunk{.tokens = std::span(tokens).subspan(computed),
                      .first = static_cast<std::int64_t>(computed),
                      .blocks = blocks,
                      .rows = 1,
                      .adapter = request.adapter};
    EXPECT_TRUE(model.step({&chunk, 1}));
    computed = tokens.size();
    std::map<Token, std::int32_t> counts;
    for (const Token token : request.prompt) counts[token];
    for (const Token token : answer) ++counts[token];
    std::vector<Choice::Seen> seen;
    for (const auto& [token, count] : counts) seen.push_back({token, count});
    const Sampling& sampling = request.sampling;
    Choice choice{.temperature = sampling.temperature,
                  .top_k = sampling.top_k,
                  .uniform = uniform_of(sampling.seed, 0, static_cast<std::int64_t>(answer.size())),
                  .repetition_penalty = sampling.repetition_penalty};
    if (sampling.penalizes()) choice.seen = seen;
    const auto chosen = model.choose({&choice, 1});
    EXPECT_TRUE(chosen) << chosen.error().text();
    if (!chosen) break;
    tokens.push_back(chosen->front().token);
    answer.push_back(chosen->front().token);
  }
  return answer;
}

class TogetherTest : public testing::TestWithParam<Case> {};

TEST_P(TogetherTest, LogitsAreThoseOfOneProcess) {
  const auto& [name, shape, ranks] = GetParam();
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  Together together(shape, tensors, ranks, small_options());
  ASSERT_TRUE(together.is_there());
  const auto tokens = some_tokens(shape, 40);
  EXPECT_LE(distance(rows_of(together, tokens), rows_of(*alone(shape, tensors), tokens)), rounding);
}

TEST_P(TogetherTest, LogitsOfAdaptersAreThoseOfOneProcess) {
  const auto& [name, shape, ranks] = GetParam();
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  const Adapted adapted(shape);
  Together together(shape, tensors, ranks, adapted.options);
  ASSERT_TRUE(together.is_there());
  const auto one = alone(shape, tensors, adapted.options);
  const auto tokens = some_tokens(shape, 40);
  const auto plain = rows_of(*one, tokens);
  for (const std::int32_t adapter : {0, 1, 2}) {
    const auto expected = rows_of(*one, tokens, adapter);
    EXPECT_LE(distance(rows_of(together, tokens, adapter), expected), rounding) << "adapter " << adapter;
    EXPECT_EQ(distance(plain, expected) > 0.01, adapter > 0);
  }
}

// Requests of all kinds at once on the ranks, and each alone on one process.
void expect_the_same_answers(const Case& which, const cpu::Options& options) {
  const auto& [name, shape, ranks] = which;
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  Together together(shape, tensors, ranks, options);
  ASSERT_TRUE(together.is_there());
  const auto one = alone(shape, tensors, options);
  // So few blocks that some have to go back.
  Limits limits = together.limits();
  limits.blocks = 9;
  Batch batch(limits, {.sequences_max = 8, .drafts_max = 2}, [](Token) { return "a"; });
  Prng random(static_cast<std::uint64_t>(ranks) * 100 + name.size());
  std::map<RequestId, Request> submitted;
  std::map<RequestId, std::vector<Token>> answers;
  while (submitted.size() < requests_of_case || !batch.empty()) {
    while (submitted.size() < requests_of_case && batch.counts().requests < 6) {
      const RequestId id(submitted.size() + 1);
      const Request request = any_request(random, shape, together.limits().adapters);
      ASSERT_TRUE(batch.submit(id, request));
      submitted.emplace(id, request);
    }
    const Plan& plan = batch.plan();
    ASSERT_TRUE(together.step(plan.chunks));
    const auto chosen = together.choose(plan.choices);
    ASSERT_TRUE(chosen) << chosen.error().text();
    for (const Piece& piece : batch.take(*chosen))
      answers[piece.request].insert(answers[piece.request].end(), piece.tokens.begin(), piece.tokens.end());
  }
  EXPECT_GT(batch.counts().preemptions, 0);
  EXPECT_GT(batch.counts().cached_tokens, 0);
  EXPECT_GT(batch.counts().accepted_tokens, 10) << "of " << batch.counts().drafted_tokens;
  for (const auto& [id, request] : submitted)
    ASSERT_EQ(answers[id], answered_alone(*one, request)) << "request " << id.text();
}

TEST_P(TogetherTest, AnswersAreThoseOfOneProcessTokenByToken) {
  expect_the_same_answers(GetParam(), small_options());
}

TEST_P(TogetherTest, AnswersOfAdaptersAreThoseOfOneProcessTokenByToken) {
  expect_the_same_answers(GetParam(), Adapted(GetParam().shape).options);
}

INSTANTIATE_TEST_SUITE_P(Small, TogetherTest, testing::ValuesIn(cases()),
                         [](const auto& which) { return which.param.name; });

TEST(Together, QuantisedPartsAreAsNearAsQuantisedModels) {
  const model::Shape shape = cpu::small_llama();
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  const auto tokens = some_tokens(shape, 20);
  const auto exact = rows_of(*alone(shape, tensors), tokens);
  for (const auto type : {cpu::WeightType::bf16, cpu::WeightType::int8}) {
    cpu::Options options = small_options();
    options.weights = type;
    Together together(shape, tensors, 2, options);
    ASSERT_TRUE(together.is_there());
    const double one = distance(exact, rows_of(*alone(shape, tensors, options), tokens));
    EXPECT_LE(distance(exact, rows_of(together, tokens)), 2 * one) << cpu::name_of(type);
  }
}

TEST(Together, AdaptersAreAsExactBesideQuantisedParts) {
  const model::Shape shape = cpu::small_llama();
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  Adapted adapted(shape);
  const auto tokens = some_tokens(shape, 20);
  const auto exact = rows_of(*alone(shape, tensors, adapted.options), tokens, 1);
  adapted.options.weights = cpu::WeightType::int8;
  Together together(shape, tensors, 2, adapted.options);
  ASSERT_TRUE(together.is_there());
  const double one = distance(exact, rows_of(*alone(shape, tensors, adapted.options), tokens, 1));
  EXPECT_LE(distance(exact, rows_of(together, tokens, 1)), 2 * one);
}

TEST(Together, EachRankHasItsPartAndAllHaveAsManyBlocks) {
  model::Shape shape = cpu::small_llama();
  shape.layers = 8;
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  const Together together(shape, tensors, 2, small_options());
  ASSERT_TRUE(together.is_there());
  EXPECT_EQ(together.rank(1).limits().blocks, together.limits().blocks);
  // What is given to the cache is for all ranks together: as many tokens as on one.
  EXPECT_EQ(together.limits().blocks, alone(shape, tensors)->limits().blocks);
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

TEST(Together, APartTakesItsShareOfTheMemory) {
  model::Shape shape = cpu::small_llama();
  shape.layers = 16;
  constexpr std::uint64_t free_bytes = std::uint64_t{1} << 30;
  const auto whole = cpu::plan_memory(shape, {.cache_bytes = 64 << 20}, 1, free_bytes);
  ASSERT_TRUE(whole) << whole.error().text();
  for (const int rank : {0, 1}) {
    const auto part = cpu::plan_memory(
        shape, {.cache_bytes = 64 << 20, .peers = std::make_shared<Nobody>(rank, 2)}, 1, free_bytes);
    ASSERT_TRUE(part) << part.error().text();
    EXPECT_EQ(part->blocks, whole->blocks);
    EXPECT_EQ(part->cache_bytes * 2, whole->cache_bytes);
    EXPECT_LT(part->weights_bytes, whole->weights_bytes * 6 / 10);
  }
  const Adapted adapted(shape);
  const auto added = [&](std::shared_ptr<Peers> peers) {
    cpu::Options options{.cache_bytes = 64 << 20, .peers = std::move(peers)};
    const auto without = cpu::plan_memory(shape, options, 1, free_bytes);
    options.adapters = adapted.options.adapters;
    const auto with = cpu::plan_memory(shape, options, 1, free_bytes);
    EXPECT_TRUE(without && with);
    return without && with ? with->weights_bytes - without->weights_bytes : 0;
  };
  EXPECT_LT(added(std::make_shared<Nobody>(0, 2)), added(nullptr) * 8 / 10);
  const auto problem = cpu::make_model(shape, {.peers = std::make_shared<Nobody>(0, 3)}, nullptr);
  ASSERT_FALSE(problem);
  EXPECT_EQ(problem.error().message(), "its 4 heads cannot be shared by 3 ranks");
  const auto lost = cpu::make_model(shape, {.peers = std::make_shared<Nobody>(0, 2)}, nullptr);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message(), "nobody is there");
}

}  // namespace
}  // namespace tutti::serve::parallel
