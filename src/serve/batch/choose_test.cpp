#include "serve/batch/choose.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/index.hpp"
#include "base/prng.hpp"
#include "serve/batch/kernels.hpp"

namespace tutti::serve {
namespace {

using Row = std::vector<float>;

Token chosen(const Row& row, const Choice& choice) { return Chooser().choose(row, choice).token; }

// The specification word by word, with a full sort.
Token plainly_chosen(Row row, const Choice& choice) {
  const auto hold = [](float& logit) {
    if (std::isnan(logit)) logit = -logit_max;
    logit = std::clamp(logit, -logit_max, logit_max);
  };
  for (float& logit : row) hold(logit);
  for (const auto& seen : choice.seen) {
    float& logit = row[at(seen.token)];
    logit = logit > 0 ? logit / choice.repetition_penalty : logit * choice.repetition_penalty;
    logit -= choice.frequency_penalty * static_cast<float>(seen.generated);
    if (seen.generated > 0) logit -= choice.presence_penalty;
    hold(logit);
  }
  for (const auto& [token, bias] : choice.biases) hold(row[at(token)] += bias);
  std::vector<Token> order;
  for (Token token = 0; token < static_cast<Token>(row.size()); ++token) {
    const auto word = at(token) / 64;
    if (choice.allowed.empty() || (choice.allowed[word] >> (at(token) % 64) & 1U) != 0)
      order.push_back(token);
  }
  if (order.empty()) return no_token;
  if (choice.temperature > 0) {
    for (float& logit : row) logit /= choice.temperature;
  }
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) { return row[at(a)] > row[at(b)]; });
  if (choice.temperature == 0) return order.front();
  const float largest = row[at(order.front())];
  const auto weight = [&](Token token) { return static_cast<double>(exponential(row[at(token)] - largest)); };
  if (choice.top_k > 0 && at(choice.top_k) < order.size()) order.resize(at(choice.top_k));
  if (choice.top_p < 1) {
    double all = 0;
    for (const Token token : order) all += weight(token);
    double sum = 0;
    std::size_t kept = 0;
    while (kept < order.size() && (kept == 0 || sum < static_cast<double>(choice.top_p) * all))
      sum += weight(order[kept++]);
    order.resize(kept);
  }
  std::erase_if(order, [&](Token token) { return weight(token) < static_cast<double>(choice.min_p); });
  std::sort(order.begin(), order.end());
  double all = 0;
  for (const Token token : order) all += weight(token);
  double sum = 0;
  for (const Token token : order) {
    if ((sum += weight(token)) > choice.uniform * all) return token;
  }
  return order.back();
}

TEST(Choose, TheLargestAndOfEqualOnesTheFirst) {
  EXPECT_EQ(chosen({1, 3, 2, 3}, {}), 1);
  EXPECT_EQ(chosen({-5, -3, -7}, {}), 1);
  EXPECT_EQ(chosen(Row(1000, 0.0F), {}), 0);
}

TEST(Choose, WhatIsNoNumberComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(chosen({nan, -4, nan}, {}), 1);
  EXPECT_EQ(chosen({nan, -infinity, 2, -7}, {}), 2);
  Choice choice{.temperature = 1, .uniform = 0.999};
  EXPECT_EQ(chosen({0, 50, nan, 5}, choice), 1);
}

TEST(Choose, ARowWithoutNumbersHasNoToken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Row numbers{1, 5, 2};
  const std::vector<Row> rows{
      {nan, nan, nan}, {-infinity, nan, -infinity}, {nan, 2, infinity}, {0, 3e38F, 1}};
  const std::vector<Choice::Seen> seen{{0, 1}, {1, 2}, {2, 0}};
  const std::vector<std::pair<Token, float>> biases{{1, 100.0F}};
  const std::vector<std::uint64_t> allowed{0b110};
  const std::vector<std::uint64_t> nothing{0};
  std::vector<Choice> choices{{}, {.logprobs = 0}, {.given = 1, .logprobs = 2}};
  for (const float temperature : {0.0F, 0.01F, 1.0F, 100.0F}) {
    choices.push_back({.temperature = temperature, .top_k = 2, .top_p = 0.9F, .min_p = 0.1F});
    choices.push_back({.temperature = temperature, .allowed = allowed});
    choices.push_back({.temperature = temperature, .biases = biases});
    for (const float penalty : {0.01F, 100.0F})
      choices.push_back({.temperature = temperature,
                         .repetition_penalty = penalty,
                         .presence_penalty = 2,
                         .frequency_penalty = -2,
                         .seen = seen});
  }
  for (const Choice& choice : choices) {
    for (const Row& row : rows) {
      const Chosen none = Chooser().choose(row, choice);
      EXPECT_EQ(none.token, no_number);
      EXPECT_TRUE(none.likeliest.empty());
    }
    EXPECT_GE(chosen(numbers, choice), 0);
  }
  EXPECT_EQ(chosen(rows[0], {.allowed = nothing}), no_token) << "that nothing may come is known";
  EXPECT_EQ(chosen(rows[0], {.given = 1}), 1) << "nothing is asked of the row";
}

TEST(Choose, DrawsByTheWeights) {
  const Row row{std::log(1.0F), std::log(2.0F), std::log(1.0F)};
  Choice choice{.temperature = 1};
  for (const auto& [uniform, token] :
       std::map<double, Token>{{0, 0}, {0.24, 0}, {0.26, 1}, {0.74, 1}, {0.76, 2}, {0.9999999, 2}}) {
    choice.uniform = uniform;
    EXPECT_EQ(chosen(row, choice), token) << uniform;
  }
}

TEST(Choose, KeepsTheFirstOfTheOrder) {
  const Row row{1, 4, 3, 2, 4};
  std::map<Token, int> counts;
  const auto draw = [&](Choice choice) {
    counts.clear();
    choice.temperature = 1;
    for (int step = 0; step < 1000; ++step) {
      choice.uniform = step / 1000.0;
      ++counts[chosen(row, choice)];
    }
    return counts.size();
  };
  EXPECT_EQ(draw({.top_k = 1}), 1U);
  EXPECT_TRUE(counts.contains(1));
  EXPECT_EQ(draw({.top_k = 2}), 2U);
  EXPECT_NEAR(counts[1], 500, 1);
  EXPECT_EQ(draw({.top_k = 3}), 3U);
  EXPECT_EQ(draw({.top_p = 0.0001F}), 1U);
  EXPECT_EQ(draw({.top_p = 0.6F}), 2U);  // each of the two largest has 0.39
  EXPECT_EQ(draw({.min_p = 0.2F}), 3U);
  EXPECT_EQ(draw({.min_p = 1}), 2U);
  EXPECT_EQ(draw({}), 5U);
}

TEST(Choose, PenaltiesBiasesAndMasks) {
  const Row row{2, 3, -1, 0};
  const std::vector<Choice::Seen> seen{{1, 0}};
  EXPECT_EQ(chosen(row, {.repetition_penalty = 2, .seen = seen}), 0);
  EXPECT_EQ(chosen(row, {.presence_penalty = 2, .seen = seen}), 1) << "it was in the prompt alone";
  const std::vector<Choice::Seen> twice{{1, 2}};
  EXPECT_EQ(chosen(row, {.frequency_penalty = 0.6F, .seen = twice}), 0);
  EXPECT_EQ(chosen(row, {.frequency_penalty = 0.4F, .seen = twice}), 1);
  const std::vector<std::pair<Token, float>> biases{{2, 100.0F}, {3, 99.5F}};
  EXPECT_EQ(chosen(row, {.biases = biases}), 3);
  const std::vector<std::uint64_t> allowed{0b1100};
  EXPECT_EQ(chosen(row, {.allowed = allowed}), 3);
  EXPECT_EQ(chosen(row, {.temperature = 5, .uniform = 0.9999, .allowed = allowed}), 3);
  const std::vector<std::uint64_t> nothing{0};
  EXPECT_EQ(chosen(row, {.allowed = nothing}), no_token);
}

TEST(Choose, LogprobsAreThoseOfTheModel) {
  const Row row{1, 2, 3, 2};
  const std::vector<std::pair<Token, float>> biases{{0, 100.0F}};
  const auto result = Chooser().choose(row, {.temperature = 0.5F, .biases = biases, .logprobs = 3});
  const double sum = std::exp(1) + 2 * std::exp(2) + std::exp(3);
  EXPECT_EQ(result.token, 0);
  EXPECT_NEAR(result.logprob, 1 - std::log(sum), 1e-6);
  ASSERT_EQ(result.likeliest.size(), 3U);
  EXPECT_EQ(result.likeliest[0].token, 2);
  EXPECT_EQ(result.likeliest[1].token, 1);
  EXPECT_EQ(result.likeliest[2].token, 3);
  EXPECT_NEAR(result.likeliest[0].value, 3 - std::log(sum), 1e-6);
  EXPECT_EQ(Chooser().choose(row, {.logprobs = 99}).likeliest.size(), 4U);
  EXPECT_TRUE(Chooser().choose(row, {.logprobs = 0}).likeliest.empty());
}

TEST(Choose, TheExponentialIsOne) {
  for (float x = 0; x > exponent_min; x -= 0.0137F)
    EXPECT_NEAR(exponential(x) / std::exp(static_cast<double>(x)), 1, 4e-7) << x;
  EXPECT_EQ(exponential(0), 1.0F);
  EXPECT_EQ(exponential(-64.1F), 0.0F);
}

TEST(Choose, IsWhatTheSpecificationSays) {
  Prng random(7);
  Chooser chooser;
  for (int turn = 0; turn < 3000; ++turn) {
    const auto size = static_cast<std::size_t>(random.between(1, 300));
    Row row(size);
    const double spread = random.unit() * 30;
    for (float& logit : row) {
      logit = static_cast<float>((random.unit() - 0.5) * spread);
      if (random.chance(0.3)) logit = std::round(logit);  // many are equal
    }
    Choice choice;
    if (random.chance(0.8)) choice.temperature = static_cast<float>(0.1 + random.unit() * 2);
    if (random.chance(0.5)) choice.top_k = static_cast<std::int32_t>(random.between(1, 320));
    if (random.chance(0.5)) choice.top_p = static_cast<float>(random.unit());
    if (random.chance(0.3)) choice.min_p = static_cast<float>(random.unit() * 0.5);
    choice.uniform = random.unit();
    std::vector<Choice::Seen> seen;
    std::vector<std::pair<Token, float>> biases;
    std::vector<std::uint64_t> allowed;
    if (random.chance(0.5)) {
      for (Token token = 0; token < static_cast<Token>(size); token += 3)
        seen.push_back({token, static_cast<std::int32_t>(random.below(4))});
      choice.seen = seen;
      choice.repetition_penalty = static_cast<float>(0.5 + random.unit());
      choice.presence_penalty = static_cast<float>(random.unit() * 2);
      choice.frequency_penalty = static_cast<float>(random.unit());
    }
    if (random.chance(0.3)) {
      biases = {{0, 3.5F}, {static_cast<Token>(size - 1), -2.0F}};
      choice.biases = biases;
    }
    if (random.chance(0.3)) {
      for (std::size_t first = 0; first < size; first += 64) allowed.push_back(random.next() & random.next());
      choice.allowed = allowed;
    }
    ASSERT_EQ(chooser.choose(row, choice).token, plainly_chosen(row, choice)) << "turn " << turn;
  }
}

}  // namespace
}  // namespace tutti::serve
