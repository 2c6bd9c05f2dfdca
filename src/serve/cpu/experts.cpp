// Layers with experts: the tokens that go to one expert are rows side by side, so that its weights pass by
// once for all of them. What a token gets back is added in the order of its experts' weights, whoever else
// went to them.
#include <algorithm>
#include <cmath>

#include "serve/cpu/forward.hpp"

namespace tutti::serve::cpu {

void Forward::route(std::int64_t token) {
  const model::Experts& experts = shape_.experts;
  float* const numbers = router_ + token * whole_panels(experts.count);
  const float largest = *std::max_element(numbers, numbers + experts.count);
  double total = 0;
  for (std::int64_t expert = 0; expert < experts.count; ++expert) {
    numbers[expert] = std::exp(numbers[expert] - largest);
    total += static_cast<double>(numbers[expert]);
  }
  double kept = 0;
  for (std::int64_t rank = 0; rank < experts.chosen; ++rank) {
    const std::int64_t best = std::max_element(numbers, numbers + experts.count) - numbers;
    const auto place = static_cast<std::size_t>(token * experts.chosen + rank);
    place_expert_[place] = best;
    place_weight_[place] = numbers[best];
    kept += static_cast<double>(numbers[best]);
    numbers[best] = -1;  // chosen: below every other
  }
  for (std::int64_t rank = 0; rank < experts.chosen; ++rank) {
    float& weight = place_weight_[static_cast<std::size_t>(token * experts.chosen + rank)];
    weight = static_cast<float>(static_cast<double>(weight) / (experts.normalized ? kept : total));
  }
}

void Forward::group_by_expert() {
  const auto places = static_cast<std::size_t>(count_ * shape_.experts.chosen);
  std::fill(expert_first_.begin(), expert_first_.end(), 0);
  for (std::size_t place = 0; place < places; ++place)
    ++expert_first_[static_cast<std::size_t>(place_expert_[place]) + 1];
  for (std::size_t expert = 1; expert < expert_first_.size(); ++expert)
    expert_first_[expert] += expert_first_[expert - 1];
  std::copy(expert_first_.begin(), expert_first_.end() - 1, expert_next_.begin());
  for (std::size_t place = 0; place < places; ++place) {
    const std::int64_t row = expert_next_[static_cast<std::size_t>(place_expert_[place])]++;
    place_row_[place] = row;
    row_place_[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(place);
  }
}

// One of the two products of all experts that have tokens, as one phase.
void Forward::share_experts(Member& member, const LayerWeights& layer, bool is_up) {
  const auto matrix_of = [&](std::int64_t expert) -> const Matrix& {
    const FeedForwardWeights& weights = layer.experts[static_cast<std::size_t>(expert)];
    return is_up ? weights.up : weights.down;
  };
  const std::int64_t grain = grain_of(matrix_of(0));
  if (member.index() == 0) {
    expert_pieces_.clear();
    for (std::int64_t expert = 0; expert < shape_.experts.count; ++expert) {
      const auto at = static_cast<std::size_t>(expert);
      if (expert_first_[at] == expert_first_[at + 1]) continue;
      for (std::int64_t panel = 0; panel < matrix_of(expert).panels; panel += grain)
        expert_pieces_.push_back({expert, panel});
    }
  }
  member.meet();
  const auto pieces = static_cast<std::int64_t>(expert_pieces_.size());
  member.share(pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const ExpertPiece& piece = expert_pieces_[static_cast<std::size_t>(at)];
      const auto expert = static_cast<std::size_t>(piece.expert);
      const FeedForwardWeights& weights = layer.experts[expert];
      const Matrix& matrix = is_up ? weights.up : weights.down;
      const std::int64_t rows = expert_first_[expert + 1] - expert_first_[expert];
      const Input input = is_up ? Input{gathered_, hidden_stride_, rows, expert_first_[expert]}
                                : Input{bent_, bent_stride_, rows, expert_first_[expert]};
      const Output output = is_up ? Output{wide_, wide_stride_, weights.up_bias}
                                  : Output{expert_out_, hidden_stride_, weights.down_bias};
      multiply(matrix, piece.first_panel, std::min(piece.first_panel + grain, matrix.panels), input, output);
    }
  });
}

void Forward::mix_experts(Member& member, const LayerWeights& layer) {
  const std::int64_t chosen = shape_.experts.chosen;
  const std::int64_t router_stride = whole_panels(shape_.experts.count);
  product(member, layer.router, {normed_, hidden_stride_, count_}, {router_, router_stride});
  member.share(count_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) route(token);
  });
  if (member.index() == 0) group_by_expert();
  member.meet();
  member.share(count_ * chosen, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t token = row_place_[static_cast<std::size_t>(row)] / chosen;
      float* const gathered = gathered_ + row * hidden_stride_;
      std::copy_n(normed_ + token * hidden_stride_, shape_.hidden, gathered);
      if (quantized_) quantize(gathered, row, hidden_stride_, 0, hidden_stride_);
    }
  });
  share_experts(member, layer, true);
  bend_rows(member, count_ * chosen, shape_.experts.intermediate);
  share_experts(member, layer, false);
  member.share(count_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      float* const row = stream_ + token * hidden_stride_;
      if (!is_first()) std::fill_n(row, hidden_stride_, 0.0F);
      for (std::int64_t place = token * chosen; place < (token + 1) * chosen; ++place) {
        kernels_.add_scaled(expert_out_ + place_row_[static_cast<std::size_t>(place)] * hidden_stride_,
                            place_weight_[static_cast<std::size_t>(place)], row, shape_.hidden);
      }
    }
  });
  sum(member);
}

}  // namespace tutti::serve::cpu
