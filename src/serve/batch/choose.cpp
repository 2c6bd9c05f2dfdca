#include "serve/batch/choose.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/index.hpp"
#include "serve/batch/kernels.hpp"

namespace tutti::serve {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();  // of tokens that cannot come

constexpr std::size_t group_tokens = 256;  // that are passed over at once
constexpr std::ptrdiff_t sorted_max = 64;  // that are sorted rather than halved

constexpr std::size_t bins = 1024;
constexpr float bins_per_unit = 16;
std::size_t bin_of(float logit, float largest) {
  const float below = (largest - logit) * bins_per_unit;
  return below < static_cast<float>(bins - 1) ? static_cast<std::size_t>(below) : bins - 1;
}

bool before(float logit, Token token, float other_logit, Token other) {
  return logit > other_logit || (logit == other_logit && token < other);
}

float finite(float logit) {
  if (!(logit > -logit_max)) return -logit_max;
  return logit < logit_max ? logit : logit_max;
}

}  // namespace

void Chooser::adjust(std::span<const float> logits, const Choice& choice) {
  row_.resize(logits.size());
  kernels::copy_finite(logits, row_);
  for (const Choice::Seen& seen : choice.seen) {
    float& logit = row_[at(seen.token)];
    logit = logit > 0 ? logit / choice.repetition_penalty : logit * choice.repetition_penalty;
    logit -= choice.frequency_penalty * static_cast<float>(seen.generated);
    if (seen.generated > 0) logit -= choice.presence_penalty;
    logit = finite(logit);
  }
  for (const auto& [token, bias] : choice.biases) row_[at(token)] = finite(row_[at(token)] + bias);
  if (choice.allowed.empty()) return;
  TUTTI_CHECK(choice.allowed.size() * 64 >= logits.size(), "a mask has a bit for each token");
  for (std::size_t first = 0; first < row_.size(); first += 64) {
    const std::uint64_t word = choice.allowed[first / 64];
    if (word == ~std::uint64_t{0}) continue;
    const std::size_t end = std::min(first + 64, row_.size());
    for (std::size_t token = first; token < end; ++token) {
      if ((word >> (token - first) & 1U) == 0) row_[token] = never;
    }
  }
}

bool Chooser::in_order(const Candidate& a, const Candidate& b) {
  return before(a.logit, a.token, b.logit, b.token);
}

// The first so many of the order become the candidates; what they weigh. The best so far are kept in twice
// the room; when it is full, the better half stays and sets the bar.
double Chooser::find_first(std::int32_t count, float largest) {
  const std::size_t wanted = at(count);
  candidates_.clear();
  float bar = never;
  const auto keep_better = [&] {
    std::nth_element(candidates_.begin(), candidates_.begin() + count - 1, candidates_.end(), in_order);
    candidates_.resize(wanted);
    bar = candidates_.back().logit;
  };
  for (std::size_t token = kernels::next_above(row_, 0, bar); token < row_.size();
       token = kernels::next_above(row_, token + 1, bar)) {
    candidates_.push_back({row_[token], 0, static_cast<Token>(token)});
    if (candidates_.size() == 2 * wanted) keep_better();
  }
  if (candidates_.size() > wanted) keep_better();
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  few_.resize(candidates_.size());
  for (std::size_t nth = 0; nth < candidates_.size(); ++nth) few_[nth] = candidates_[nth].logit;
  weights_.resize(candidates_.size());
  kernels::weigh(few_, largest, weights_);
  double sum = 0;
  for (std::size_t nth = 0; nth < candidates_.size(); ++nth) {
    candidates_[nth].weight = weights_[nth];
    sum += static_cast<double>(weights_[nth]);
  }
  return sum;
}

// Those that top_p and min_p may keep become the candidates; what all tokens weigh. All tokens that weigh
// less than 1 / n of what top_p leaves out weigh less than that together: the rest is enough for top_p.
double Chooser::find_heavy(const Choice& choice) {
  const double all = kernels::sum(weights_);
  const double left_out = (1 - static_cast<double>(choice.top_p)) * all;
  const double light = left_out / static_cast<double>(row_.size()) * 0.999;  // whatever rounding has done
  const float bar = std::max(static_cast<float>(light), choice.min_p) * (1 - 1e-6F);
  candidates_.clear();
  for (std::size_t token = kernels::next_above(weights_, 0, bar); token < weights_.size();
       token = kernels::next_above(weights_, token + 1, bar))
    candidates_.push_back({row_[token], weights_[token], static_cast<Token>(token)});
  return all;
}

// The last of the fewest first candidates that weigh so much. Candidates are put into bins by how far they
// are below the largest logit; the bin in which the weight is reached is halved until it is found.
Chooser::Candidate Chooser::last_of(double weight, float largest) {
  bins_.assign(bins, 0);
  for (const Candidate& candidate : candidates_)
    bins_[bin_of(candidate.logit, largest)] += static_cast<double>(candidate.weight);
  double sum = 0;  // of all before begin
  std::size_t bin = 0;
  while (bin + 1 < bins && sum + bins_[bin] < weight) sum += bins_[bin++];
  ordered_.clear();
  for (const Candidate& candidate : candidates_) {
    if (bin_of(candidate.logit, largest) == bin) ordered_.push_back(candidate);
  }
  if (ordered_.empty()) return {never, 0, std::numeric_limits<Token>::max()};  // all, by rounding alone
  auto begin = ordered_.begin();
  auto end = ordered_.end();
  while (end - begin > sorted_max) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, in_order);
    double half = 0;
    for (auto candidate = begin; candidate != middle; ++candidate)
      half += static_cast<double>(candidate->weight);
    if (sum + half >= weight) {
      end = middle;
    } else {
      sum += half;
      begin = middle;
    }
  }
  std::sort(begin, end, in_order);
  for (auto candidate = begin; candidate != end; ++candidate) {
    sum += static_cast<double>(candidate->weight);
    if (sum >= weight) return *candidate;
  }
  return *(end - 1);
}

Token Chooser::sample(const Choice& choice, float largest) {
  const bool by_count = choice.top_k > 0 && at(choice.top_k) < row_.size();
  double all = 0;
  if (by_count) {
    all = find_first(choice.top_k, largest);
  } else {
    weights_.resize(row_.size());
    kernels::weigh(row_, largest, weights_);
    if (choice.top_p >= 1 && choice.min_p <= 0) return sample_all(choice);
    all = find_heavy(choice);
  }
  if (choice.top_p < 1) {
    const Candidate last = last_of(static_cast<double>(choice.top_p) * all, largest);
    std::erase_if(candidates_, [&](const Candidate& candidate) { return in_order(last, candidate); });
  }
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.weight < choice.min_p; });
  double sum = 0;
  for (const Candidate& candidate : candidates_) sum += static_cast<double>(candidate.weight);
  const double wanted = choice.uniform * sum;
  double so_far = 0;
  Token chosen = no_token;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0) continue;
    chosen = candidate.token;
    if ((so_far += static_cast<double>(candidate.weight)) > wanted) break;
  }
  return chosen;
}

// Of all tokens, by their weights.
Token Chooser::sample_all(const Choice& choice) const {
  const std::span<const float> weights(weights_);
  const auto group = [&](std::size_t first) {
    return weights.subspan(first, std::min(group_tokens, weights.size() - first));
  };
  double sum = 0;
  for (std::size_t first = 0; first < weights.size(); first += group_tokens)
    sum += kernels::sum(group(first));
  const double wanted = choice.uniform * sum;
  double so_far = 0;
  std::size_t first = 0;
  while (first + group_tokens < weights.size()) {
    const double next = so_far + kernels::sum(group(first));
    if (next > wanted) break;
    so_far = next;
    first += group_tokens;
  }
  for (std::size_t token = first; token < weights.size(); ++token) {
    if ((so_far += static_cast<double>(weights[token])) > wanted) return static_cast<Token>(token);
  }
  // By rounding alone: the last that weighs something.
  std::size_t token = weights.size();
  while (weights[--token] == 0) {}
  return static_cast<Token>(token);
}

Token Chooser::pick(std::span<const float> logits, const Choice& choice) {
  adjust(logits, choice);
  if (choice.temperature > 0) kernels::divide(row_, choice.temperature);
  const float largest = kernels::largest_of(row_);
  // Where nothing may come, the largest of nothing is no logit of the row.
  const auto first = std::find(row_.begin(), row_.end(), largest);
  if (first == row_.end()) return no_token;
  if (!is_sane(largest)) return no_number;
  return choice.temperature > 0 ? sample(choice, largest) : static_cast<Token>(first - row_.begin());
}

Chosen Chooser::choose(std::span<const float> logits, const Choice& choice) {
  TUTTI_CHECK(!logits.empty());
  Chosen chosen;
  chosen.token = choice.given != no_token ? choice.given : pick(logits, choice);
  if (choice.logprobs >= 0 && chosen.token >= 0) {
    auto likely = likeliest(logits, choice.logprobs);
    if (!is_sane(likely.log_sum)) return {.token = no_number};
    chosen.logprob = finite(logits[at(chosen.token)]) - likely.log_sum;
    chosen.likeliest = std::move(likely.tokens);
  }
  return chosen;
}

Likeliest likeliest(std::span<const float> logits, std::int32_t count) {
  std::vector<float> row(logits.size());
  kernels::copy_finite(logits, row);
  const float largest = kernels::largest_of(row);
  Likeliest result;
  result.log_sum = largest + static_cast<float>(std::log(kernels::sum_of_weights(row, largest)));
  const std::size_t wanted = std::min(at(count), row.size());
  if (wanted == 0) return result;

  // The best so far are kept in twice the room; when it is full, the better half stays and sets the bar.
  const auto in_order = [](const Logprob& a, const Logprob& b) {
    return before(a.value, a.token, b.value, b.token);
  };
  auto& best = result.tokens;
  float bar = never;
  for (std::size_t token = kernels::next_above(row, 0, bar); token < row.size();
       token = kernels::next_above(row, token + 1, bar)) {
    best.push_back({static_cast<Token>(token), row[token]});
    if (best.size() < 2 * wanted) continue;
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(wanted) - 1, best.end(),
                     in_order);
    best.resize(wanted);
    bar = best.back().value;
  }
  std::sort(best.begin(), best.end(), in_order);
  best.resize(std::min(best.size(), wanted));
  for (Logprob& item : best) item.value -= result.log_sum;
  return result;
}

}  // namespace tutti::serve
