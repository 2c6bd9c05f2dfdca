// The kernels on a machine that stands for a GPU (emulator_test.hpp), beside the formulas: what they compute
// is proven wherever tutti is built. How fast they are, and that they do not race, a GPU has to show.
#include "serve/cuda/kernels/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "serve/batch/choose.hpp"
#include "serve/cuda/kernels/numbers_test.hpp"

namespace tutti::serve::cuda {

bool emulates_groups = false;  // read by emulator_test.hpp

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
TEST(Kernels, AreNotEmulatedUnderSanitizers) { GTEST_SKIP() << "fibers and sanitizers do not go together"; }
#else

// ---- attention

// Sequences whose last tokens are computed now, the others are in the cache.
struct Sequences {
  std::vector<std::int32_t> token, position, table_at, tables;
  std::vector<Tile> tiles;

  Sequences(const std::vector<std::int32_t>& lengths, std::int32_t chunk, std::int32_t tile) {
    std::int32_t block = 3;
    for (const std::int32_t length : lengths) {
      const auto first = static_cast<std::int32_t>(token.size());
      const std::int32_t count = std::min(chunk, length);
      const auto table = static_cast<std::int32_t>(tables.size());
      for (std::int32_t at = 0; at < length; at += block_positions) tables.push_back((block += 5) % 101);
      for (std::int32_t at = length - count; at < length; ++at) {
        token.push_back(0);
        position.push_back(at);
        table_at.push_back(table);
      }
      for (std::int32_t at = 0; at < count; at += tile)
        tiles.push_back({first + at, std::min(tile, count - at)});
    }
  }
  Tokens tokens() const {
    return {static_cast<std::int32_t>(token.size()), token.data(), position.data(), table_at.data(),
            tables.data()};
  }
};

struct Heads {
  std::int32_t kv;
  std::int32_t group;
  std::int32_t size;
  std::int32_t window;
};

class AttentionTest : public testing::TestWithParam<Heads> {
 protected:
  enum class Way { plain, one, one_warp, tiles, tiles_by_groups };

  // The largest distance of a head of a token from what the plain kernel says.
  double error(const std::vector<std::int32_t>& lengths, std::int32_t chunk, Way way) {
    const auto [kv, group, size, window] = GetParam();
    const std::int32_t heads = kv * group;
    const Sequences sequences(lengths, chunk, tile_tokens(size, heads, kv));
    const auto count = static_cast<std::size_t>(sequences.tokens().count);
    const std::int64_t stride = (heads + 2 * kv) * size;
    Numbers numbers;
    const auto qkv = numbers.bf16(static_cast<std::int64_t>(count) * stride, 1.5F);
    auto cache = numbers.bf16(101LL * kv * 2 * block_positions * size, 1);
    poison(sequences, kv, size, cache);
    std::vector<float> cosines;
    std::vector<float> sines;
    for (const std::int32_t position : sequences.position) {
      for (std::int32_t pair = 0; pair < size / 2; ++pair) {
        const double angle = position * std::pow(10000.0, -2.0 * pair / size);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    const Turn turn{.heads = heads,
                    .kv_heads = kv,
                    .head_size = size,
                    .stride = stride,
                    .epsilon = 1e-5F,
                    .cosines = cosines.data(),
                    .sines = sines.data()};
    const auto run = [&](Way how) {
      auto own_qkv = qkv;
      auto own_cache = cache;
      std::vector<Bits> out(count * static_cast<std::size_t>(heads * size), 0x7fff);
      const Cache blocks{own_cache.data(), kv, size};
      const Attention job{.type = Type::bf16,
                          .tokens = sequences.tokens(),
                          .turn = turn,
                          .qkv = own_qkv.data(),
                          .cache = blocks,
                          .window = window,
                          .out = out.data(),
                          .out_stride = heads * size};
      if (how != Way::one && how != Way::one_warp)
        place({Type::bf16, job.tokens, 0, turn, own_qkv.data(), blocks}, {});
      if (how == Way::plain) attend_plainly(job, 0, {});
      if (how == Way::tiles || how == Way::tiles_by_groups) {
        emulates_groups = how == Way::tiles_by_groups;
        attend_tiles(job, sequences.tiles.data(), static_cast<std::int32_t>(sequences.tiles.size()), {});
      }
      if (how == Way::one || how == Way::one_warp) {
        constexpr std::int32_t splits = 5;
        const auto rows = static_cast<std::int32_t>(count);
        std::vector<float> partial(static_cast<std::size_t>(partial_floats(rows, splits, heads, size)));
        std::vector<std::uint32_t> arrived(count * static_cast<std::size_t>(heads));
        attend_one(job, {rows, splits, how == Way::one_warp, partial.data(), arrived.data()}, {});
        EXPECT_EQ(std::count(arrived.begin(), arrived.end(), 0U),
                  static_cast<std::ptrdiff_t>(arrived.size()));
      }
      return out;
    };
    const auto expected = run(Way::plain);
    const auto got = run(way);
    double worst = 0;
    for (std::size_t head = 0; head < got.size(); head += static_cast<std::size_t>(size)) {
      worst = std::max(
          worst, distance(
                     static_cast<std::size_t>(size), [&](std::size_t at) { return widened(got[head + at]); },
                     [&](std::size_t at) { return widened(expected[head + at]); }));
    }
    return worst;
  }

  // What lies behind the end of a sequence in its last block is no number: nobody may use it.
  static void poison(const Sequences& sequences, std::int32_t kv, std::int32_t size,
                     std::vector<Bits>& cache) {
    for (std::size_t at = 0; at < sequences.position.size(); ++at) {
      const bool is_last =
          at + 1 == sequences.position.size() || sequences.table_at[at + 1] != sequences.table_at[at];
      if (!is_last) continue;
      const std::int32_t end = sequences.position[at] + 1;
      const auto place = static_cast<std::size_t>(sequences.table_at[at] + (end - 1) / block_positions);
      for (std::int32_t part = 0; part < 2 * kv; ++part) {
        const std::size_t first = static_cast<std::size_t>(sequences.tables[place] * 2 * kv + part) *
                                  static_cast<std::size_t>(block_positions * size);
        for (std::int32_t slot = (end - 1) % block_positions + 1; slot < block_positions; ++slot)
          std::fill_n(cache.begin() + static_cast<std::ptrdiff_t>(first) + slot * size, size, Bits{0x7fff});
      }
    }
  }
};

TEST_P(AttentionTest, OfOneTokenASequenceIsThePlainOne) {
  EXPECT_LE(error({1, 2, 16, 17, 63, 64, 65, 129, 300}, 1, Way::one), 0.01);
}

TEST_P(AttentionTest, OfOneTokenByOneWarpIsThePlainOne) {
  EXPECT_LE(error({1, 2, 16, 17, 65, 129, 700}, 1, Way::one_warp), 0.01);
}

TEST_P(AttentionTest, OfTilesIsThePlainOne) { EXPECT_LE(error({5, 40, 65, 130}, 37, Way::tiles), 0.01); }

TEST_P(AttentionTest, OfTilesByGroupsOfWarpsIsThePlainOne) {
  EXPECT_LE(error({5, 40, 65, 130, 200}, 37, Way::tiles_by_groups), 0.01);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest,
                         testing::Values(Heads{2, 1, 64, 0}, Heads{1, 8, 64, 0}, Heads{2, 7, 64, 50},
                                         Heads{1, 20, 64, 0}, Heads{2, 4, 128, 0}, Heads{1, 3, 128, 50}));

TEST(Attention, IsTheFormula) {
  constexpr std::int32_t size = 24;
  constexpr std::int32_t heads = 4;
  const Sequences sequences({1, 9, 40}, 40, 1);
  Numbers numbers;
  const auto count = static_cast<std::size_t>(sequences.tokens().count);
  auto qkv = numbers.floats(static_cast<std::int64_t>(count) * 3 * heads * size, 1);
  const auto given = qkv;
  std::vector<float> cache(101 * heads * 2 * block_positions * size);
  std::vector<float> out(count * heads * size);
  const Turn turn{.heads = heads, .kv_heads = heads, .head_size = size, .stride = 3 * heads * size};
  const Cache blocks{cache.data(), heads, size};
  place({Type::f32, sequences.tokens(), 0, turn, qkv.data(), blocks}, {});
  attend_plainly({Type::f32, sequences.tokens(), turn, qkv.data(), blocks, 7, out.data(), heads * size}, 0,
                 {});
  for (std::size_t token = 0; token < count; ++token) {
    const auto first = token - static_cast<std::size_t>(std::min(sequences.position[token], 6));
    const auto number = [&](std::size_t of, std::size_t part, std::size_t at) {
      return static_cast<double>(given[(of * 3 + part) * heads * size + at]);
    };
    for (std::size_t head = 0; head < heads; ++head) {
      std::vector<double> sums(size);
      double total = 0;
      for (std::size_t seen = first; seen <= token; ++seen) {
        double score = 0;
        for (std::size_t at = 0; at < size; ++at)
          score += number(token, 0, head * size + at) * number(seen, 1, head * size + at);
        const double weight = std::exp(score / std::sqrt(size));
        total += weight;
        for (std::size_t at = 0; at < size; ++at) sums[at] += weight * number(seen, 2, head * size + at);
      }
      EXPECT_LE(distance(
                    size, [&](std::size_t at) { return out[(token * heads + head) * size + at]; },
                    [&](std::size_t at) { return sums[at] / total; }),
                1e-5);
    }
  }
}

// ---- products of a few rows

double formula(const FewProduct& job, const std::vector<double>& values, std::size_t row,
               std::size_t feature) {
  const auto* const weights = static_cast<const Bits*>(job.weights);
  const auto columns = static_cast<std::size_t>(job.columns);
  double sum = job.bias == nullptr ? 0 : static_cast<double>(job.bias[feature]);
  for (std::size_t at = 0; at < columns; ++at)
    sum += values[row * columns + at] * static_cast<double>(widened(weights[feature * columns + at]));
  return sum;
}

TEST(Few, ProductsAreThoseOfTheFormula) {
  constexpr std::int64_t columns = 1216;  // no whole number of steps of all warps
  constexpr std::int64_t features = 112;
  Numbers numbers;
  const auto weights = numbers.bf16(features * columns, 0.03F);
  const auto bias = numbers.floats(features, 1);
  for (const std::int32_t rows : {1, 3, 4}) {
    const auto values = numbers.bf16(rows * columns, 1);
    std::vector<double> exact;
    for (const Bits bits : values) exact.push_back(static_cast<double>(widened(bits)));
    std::vector<float> floats(static_cast<std::size_t>(rows * features), NAN);
    auto stream = numbers.floats(rows * features, 1);
    const auto before = stream;
    FewProduct job{.rows = rows,
                   .values = values.data(),
                   .columns = columns,
                   .weights = weights.data(),
                   .features = features,
                   .bias = bias.data(),
                   .floats = floats.data(),
                   .out_stride = features};
    multiply_few(job, {});
    FewProduct adds = job;
    adds.floats = nullptr;
    adds.added_to = stream.data();
    multiply_few(adds, {});
    const auto wanted = [&](std::size_t at) { return formula(job, exact, at / features, at % features); };
    EXPECT_LE(distance(
                  floats.size(), [&](std::size_t at) { return floats[at]; }, wanted),
              1e-5)
        << rows;
    EXPECT_LE(distance(
                  stream.size(), [&](std::size_t at) { return stream[at]; },
                  [&](std::size_t at) { return static_cast<double>(before[at]) + wanted(at); }),
              1e-5)
        << rows;
  }
}

TEST(Few, NormsItsRowsAndGatesItsFeatures) {
  constexpr std::int64_t columns = 192;
  constexpr std::int64_t own_columns = 180;
  constexpr std::int64_t width = 64;
  Numbers numbers;
  const auto weights = numbers.bf16(2 * width * columns, 0.1F);
  const auto up_bias = numbers.floats(2 * width, 1);
  auto scale = numbers.floats(columns, 1);
  auto shift = numbers.floats(columns, 1);
  std::fill(scale.begin() + own_columns, scale.end(), 0.0F);
  std::fill(shift.begin() + own_columns, shift.end(), 0.0F);
  for (const std::int32_t rows : {1, 2, 4}) {
    auto stream = numbers.floats(rows * columns, 2);
    for (std::int32_t row = 0; row < rows; ++row)
      std::fill(stream.begin() + row * columns + own_columns, stream.begin() + (row + 1) * columns, 0.0F);
    for (const bool is_rms : {true, false}) {
      std::vector<double> normed;
      for (std::int32_t row = 0; row < rows; ++row) {
        const auto x = [&](std::int64_t at) {
          return static_cast<double>(stream[static_cast<std::size_t>(row * columns + at)]);
        };
        double mean = 0;
        double variance = 0;
        for (std::int64_t at = 0; at < own_columns && !is_rms; ++at) mean += x(at) / own_columns;
        for (std::int64_t at = 0; at < own_columns; ++at) variance += std::pow(x(at) - mean, 2) / own_columns;
        for (std::int64_t at = 0; at < columns; ++at) {
          const auto place = static_cast<std::size_t>(at);
          normed.push_back((x(at) - mean) / std::sqrt(variance + 1e-5) * static_cast<double>(scale[place]) +
                           (is_rms ? 0 : static_cast<double>(shift[place])));
        }
      }
      std::vector<Bits> out(static_cast<std::size_t>(rows * width), 0x7fff);
      const FewProduct job{.rows = rows,
                           .stream = stream.data(),
                           .norm = {own_columns, 1e-5F, scale.data(), is_rms ? nullptr : shift.data()},
                           .columns = columns,
                           .weights = weights.data(),
                           .features = 2 * width,
                           .bias = up_bias.data(),
                           .out = out.data(),
                           .out_stride = width,
                           .activation = Activation::silu,
                           .gated = true};
      multiply_few(job, {});
      EXPECT_LE(distance(
                    out.size(), [&](std::size_t at) { return widened(out[at]); },
                    [&](std::size_t at) {
                      const double gate = formula(job, normed, at / width, at % width);
                      return gate / (1 + std::exp(-gate)) *
                             formula(job, normed, at / width, width + at % width);
                    }),
                0.01)
          << rows << " " << is_rms;
    }
  }
}

// ---- choosing

TEST(Choose, IsTheReference) {
  constexpr std::int32_t vocabulary = 2003;
  constexpr std::int64_t stride = 2048;
  constexpr std::int32_t rows = 12;
  Numbers numbers;
  auto logits = numbers.floats(rows * stride, 3);
  for (std::size_t at = 0; at < logits.size(); at += 3)
    logits[at] = std::round(logits[at]);  // many are equal
  logits[5] = NAN;
  logits[7] = -INFINITY;
  // Rows that nothing can be chosen from.
  std::fill_n(logits.begin() + 3 * stride, stride, NAN);
  std::fill_n(logits.begin() + 7 * stride, stride, -INFINITY);
  logits[9 * stride + 1000] = INFINITY;
  const LogitRows all{logits.data(), stride, vocabulary};
  std::vector<std::int32_t> tokens(rows, -7);
  choose_largest(all, rows, tokens.data(), {});
  Chooser chooser;
  const auto row_of = [&](std::int32_t row) {
    return std::span<const float>(logits).subspan(static_cast<std::size_t>(row * stride), vocabulary);
  };
  for (std::int32_t row = 0; row < rows; ++row)
    EXPECT_EQ(tokens[static_cast<std::size_t>(row)], chooser.choose(row_of(row), {.row = row}).token);
  for (const std::size_t row : {3U, 7U, 9U}) EXPECT_EQ(tokens[row], no_number);
  std::vector<Sample> samples;
  std::vector<Token> expected;
  for (int at = 0; at < 60; ++at) {
    const auto unit = [&] { return std::fabs(std::fmod(numbers.next(), 1.0F)); };
    Choice choice{.row = at % rows, .temperature = 0.2F + 2 * unit(), .uniform = static_cast<double>(unit())};
    if (at % 2 == 0) choice.top_k = 1 + static_cast<std::int32_t>(100 * unit());
    if (at % 3 != 0) choice.top_p = unit();
    if (at % 5 == 0) choice.min_p = 0.5F * unit();
    expected.push_back(chooser.choose(row_of(choice.row), choice).token);
    samples.push_back(
        {choice.uniform, choice.row, choice.temperature, choice.top_k, choice.top_p, choice.min_p});
  }
  tokens.assign(samples.size(), -7);
  sample(all, samples.data(), static_cast<std::int32_t>(samples.size()), tokens.data(), {});
  EXPECT_EQ(tokens, expected);
}

#endif

}  // namespace
}  // namespace tutti::serve::cuda
