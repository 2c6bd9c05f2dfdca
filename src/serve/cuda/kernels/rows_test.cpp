// What is done row by row, on the machine that stands for a GPU: see kernels_test.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "serve/cuda/kernels/kernels.hpp"
#include "serve/cuda/kernels/numbers_test.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace tutti::serve::cuda {
namespace {

constexpr std::int64_t stride = 192;
constexpr std::int64_t columns = 180;

double real(float value) { return static_cast<double>(value); }

TEST(Rows, AreNormedWherefromEver) {
  Numbers numbers;
  const std::vector<std::int32_t> rows{3, 0, 2};
  auto stream = numbers.floats(4 * stride, 2);
  for (std::int64_t row = 0; row < 4; ++row)
    std::fill(stream.begin() + row * stride + columns, stream.begin() + (row + 1) * stride, 0.0F);
  const auto before = stream;
  auto scale = numbers.floats(stride, 1);
  auto bias = numbers.floats(stride, 1);
  const auto added = numbers.floats(stride, 1);
  std::fill(scale.begin() + columns, scale.end(), 0.0F);
  std::fill(bias.begin() + columns, bias.end(), 0.0F);
  std::vector<float> out(3 * stride, NAN);
  norm_rows({Type::f32,
             3,
             stride,
             {columns, 1e-5F, scale.data(), bias.data()},
             stream.data(),
             rows.data(),
             added.data(),
             out.data()},
            {});
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto from = static_cast<std::size_t>(rows[row]) * stride;
    double mean = 0;
    double variance = 0;
    for (std::size_t at = 0; at < columns; ++at) mean += real(before[from + at]) / columns;
    for (std::size_t at = 0; at < columns; ++at)
      variance += std::pow(real(before[from + at]) - mean, 2) / columns;
    const auto got = [&](std::size_t at) { return out[row * stride + at]; };
    EXPECT_LE(distance(stride, got,
                       [&](std::size_t at) {
                         return (real(before[from + at]) - mean) / std::sqrt(variance + 1e-5) *
                                    real(scale[at]) +
                                real(bias[at]);
                       }),
              1e-5);
    // What is added is added behind the norm's back, and only to the rows that were asked for.
    EXPECT_EQ(stream[from + 5], before[from + 5] + added[5]);
  }
  EXPECT_EQ(stream[1 * stride + 5], before[1 * stride + 5]);
}

TEST(Rows, AreSummedInParts) {
  Numbers numbers;
  const auto rows = numbers.floats(7 * stride, 3);
  std::vector<double> sums(stride, NAN);
  sum_rows({5, stride, rows.data(), sums.data(), false}, {});
  sum_rows({2, stride, rows.data() + 5 * stride, sums.data(), true}, {});
  for (std::size_t at = 0; at < stride; ++at) {
    double expected = 0;
    for (std::size_t row = 0; row < 7; ++row) expected += real(rows[row * stride + at]);
    EXPECT_EQ(sums[at], expected);
  }
}

TEST(Rows, AreGatedAndBent) {
  Numbers numbers;
  const auto wide = numbers.bf16(3 * 2 * stride, 2);
  const auto bias = numbers.floats(2 * stride, 1);
  std::vector<Bits> out(3 * stride, 0x7fff);
  activate({Type::bf16, Activation::gelu_tanh, true, 3, stride, bias.data(), wide.data(), out.data()}, {});
  const auto number = [&](std::size_t row, std::size_t at) {
    return real(widened(wide[row * 2 * stride + at])) + real(bias[at]);
  };
  EXPECT_LE(distance(
                out.size(), [&](std::size_t at) { return widened(out[at]); },
                [&](std::size_t at) {
                  const double x = number(at / stride, at % stride);
                  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) *
                         number(at / stride, stride + at % stride);
                }),
            0.005);
}

// Heads of 64 and 128 have a kernel of their own.
TEST(Rows, AreTurnedAndPlaced) {
  constexpr std::int32_t heads = 6;
  constexpr std::int32_t kv_heads = 2;
  constexpr std::int32_t all = heads + 2 * kv_heads;
  for (const std::int32_t size : {64, 128}) {
    const auto half = static_cast<std::size_t>(size / 2);
    Numbers numbers;
    const std::vector<std::int32_t> positions{17, -1, 5};
    const std::vector<std::int32_t> places{1, 0, 0};  // of tables
    const std::vector<std::int32_t> tables{2, 0, 3};
    const std::vector<std::int32_t> tokens(3);
    auto qkv = numbers.bf16(3 * all * size, 1);
    const auto given = qkv;
    const auto bias = numbers.floats(all * size, 1);
    const auto query_norm = numbers.floats(size, 1);
    const auto key_norm = numbers.floats(size, 1);
    const auto cosines = numbers.floats(3 * size / 2, 1);
    const auto sines = numbers.floats(3 * size / 2, 1);
    std::vector<Bits> cache(static_cast<std::size_t>(4 * kv_heads * 2 * block_positions * size), 0x7fff);
    const Turn turn{heads,           kv_heads, size,           all * size,  bias.data(), query_norm.data(),
                    key_norm.data(), 1e-5F,    cosines.data(), sines.data()};
    place({Type::bf16,
           {3, tokens.data(), positions.data(), places.data(), tables.data()},
           0,
           turn,
           qkv.data(),
           {cache.data(), kv_heads, size}},
          {});
    std::ptrdiff_t written = 0;
    for (const std::size_t token : {0U, 2U}) {
      for (std::size_t head = 0; head < all; ++head) {
        const bool is_value = head >= heads + kv_heads;
        const std::size_t from = (token * all + head) * static_cast<std::size_t>(size);
        const auto biased = [&](std::size_t at) {
          return real(widened(given[from + at])) + real(bias[head * static_cast<std::size_t>(size) + at]);
        };
        double squares = 0;
        for (std::size_t at = 0; at < 2 * half; ++at) squares += biased(at) * biased(at);
        const auto normed = [&](std::size_t at) {
          return biased(at) / std::sqrt(squares / size + 1e-5) *
                 real((head < heads ? query_norm : key_norm)[at]);
        };
        const auto wanted = [&](std::size_t at) {
          if (is_value) return biased(at);
          const std::size_t pair = token * half + at % half;
          return at < half ? normed(at) * real(cosines[pair]) - normed(at + half) * real(sines[pair])
                           : normed(at) * real(cosines[pair]) + normed(at - half) * real(sines[pair]);
        };
        const auto position = static_cast<std::size_t>(positions[token]);
        const auto block = static_cast<std::size_t>(
            tables[static_cast<std::size_t>(places[token]) + position / block_positions]);
        const Bits* got = &qkv[from];
        if (head >= heads) {
          const std::size_t theirs = (head - heads) % kv_heads;
          got = &cache[((block * kv_heads + theirs) * 2 + (is_value ? 1 : 0)) * block_positions *
                           static_cast<std::size_t>(size) +
                       position % block_positions * static_cast<std::size_t>(size)];
          written += size;
        }
        EXPECT_LE(distance(
                      2 * half, [&](std::size_t at) { return widened(got[at]); }, wanted),
                  0.01)
            << token << " " << head;
      }
    }
    // Nobody's token went nowhere.
    EXPECT_EQ(std::count(cache.begin(), cache.end(), 0x7fff),
              static_cast<std::ptrdiff_t>(cache.size()) - written);
    EXPECT_TRUE(
        std::equal(given.begin() + all * size, given.begin() + 2 * all * size, qkv.begin() + all * size));
  }
}

TEST(Rows, AreLookedUpAndKnowTheirPlace) {
  constexpr std::int32_t pairs = 12;
  Numbers numbers;
  const auto embedding = numbers.bf16(7 * stride, 1);
  const std::vector<std::int32_t> token{5, 0, 6};
  const std::vector<std::int32_t> position{100'000, -1, 3};
  std::vector<double> frequencies;
  for (int pair = 0; pair < pairs; ++pair) frequencies.push_back(std::pow(10000.0, -pair / 12.0));
  std::vector<float> stream(3 * stride, NAN);
  std::vector<float> cosines(3 * pairs, NAN);
  std::vector<float> sines(3 * pairs, NAN);
  embed({.type = Type::bf16,
         .tokens = {3, token.data(), position.data()},
         .columns = stride,
         .embedding = embedding.data(),
         .frequencies = frequencies.data(),
         .factor = 1.25,
         .pairs = pairs,
         .stream = stream.data(),
         .cosines = cosines.data(),
         .sines = sines.data()},
        {});
  EXPECT_EQ(stream[2 * stride + 9], widened(embedding[6 * stride + 9]));
  EXPECT_NEAR(cosines[3], 1.25 * std::cos(frequencies[3] * 100'000), 1e-6);
  EXPECT_NEAR(sines[2 * pairs + 1], 1.25 * std::sin(frequencies[1] * 3), 1e-6);
  EXPECT_EQ(cosines[pairs], 1.25F) << "a token of nobody stands nowhere";
}

// Rows go to two of five experts, each of which is one matrix here.
template <class T>
void check_experts(Type type, double allowed) {
  constexpr std::int32_t tokens = 21;
  constexpr std::int32_t experts = 5;
  constexpr std::int32_t chosen = 2;
  constexpr std::int32_t places = tokens * chosen;
  Numbers numbers;
  const auto rounded = [&](std::int64_t count, float size) {
    std::vector<T> all;
    for (std::int64_t at = 0; at < count; ++at) {
      const Bits bits = narrowed(size * numbers.next());
      if constexpr (sizeof(T) == sizeof(Bits)) {
        all.push_back(bits);
      } else {
        all.push_back(widened(bits));
      }
    }
    return all;
  };
  const auto widen = [](T value) {
    if constexpr (sizeof(T) == sizeof(Bits)) {
      return widened(value);
    } else {
      return value;
    }
  };
  const auto values = rounded(tokens * stride, 1);
  const auto router = numbers.floats(experts * stride, 0.1F);
  std::vector<std::vector<T>> matrices;
  std::vector<const void*> weights;
  for (int expert = 0; expert < experts; ++expert) matrices.push_back(rounded(stride * stride, 0.1F));
  for (const auto& matrix : matrices) weights.push_back(matrix.data());
  std::vector<std::int32_t> place_expert(places), place_row(places), row_place(places), first(experts + 1);
  std::vector<float> place_weight(places), scores(tokens * experts);
  const Routing routing{
      tokens,           experts,          chosen,      true, place_expert.data(), place_weight.data(),
      place_row.data(), row_place.data(), first.data()};
  route({type, routing, stride, values.data(), router.data(), scores.data()}, {});
  std::vector<T> out(places * stride);
  multiply_experts(
      {type, routing, stride, values.data(), true, weights.data(), nullptr, nullptr, stride, out.data()}, {});
  std::vector<float> stream(tokens * stride, 1.0F);
  mix({type, routing, stride, out.data(), stream.data()}, {});

  for (std::size_t token = 0; token < tokens; ++token) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t expert = 0; expert < experts; ++expert) {
      double score = 0;
      for (std::size_t at = 0; at < stride; ++at)
        score += real(widen(values[token * stride + at])) * real(router[expert * stride + at]);
      order.emplace_back(std::exp(score), expert);
    }
    std::sort(order.rbegin(), order.rend());
    std::vector<double> sums(stride, 1.0);
    for (std::size_t rank = 0; rank < chosen; ++rank) {
      EXPECT_EQ(place_expert[token * chosen + rank], static_cast<std::int32_t>(order[rank].second));
      const double weight = order[rank].first / (order[0].first + order[1].first);
      for (std::size_t feature = 0; feature < stride; ++feature) {
        double sum = 0;
        for (std::size_t at = 0; at < stride; ++at)
          sum += real(widen(values[token * stride + at])) *
                 real(widen(matrices[order[rank].second][feature * stride + at]));
        sums[feature] += weight * sum;
      }
    }
    EXPECT_LE(distance(
                  stride, [&](std::size_t at) { return stream[token * stride + at]; },
                  [&](std::size_t at) { return sums[at]; }),
              allowed);
  }
}

TEST(Experts, AreMixedByTheirWeights) {
  check_experts<float>(Type::f32, 1e-5);
  check_experts<Bits>(Type::bf16, 0.01);
}

}  // namespace
}  // namespace tutti::serve::cuda

#endif
