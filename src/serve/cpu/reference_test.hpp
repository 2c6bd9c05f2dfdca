// A model computed slowly and plainly, in doubles and straight from the formulas: what the fast one is
// compared with. Its weights are made of their names, so that everybody who asks gets the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "learn/model/names.hpp"
#include "learn/model/shape.hpp"
#include "serve/cpu/weights.hpp"

namespace tutti::serve::cpu {

using Doubles = std::vector<double>;

// Numbers in [-1, 1) that depend on their seed alone.
inline double made_number(std::uint64_t seed) {
  seed += 0x9e3779b97f4a7c15U;
  seed = (seed ^ (seed >> 30U)) * 0xbf58476d1ce4e5b9U;
  seed = (seed ^ (seed >> 27U)) * 0x94d049bb133111ebU;
  seed ^= seed >> 31U;
  return static_cast<double>(seed >> 11U) * 0x1p-52 - 1;
}

struct MadeTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using MadeTensors = std::map<std::string, MadeTensor>;

inline MadeTensors made_tensors(const model::Shape& shape) {
  MadeTensors all;
  for (const model::Unit& unit : model::units(shape)) {
    for (const model::Tensor& tensor : unit.tensors) {
      std::uint64_t seed = 1469598103934665603U;
      for (const char letter : tensor.name)
        seed = (seed ^ static_cast<std::uint8_t>(letter)) * 1099511628211U;
      const double size =
          tensor.shape.size() == 2 ? std::sqrt(3.0 / static_cast<double>(tensor.shape[1])) : 0.3;
      MadeTensor& made = all[tensor.name];
      made.shape = tensor.shape;
      for (std::int64_t at = 0; at < tensor.elements(); ++at) {
        const double number = size * made_number(seed + static_cast<std::uint64_t>(at));
        made.values.push_back(static_cast<float>(tensor.starts_at_one ? 1 + number : number));
      }
    }
  }
  return all;
}

inline ReadRows reader_of(const MadeTensors& tensors) {
  return [&tensors](const std::string& name, std::int64_t first, std::int64_t rows,
                    std::span<float> out) -> Result<> {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return invalid("there is no tensor '" + name + "'");
    const MadeTensor& tensor = found->second;
    const std::int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    if (static_cast<std::int64_t>(out.size()) != rows * columns)
      return invalid("the wrong room for '" + name + "'");
    std::copy_n(tensor.values.begin() + first * columns, rows * columns, out.begin());
    return {};
  };
}

class Reference {
 public:
  Reference(const model::Shape& shape, const MadeTensors& tensors) : shape_(shape), tensors_(tensors) {}

  // The logits after each token.
  std::vector<Doubles> run(std::span<const std::int32_t> tokens) const {
    const model::Names names = model::names_of(shape_);
    std::vector<Doubles> stream;
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      Doubles row = row_of(model::weight_of(names.embedding), tokens[at]);
      if (shape_.learned_positions)
        add(row, row_of(model::weight_of(names.positions), static_cast<std::int64_t>(at)));
      stream.push_back(row);
    }
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      attention(layer, stream);
      for (Doubles& row : stream) feed_forward(layer, row);
    }
    std::vector<Doubles> logits;
    for (const Doubles& row : stream) {
      logits.push_back(
          times(model::weight_of(shape_.tied ? names.embedding : names.head), norm(names.norm, row)));
    }
    return logits;
  }

 private:
  const std::vector<float>& values(const std::string& name) const { return tensors_.at(name).values; }

  Doubles row_of(const std::string& name, std::int64_t row) const {
    const auto begin = values(name).begin() + row * shape_.hidden;
    return {begin, begin + shape_.hidden};
  }
  static void add(Doubles& to, const Doubles& from) {
    for (std::size_t at = 0; at < to.size(); ++at) to[at] += from[at];
  }
  Doubles times(const std::string& name, const Doubles& x) const {
    const auto& weights = values(name);
    Doubles out(weights.size() / x.size());
    for (std::size_t row = 0; row < out.size(); ++row)
      for (std::size_t at = 0; at < x.size(); ++at)
        out[row] += static_cast<double>(weights[row * x.size() + at]) * x[at];
    return out;
  }
  Doubles linear(const std::string& part, const Doubles& x, bool has_bias) const {
    Doubles out = times(model::weight_of(part), x);
    if (has_bias)
      for (std::size_t at = 0; at < out.size(); ++at)
        out[at] += static_cast<double>(values(model::bias_of(part))[at]);
    return out;
  }
  Doubles rms(const std::string& part, const Doubles& x) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double root = std::sqrt(squares / static_cast<double>(x.size()) + shape_.norm_epsilon);
    Doubles out;
    for (std::size_t at = 0; at < x.size(); ++at)
      out.push_back(x[at] / root * static_cast<double>(values(model::weight_of(part))[at]));
    return out;
  }
  Doubles norm(const std::string& part, const Doubles& x) const {
    if (shape_.norm == model::Norm::rms) return rms(part, x);
    double mean = 0;
    double variance = 0;
    for (const double value : x) mean += value / static_cast<double>(x.size());
    for (const double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
    Doubles out;
    for (std::size_t at = 0; at < x.size(); ++at) {
      out.push_back((x[at] - mean) / std::sqrt(variance + shape_.norm_epsilon) *
                        static_cast<double>(values(model::weight_of(part))[at]) +
                    static_cast<double>(values(model::bias_of(part))[at]));
    }
    return out;
  }
  double bend(double x) const {
    switch (shape_.activation) {
      case model::Activation::gelu:
        return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
      case model::Activation::gelu_tanh:
        return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      case model::Activation::silu:
        return x / (1 + std::exp(-x));
    }
    return 0;
  }

  std::vector<Doubles> heads_of(const Doubles& row, std::int64_t count) const {
    std::vector<Doubles> heads;
    for (std::int64_t head = 0; head < count; ++head)
      heads.emplace_back(row.begin() + head * shape_.head_size, row.begin() + (head + 1) * shape_.head_size);
    return heads;
  }
  void turn(Doubles& head, std::size_t position) const {
    if (shape_.learned_positions) return;
    const auto speeds = model::frequencies(shape_.rope, shape_.head_size);
    const std::size_t half = head.size() / 2;
    for (std::size_t pair = 0; pair < half; ++pair) {
      const double angle = speeds[pair] * static_cast<double>(position);
      const double a = head[pair] * shape_.rope.attention_factor;
      const double b = head[pair + half] * shape_.rope.attention_factor;
      head[pair] = a * std::cos(angle) - b * std::sin(angle);
      head[pair + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  void attention(std::int64_t layer, std::vector<Doubles>& stream) const {
    const model::LayerNames names = model::names_of_layer(shape_, layer);
    std::vector<std::vector<Doubles>> keys;
    std::vector<std::vector<Doubles>> held;
    for (std::size_t at = 0; at < stream.size(); ++at) {
      const Doubles x = norm(names.attention_norm, stream[at]);
      auto queries = heads_of(linear(names.queries, x, shape_.qkv_bias), shape_.heads);
      keys.push_back(heads_of(linear(names.keys, x, shape_.qkv_bias), shape_.kv_heads));
      held.push_back(heads_of(linear(names.values, x, shape_.qkv_bias), shape_.kv_heads));
      if (shape_.qk_norm) {
        for (Doubles& head : queries) head = rms(names.query_norm, head);
        for (Doubles& head : keys.back()) head = rms(names.key_norm, head);
      }
      for (Doubles& head : queries) turn(head, at);
      for (Doubles& head : keys.back()) turn(head, at);
      Doubles mixed;
      for (std::size_t head = 0; head < queries.size(); ++head) {
        const std::size_t theirs = head / static_cast<std::size_t>(shape_.heads / shape_.kv_heads);
        const auto window = static_cast<std::size_t>(shape_.window);
        const std::size_t first = window > 0 && at + 1 > window ? at + 1 - window : 0;
        Doubles scores;
        for (std::size_t seen = first; seen <= at; ++seen) {
          double score = 0;
          for (std::size_t i = 0; i < queries[head].size(); ++i)
            score += queries[head][i] * keys[seen][theirs][i];
          scores.push_back(score / std::sqrt(static_cast<double>(shape_.head_size)));
        }
        const double largest = *std::max_element(scores.begin(), scores.end());
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - largest);
        Doubles out(queries[head].size());
        for (std::size_t seen = first; seen <= at; ++seen)
          for (std::size_t i = 0; i < out.size(); ++i)
            out[i] += scores[seen - first] / total * held[seen][theirs][i];
        mixed.insert(mixed.end(), out.begin(), out.end());
      }
      add(stream[at], linear(names.output, mixed, shape_.output_bias));
    }
  }

  Doubles part(const model::FeedForwardNames& names, const Doubles& x) const {
    Doubles up = linear(names.up, x, shape_.mlp_bias);
    if (shape_.gated) {
      const Doubles gate = linear(names.gate, x, shape_.mlp_bias);
      for (std::size_t at = 0; at < up.size(); ++at) up[at] *= bend(gate[at]);
    } else {
      for (double& value : up) value = bend(value);
    }
    return linear(names.down, up, shape_.mlp_bias);
  }
  void feed_forward(std::int64_t layer, Doubles& row) const {
    const model::LayerNames names = model::names_of_layer(shape_, layer);
    const Doubles x = norm(names.feed_forward_norm, row);
    if (!shape_.has_experts(layer)) return add(row, part(names.feed_forward, x));
    Doubles weights = times(model::weight_of(names.router), x);
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight);
    std::vector<std::size_t> order(weights.size());
    for (std::size_t at = 0; at < order.size(); ++at) order[at] = at;
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
    order.resize(static_cast<std::size_t>(shape_.experts.chosen));
    double kept = 0;
    for (const std::size_t expert : order) kept += weights[expert];
    for (const std::size_t expert : order) {
      Doubles out = part(model::names_of_expert(shape_, layer, static_cast<std::int64_t>(expert)), x);
      for (double& value : out) value *= weights[expert] / (shape_.experts.normalized ? kept : total);
      add(row, out);
    }
  }

  const model::Shape& shape_;
  const MadeTensors& tensors_;
};

}  // namespace tutti::serve::cpu
