// One token of a row of logits, as a Choice says: the reference for every device. The same row and the same
// choice give the same token on every machine. In this order:
//
//  1. Logits are held within -logit_max and logit_max (kernels.hpp); what is no number (NaN) is taken for the
//  lowest.
//     So is what comes of 2 and 3.
//  2. Each seen token, by its logit x: x > 0 ? x / repetition_penalty : x * repetition_penalty; then minus
//     frequency_penalty * generated, and minus presence_penalty if generated > 0.
//  3. Biases are added.
//  4. What is not allowed cannot come. If nothing is, the token is no_token.
//  5. With a temperature logits are divided by it. If the largest of them is not within -logit_sane and
//     logit_sane then, the model has not computed numbers, and the token is no_number: it would be one of
//     many that nothing speaks for.
//  6. Temperature 0: the largest, of equal ones the lowest token. That is all. Else the weight of a token is
//  e to the power of its logit less the
//     largest one, as a float (exponential() of kernels.hpp); below e^-64 it is 0.
//  7. Tokens stand in order: larger logit first, of equal ones the lower token first. top_k keeps the first
//  k; top_p keeps
//     the fewest first ones whose weights reach top_p of all weights that top_k left; min_p keeps those whose
//     weight is at least min_p (the largest weighs 1). The first is always kept.
//  8. The kept ones are gone through from the lowest token up, their weights added as doubles: the chosen one
//  is the
//     first with which the sum is larger than uniform * the sum of all of them.
//
// A token that is given is not chosen: steps 1 to 8 are passed over. Where logprobs are wanted of a row whose
// largest logit is not as 5 wants it, the token is no_number, too.
//
// Sums of weights are taken in doubles; how they are grouped is not said, and decides only between numbers
// that are alike to 15 digits. Logprobs are those of the model itself: before penalties, biases, mask and
// temperature. The likeliest stand in the order of 7. No row is ever sorted: the work grows with the
// vocabulary alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serve/step/step.hpp"

namespace tutti::serve {

// Has room for a row, so that choosing allocates nothing. One thread at a time.
class Chooser {
 public:
  Chosen choose(std::span<const float> logits, const Choice& choice);

 private:
  struct Candidate {
    float logit = 0;
    float weight = 0;
    Token token = 0;
  };
  static bool in_order(const Candidate& a, const Candidate& b);
  Token pick(std::span<const float> logits, const Choice& choice);
  void adjust(std::span<const float> logits, const Choice& choice);
  Token sample(const Choice& choice, float largest);
  Token sample_all(const Choice& choice) const;
  double find_first(std::int32_t count, float largest);
  double find_heavy(const Choice& choice);
  Candidate last_of(double weight, float largest);

  std::vector<float> row_;
  std::vector<float> weights_;
  std::vector<float> few_;
  std::vector<Candidate> candidates_;  // by token
  std::vector<Candidate> ordered_;
  std::vector<double> bins_;
};

// The log-probability of each of the first `count` tokens in order, and what is to be taken from a logit for
// it.
struct Likeliest {
  std::vector<Logprob> tokens;
  float log_sum = 0;  // logprob of a token = its logit - log_sum
};
Likeliest likeliest(std::span<const float> logits, std::int32_t count);

}  // namespace tutti::serve
