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

// Tokens are put into bins by how far their logit is below the largest one, so that where the order is cut
// only one bin has to be looked at closely. The last bin has all the rest.
constexpr std::int32_t bins = 2048;
constexpr float bins_per_unit = 32;

std::int32_t bin_of(float logit, float largest) {
  const float below = (largest - logit) * bins_per_unit;
  return below < static_cast<float>(bins - 1) ? static_cast<std::int32_t>(below) : bins - 1;
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

// Where the order is cut by top_k and top_p; the largest token of the lowest logit if it is not.
Chooser::Last Chooser::last_kept(const Choice& choice, float largest) {
  Last last{never, std::numeric_limits<Token>::max()};
  const bool by_count = choice.top_k > 0 && at(choice.top_k) < row_.size();
  const bool by_weight = choice.top_p < 1;
  if (!by_count && !by_weight) return last;

  bin_counts_.assign(at(bins), 0);
  bin_weights_.assign(at(bins), 0);
  for (std::size_t token = 0; token < row_.size(); ++token) {
    if (row_[token] == never) continue;
    const auto bin = at(bin_of(row_[token], largest));
    ++bin_counts_[bin];
    bin_weights_[bin] += static_cast<double>(weights_[token]);
  }
  const auto pick = [&](std::int32_t bin) {
    picked_.clear();
    for (std::size_t token = 0; token < row_.size(); ++token) {
      if (row_[token] != never && bin_of(row_[token], largest) == bin)
        picked_.push_back({row_[token], static_cast<Token>(token)});
    }
  };
  const auto in_order = [](const Last& a, const Last& b) {
    return before(a.logit, a.token, b.logit, b.token);
  };

  double kept_weight = 0;
  std::int32_t cut_bin = bins;  // by top_k
  double cut_weight = 0;        // of what is kept of it
  if (by_count) {
    std::int64_t count = 0;
    for (std::int32_t bin = 0; bin < bins; ++bin) {
      if (count + bin_counts_[at(bin)] < choice.top_k) {
        count += bin_counts_[at(bin)];
        kept_weight += bin_weights_[at(bin)];
        continue;
      }
      pick(bin);
      const auto end = picked_.begin() + static_cast<std::ptrdiff_t>(choice.top_k - count);
      std::nth_element(picked_.begin(), end - 1, picked_.end(), in_order);
      last = *(end - 1);
      cut_bin = bin;
      for (auto item = picked_.begin(); item != end; ++item)
        cut_weight += static_cast<double>(weights_[at(item->token)]);
      kept_weight += cut_weight;
      break;
    }
  } else {
    for (const double weight : bin_weights_) kept_weight += weight;
  }
  if (!by_weight) return last;

  const double wanted = static_cast<double>(choice.top_p) * kept_weight;
  double sum = 0;
  for (std::int32_t bin = 0; bin < bins && bin <= cut_bin; ++bin) {
    const double weight = bin == cut_bin ? cut_weight : bin_weights_[at(bin)];
    if (sum + weight < wanted) {
      sum += weight;
      continue;
    }
    pick(bin);
    std::sort(picked_.begin(), picked_.end(), in_order);
    for (const Last& item : picked_) {
      if (before(last.logit, last.token, item.logit, item.token)) break;
      sum += static_cast<double>(weights_[at(item.token)]);
      if (sum >= wanted) return item;
    }
    return last;  // by rounding alone
  }
  return last;
}

Token Chooser::sample(const Choice& choice, float largest) {
  weights_.resize(row_.size());
  kernels::weigh(row_, largest, weights_);
  const Last last = last_kept(choice, largest);
  double sum = 0;
  for (std::size_t token = 0; token < row_.size(); ++token) {
    const bool cut = before(last.logit, last.token, row_[token], static_cast<Token>(token));
    if (cut || weights_[token] < choice.min_p) weights_[token] = 0;
    sum += static_cast<double>(weights_[token]);
  }
  const double wanted = choice.uniform * sum;
  double so_far = 0;
  Token chosen = no_token;
  for (std::size_t token = 0; token < row_.size(); ++token) {
    if (weights_[token] == 0) continue;
    so_far += static_cast<double>(weights_[token]);
    chosen = static_cast<Token>(token);
    if (so_far > wanted) break;
  }
  return chosen;
}

Chosen Chooser::choose(std::span<const float> logits, const Choice& choice) {
  TUTTI_CHECK(!logits.empty());
  Chosen chosen;
  adjust(logits, choice);
  if (choice.temperature > 0) kernels::divide(row_, choice.temperature);
  const float largest = kernels::largest_of(row_);
  // Where nothing may come, the largest of nothing is no logit of the row.
  const auto first = std::find(row_.begin(), row_.end(), largest);
  if (first == row_.end()) {
    chosen.token = no_token;
    return chosen;
  }
  chosen.token = choice.temperature > 0 ? sample(choice, largest) : static_cast<Token>(first - row_.begin());
  if (choice.logprobs >= 0) {
    auto likely = likeliest(logits, choice.logprobs);
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
  for (std::size_t token = 0; token < row.size(); ++token) {
    if (row[token] <= bar) continue;
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
