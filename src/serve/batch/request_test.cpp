#include "serve/batch/request.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "base/index.hpp"
#include "serve/batch/choose.hpp"

namespace tutti::serve {
namespace {

const Limits limits{.vocabulary = 100,
                    .context = 64,
                    .block_tokens = 4,
                    .blocks = 10,
                    .step_tokens_max = 8,
                    .step_rows_max = 4,
                    .adapters = 2};

Request fine() { return {.key = "k", .prompt = {1, 2, 3}, .tokens_max = 10}; }

TEST(Request, WithinTheLimitsIsFine) {
  EXPECT_TRUE(check(fine(), limits).ok());
  Request request = fine();
  request.tokens_max = 38;  // 3 + 38 - 1 positions are 10 blocks of 4
  EXPECT_TRUE(check(request, limits).ok());
}

TEST(Request, ThatCanNeverFitIsRefusedWithTheNumbers) {
  Request request = fine();
  request.tokens_max = 39;
  auto refused = check(request, limits);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(),
            "prompt : the prompt has 3 tokens and the answer up to 39, there is memory for 40");
  request.tokens_max = 62;
  refused = check(request, limits);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(),
            "prompt : the prompt has 3 tokens and the answer up to 62, the model's context has 64");
}

// Of a prompt without an answer the token behind it is chosen and never computed.
TEST(Request, WithoutAnAnswerAPromptMayFillTheContext) {
  Limits short_context = limits;
  short_context.context = 40;
  Request request = fine();
  request.prompt.assign(40, 1);
  request.tokens_max = 1;
  EXPECT_FALSE(check(request, short_context).ok());
  request.wants_answer = false;
  EXPECT_TRUE(check(request, short_context).ok());
  request.prompt.push_back(1);
  EXPECT_FALSE(check(request, short_context).ok());
}

TEST(Request, MayBeResumedUpToItsLastToken) {
  Request request = fine();
  request.resumed.assign(at(request.tokens_max), 1);
  EXPECT_TRUE(check(request, limits).ok());
  request.resumed.push_back(1);
  const auto refused = check(request, limits);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(),
            "tutti_resume : the answer has 11 tokens already, and up to 10 are asked for");
}

TEST(Request, OutOfItsBoundsIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::function<void(Request&)>> spoilers{
      [](Request& r) { r.prompt.clear(); },
      [](Request& r) { r.prompt[1] = 100; },
      [](Request& r) { r.prompt[1] = -1; },
      [](Request& r) { r.tokens_max = 0; },
      [](Request& r) { r.tokens_max = std::numeric_limits<std::int32_t>::max(); },
      [](Request& r) { r.answers = 0; },
      [](Request& r) { r.answers = answers_max + 1; },
      [](Request& r) { r.adapter = -1; },
      [](Request& r) { r.adapter = 3; },
      [](Request& r) { r.key = std::string(key_bytes_max + 1, 'x'); },
      [](Request& r) { r.stop_ids = {100}; },
      [](Request& r) { r.stop_ids.assign(stop_ids_max + own_stop_ids_max + 1, 1); },
      [](Request& r) { r.stop_texts = {""}; },
      [](Request& r) { r.stop_texts = {std::string(stop_text_bytes_max + 1, 'x')}; },
      [](Request& r) { r.stop_texts.assign(stop_texts_max + own_stop_texts_max + 1, "x"); },
      [=](Request& r) { r.sampling.temperature = nan; },
      [=](Request& r) { r.sampling.temperature = infinity; },
      [](Request& r) { r.sampling.temperature = 1e-9F; },
      [](Request& r) { r.sampling.temperature = -1; },
      [](Request& r) { r.sampling.top_k = -1; },
      [](Request& r) { r.sampling.top_p = 0; },
      [=](Request& r) { r.sampling.top_p = nan; },
      [](Request& r) { r.sampling.min_p = 1.1F; },
      [](Request& r) { r.sampling.repetition_penalty = 0; },
      [=](Request& r) { r.sampling.presence_penalty = nan; },
      [=](Request& r) { r.sampling.frequency_penalty = infinity; },
      [](Request& r) { r.sampling.logprobs = logprobs_max + 1; },
      [](Request& r) { r.sampling.logprobs = -2; },
      [](Request& r) {
        r.sampling.biases = {{100, 1.0F}};
      },
      [=](Request& r) {
        r.sampling.biases = {{1, nan}};
      },
      [](Request& r) {
        r.sampling.biases.assign(biases_max + 1, {1, 1.0F});
      },
      [](Request& r) { r.resumed = {100}; },
      [](Request& r) { r.resumed = {-1}; },
      [](Request& r) { r.resumed.assign(at(r.tokens_max) + 1, 1); },
      [](Request& r) {
        r.resumed = {1};
        r.answers = 2;
      },
      [](Request& r) {
        r.resumed = {1};
        r.pooling = Pooling::last;
      },
      [](Request& r) {
        r.resumed = {1};
        r.sampling.logprobs = 0;
        r.prompt_logprobs = true;
      },
  };
  for (std::size_t which = 0; which < spoilers.size(); ++which) {
    Request request = fine();
    spoilers[which](request);
    const auto refused = check(request, limits);
    ASSERT_FALSE(refused.ok()) << "the spoiler " << which;
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
  }
}

TEST(Request, EachTokenHasANumberOfItsOwn) {
  std::set<double> numbers;
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::int32_t answer = 0; answer < 10; ++answer) {
      for (std::int64_t token = 0; token < 100; ++token) {
        const double number = uniform_of(seed, answer, token);
        EXPECT_TRUE(number >= 0 && number < 1);
        numbers.insert(number);
        sum += number;
      }
    }
  }
  EXPECT_EQ(numbers.size(), 10'000U);
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
  EXPECT_EQ(uniform_of(1, 2, 3), uniform_of(1, 2, 3));
}

}  // namespace
}  // namespace tutti::serve
