// A thousand requests of every kind at once, against each of them alone: token by token the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "base/index.hpp"
#include "serve/batch/batch.hpp"
#include "serve/batch/toy_test.hpp"

namespace tutti::serve {
namespace {

constexpr Token vocabulary = 48;

struct Answer {
  std::vector<Token> tokens;
  std::string text;
  Finish finish = Finish::failed;
  std::vector<float> hidden;
  std::vector<float> prompt_logprobs;  // with those of the likeliest tokens
  friend bool operator==(const Answer&, const Answer&) = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << name_of(answer.finish) << " '" << answer.text << "'";
  for (const Token token : answer.tokens) *out << " " << token;
}

// In each state one token of five may not come.
class Skipping final : public Guide {
 public:
  Skipping() {
    for (auto& mask : masks_) mask.assign(1, 0);
    for (Token token = 0; token < vocabulary; ++token) {
      for (std::size_t state = 0; state < states; ++state) {
        if (at(token) % states != state) masks_[state][0] |= std::uint64_t{1} << at(token);
      }
    }
  }
  State start() override { return 1; }
  std::span<const std::uint64_t> allowed(State state) override { return masks_[at(state)]; }
  State next(State state, Token token) override {
    return at(token) % states == at(state) ? dead : static_cast<State>((at(state) + at(token)) % states);
  }
  bool ended(State) override { return false; }

 private:
  static constexpr std::size_t states = 5;
  std::vector<std::uint64_t> masks_[states];
};

// What no token stands before has no logprob, and is equal to itself all the same.
std::vector<float> logprobs_of(const std::vector<Chosen>& choices) {
  std::vector<float> all;
  for (const Chosen& chosen : choices) {
    all.push_back(std::isnan(chosen.logprob) ? 1.0F : chosen.logprob);
    for (const Logprob& likely : chosen.likeliest) all.push_back(likely.value);
  }
  return all;
}

// What is wanted of a prompt, all of it in one step.
void read_alone(Toy& toy, const Request& request, std::span<const BlockId> blocks, Answer& answer) {
  const auto count = static_cast<std::int32_t>(request.prompt.size());
  const Chunk chunk{
      .tokens = request.prompt, .first = 0, .blocks = blocks, .rows = count, .adapter = request.adapter};
  toy.step({&chunk, 1});
  const Choice last{.row = count - 1, .pooling = request.pooling};
  const Chosen known = toy.choose({&last, 1}).front();
  answer.hidden = known.hidden;
  for (const double sum : known.hidden_sum) answer.hidden.push_back(static_cast<float>(sum / count));
  if (!request.prompt_logprobs) return;
  Chosen begin;
  begin.logprob = std::numeric_limits<float>::quiet_NaN();
  std::vector<Chosen> choices{begin};
  for (std::int32_t row = 0; row + 1 < count; ++row) {
    auto likely = likeliest(toy.logits(row), request.sampling.logprobs);
    Chosen chosen;
    chosen.logprob = toy.logits(row)[at(request.prompt[at(row) + 1])] - likely.log_sum;
    chosen.likeliest = std::move(likely.tokens);
    choices.push_back(std::move(chosen));
  }
  answer.prompt_logprobs = logprobs_of(choices);
}

// One answer, one token at a time, all of it computed again for each: no batch, no cache, nothing shared.
Answer alone(Toy& toy, const Request& request, std::int32_t which) {
  std::vector<BlockId> blocks(at(toy.limits().blocks));
  for (std::size_t nth = 0; nth < blocks.size(); ++nth) blocks[nth] = static_cast<BlockId>(nth);
  std::vector<Token> tokens = request.prompt;
  Answer answer;
  if (which == 0) read_alone(toy, request, blocks, answer);
  Guide::State state = request.guide ? request.guide->start() : 0;
  std::string text;
  const auto done = [&](Finish finish) {
    answer.finish = finish;
    answer.text = text;
    return answer;
  };
  for (;;) {
    const Chunk chunk{.tokens = tokens, .first = 0, .blocks = blocks, .rows = 1, .adapter = request.adapter};
    toy.step({&chunk, 1});
    const Sampling& sampling = request.sampling;
    std::map<Token, std::int32_t> counts;
    for (const Token token : request.prompt) counts[token];
    for (const Token token : answer.tokens) ++counts[token];
    std::vector<Choice::Seen> seen;
    for (const auto& [token, count] : counts) seen.push_back({token, count});
    Choice choice{
        .temperature = sampling.temperature,
        .top_k = sampling.top_k,
        .top_p = sampling.top_p,
        .min_p = sampling.min_p,
        .uniform = uniform_of(sampling.seed, which, static_cast<std::int64_t>(answer.tokens.size())),
        .biases = sampling.biases,
        .repetition_penalty = sampling.repetition_penalty,
        .presence_penalty = sampling.presence_penalty,
        .frequency_penalty = sampling.frequency_penalty};
    if (sampling.penalizes()) choice.seen = seen;
    if (request.guide) choice.allowed = request.guide->allowed(state);
    const Token token = toy.choose({&choice, 1}).front().token;
    tokens.push_back(token);
    answer.tokens.push_back(token);
    if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) return done(Finish::stop);
    for (const char byte : toy_bytes(token)) {
      text += byte;
      std::size_t longest = 0;
      for (const auto& stop : request.stop_texts) {
        if (text.ends_with(stop)) longest = std::max(longest, stop.size());
      }
      if (longest == 0) continue;
      text.resize(text.size() - longest);
      return done(Finish::stop);
    }
    if (request.guide) {
      state = request.guide->next(state, token);
      if (request.guide->ended(state)) return done(Finish::stop);
    }
    if (answer.tokens.size() == at(request.tokens_max)) return done(Finish::length);
  }
}

Request any_request(Prng& random) {
  Request request;
  request.key = "key" + std::to_string(random.below(4));
  // Few beginnings and many ends, so that prefixes are shared.
  const auto beginning = random.below(6);
  const auto size = 1 + random.below(40);
  Prng words(beginning);
  for (std::size_t nth = 0; nth < size; ++nth) request.prompt.push_back(static_cast<Token>(words.below(12)));
  for (std::size_t nth = random.below(6); nth > 0; --nth)
    request.prompt.push_back(static_cast<Token>(random.below(vocabulary)));
  request.adapter = random.chance(0.4) ? static_cast<std::int32_t>(1 + random.below(3)) : 0;
  request.tokens_max = static_cast<std::int32_t>(1 + random.below(40));
  if (random.chance(0.15)) request.answers = static_cast<std::int32_t>(2 + random.below(3));
  if (random.chance(0.3)) request.stop_ids = {static_cast<Token>(random.below(vocabulary)), 3};
  if (random.chance(0.3)) request.stop_texts = {"fg", "ghi", "\xC3\xA9", "hij"};
  Sampling& sampling = request.sampling;
  sampling.seed = random.next();
  if (random.chance(0.5)) {
    sampling.temperature = static_cast<float>(0.2 + random.unit());
    if (random.chance(0.5)) sampling.top_k = static_cast<std::int32_t>(1 + random.below(20));
    if (random.chance(0.5)) sampling.top_p = static_cast<float>(0.1 + 0.9 * random.unit());
    if (random.chance(0.2)) sampling.min_p = static_cast<float>(random.unit() * 0.3);
  }
  if (random.chance(0.2)) {
    sampling.repetition_penalty = 1.3F;
    sampling.presence_penalty = 0.4F;
    sampling.frequency_penalty = 0.2F;
  }
  if (random.chance(0.1)) sampling.biases = {{7, 1.5F}, {9, -4.0F}};
  if (random.chance(0.15)) request.guide = std::make_shared<Skipping>();
  if (random.chance(0.1)) {
    request.pooling = random.chance(0.5) ? Pooling::mean : Pooling::last;
    request.answers = 1;
  } else if (random.chance(0.1)) {
    request.prompt_logprobs = true;
    sampling.logprobs = static_cast<std::int32_t>(random.below(3));
  }
  return request;
}

bool can_be_resumed(const Request& request) {
  return request.answers == 1 && request.pooling == Pooling::none && !request.prompt_logprobs;
}

struct Kind {
  Limits limits;
  BatchSettings settings;
  bool preempts;
  bool guesses;
  bool goes_ahead = false;
};

void run_mixed(std::uint64_t seed, const Kind& kind, int requests) {
  Prng random(seed);
  Toy toy(kind.limits);
  Limits whole = kind.limits;  // of the one that computes everything in one step
  whole.step_tokens_max = whole.step_rows_max = static_cast<std::int32_t>(whole.context);
  Toy reference(whole);
  Batch batch(kind.limits, kind.settings, toy_bytes);
  std::map<RequestId, Request> submitted;
  std::map<SequenceId, Answer> answers;
  std::map<SequenceId, bool> finished;
  const auto take = [&](const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      const SequenceId id{piece.request, piece.answer};
      ASSERT_FALSE(finished[id]);
      Answer& answer = answers[id];
      answer.tokens.insert(answer.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      // What was not sure yet is not said by who is to say it where the answer is resumed.
      if (piece.finish != Finish::cancelled) answer.text += piece.text;
      if (answer.tokens.size() == piece.tokens.size()) {  // the first piece
        if (!piece.choices.empty()) answer.hidden = piece.choices.front().hidden;
        answer.prompt_logprobs = logprobs_of(piece.prompt_choices);
      } else {
        ASSERT_TRUE(piece.prompt_choices.empty());
      }
      if (piece.finish) answer.finish = *piece.finish;
      finished[id] = piece.finish.has_value();
    }
  };
  std::uint64_t ids = 0;
  int ahead = 0;
  int resumed = 0;
  while (ids < static_cast<std::uint64_t>(requests) || !batch.empty()) {
    while (ids < static_cast<std::uint64_t>(requests) &&
           (batch.counts().requests < 3 || random.chance(kind.goes_ahead ? 0.2 : 0.6))) {
      const RequestId id(++ids);
      Request request = any_request(random);
      if (kind.goes_ahead && random.chance(0.97)) {  // what can be chosen without knowing what came before
        request.sampling.repetition_penalty = 1;
        request.sampling.presence_penalty = request.sampling.frequency_penalty = 0;
        request.sampling.biases.clear();
        request.sampling.logprobs = -1;
        request.guide = nullptr;
        request.pooling = Pooling::none;
        request.prompt_logprobs = false;
      }
      ASSERT_TRUE(batch.submit(id, request).ok());
      submitted.emplace(id, std::move(request));
    }
    if (random.chance(0.03)) {
      const RequestId id(ids - random.below(std::min<std::uint64_t>(ids, 8)));
      const bool is_cut = batch.knows(id);
      take(batch.cancel(id));
      if (is_cut && can_be_resumed(submitted.at(id)) && random.chance(0.7)) {
        const RequestId next(++ids);
        answers[{next, 0}] = answers[{id, 0}];
        submitted.emplace(next, submitted.at(id));
        Request request = submitted.at(id);
        request.resumed = answers[{id, 0}].tokens;
        ASSERT_TRUE(batch.submit(next, std::move(request)).ok());
        ++resumed;
      }
    }
    const Plan& plan = batch.plan();
    if (plan.empty()) {
      take(batch.told());
      ASSERT_TRUE(batch.empty()) << "requests are left, and nothing is planned";
      continue;
    }
    toy.step(plan.chunks);
    auto chosen = toy.choose(plan.choices);
    while (kind.goes_ahead && random.chance(0.9)) {
      const Plan* const next = batch.plan_ahead();
      if (next == nullptr) break;
      toy.step(next->chunks);
      auto next_chosen = toy.choose(next->choices);
      take(batch.take(chosen));
      chosen = std::move(next_chosen);
      ++ahead;
    }
    take(batch.take(chosen));
    const auto checked = batch.invariants();
    ASSERT_TRUE(checked.ok()) << checked.error().text() << ", seed " << seed;
  }
  const BatchCounts counts = batch.counts();
  EXPECT_EQ(counts.blocks_used, 0);
  EXPECT_EQ(counts.finished, static_cast<std::int64_t>(ids));
  EXPECT_GT(resumed, 0);
  if (kind.preempts) {
    EXPECT_GT(counts.preemptions, 0);
  }
  EXPECT_EQ(counts.accepted_tokens > 0, kind.guesses);
  EXPECT_EQ(ahead > 10, kind.goes_ahead) << ahead;
  EXPECT_EQ(counts.cached_tokens > 0, kind.settings.keeps_prefixes && kind.limits.block_tokens < 40);

  std::map<Finish, int> reasons;
  for (const auto& [id, answer] : answers) {
    ++reasons[answer.finish];
    const Answer expected = alone(reference, submitted.at(id.request), id.answer);
    if (answer.finish != Finish::cancelled) {
      ASSERT_EQ(answer, expected) << "seed " << seed << ", request " << id.request.text();
      continue;
    }
    ASSERT_LE(answer.tokens.size(), expected.tokens.size());
    ASSERT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), expected.tokens.begin()));
  }
  for (const Finish reason : {Finish::stop, Finish::length, Finish::cancelled}) EXPECT_GT(reasons[reason], 0);
  EXPECT_EQ(reasons[Finish::failed], 0);
}

constexpr Limits roomy{.vocabulary = vocabulary,
                       .context = 100,
                       .block_tokens = 4,
                       .blocks = 400,
                       .step_tokens_max = 64,
                       .step_rows_max = 32,
                       .adapters = 3};

TEST(Mixed, WithRoomForAll) { run_mixed(1, {roomy, {.keeps_prefixes = false}, false, false}, 1000); }

TEST(Mixed, WithSharedPrefixes) { run_mixed(2, {roomy, {}, false, false}, 1000); }

// A step is given before the one before it is known, also where answers end meanwhile and their blocks go to
// others.
TEST(Mixed, WithStepsAhead) {
  run_mixed(4, {roomy, {}, false, false, true}, 1000);
  Limits tight = roomy;
  tight.blocks = 60;
  for (std::uint64_t seed = 5; seed < 9; ++seed) run_mixed(seed, {tight, {}, false, false, true}, 1000);
}

// Where nobody may have a guess; after wrong ones an answer has blocks that it did not need.
TEST(Mixed, WithStepsAheadAndGuesses) {
  Limits tight = roomy;
  tight.block_tokens = 1;
  tight.blocks = 120;
  for (std::uint64_t seed = 42; seed < 46; ++seed)
    run_mixed(seed, {tight, {.drafts_max = 3}, false, true, true}, 2000);
}

TEST(Mixed, WithGuesses) {
  run_mixed(3, {roomy, {.drafts_max = 5, .step_drafts_max = 12}, false, true}, 1000);
}

TEST(Mixed, WithHardlyAnyRoom) {
  for (std::uint64_t seed = 10; seed < 15; ++seed) {
    Limits tiny = roomy;
    tiny.blocks = 30;
    tiny.step_tokens_max = static_cast<std::int32_t>(8 + seed % 3 * 5);
    tiny.step_rows_max = 7;
    run_mixed(seed, {tiny, {.drafts_max = 3}, true, true}, 1000);
  }
}

TEST(Mixed, WithFewPlacesThatKeysShare) {
  for (std::uint64_t seed = 15; seed < 18; ++seed) {
    Limits tight = roomy;
    tight.blocks = seed % 2 == 0 ? 30 : 60;
    run_mixed(seed, {tight, {.sequences_max = 5, .drafts_max = 3, .passing_steps = 8}, true, true}, 500);
  }
}

TEST(Mixed, WithBlocksOfAnySize) {
  for (const std::int32_t block_tokens : {1, 3, 16, 100}) {
    Limits odd = roomy;
    odd.block_tokens = block_tokens;
    odd.blocks = 100 / block_tokens + 20;
    run_mixed(20 + at(block_tokens), {odd, {.drafts_max = 3}, block_tokens < 10, true}, 300);
  }
}

}  // namespace
}  // namespace tutti::serve
