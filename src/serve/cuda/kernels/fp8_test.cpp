// Weights of fp8: their rounding, and the kernels that read them, on the machine that stands for a GPU: see
// kernels_test.cpp.
#include "serve/cuda/kernels/fp8.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "serve/cuda/kernels/kernels.hpp"
#include "serve/cuda/kernels/numbers_test.hpp"

namespace tutti::serve::cuda {
namespace {

// As the format is written down.
double number_of_code(unsigned code) {
  const int exponent = static_cast<int>(code >> 3U & 15U);
  const int mantissa = static_cast<int>(code & 7U);
  if (exponent == 15 && mantissa == 7) return NAN;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

TEST(Fp8, EveryCodeIsItsNumberAndComesBack) {
  for (unsigned code = 0; code < 256; ++code) {
    const float number = fp8_to_float(static_cast<std::uint8_t>(code));
    if ((code & 0x7fU) == 0x7fU) {
      EXPECT_TRUE(std::isnan(number));
    } else {
      EXPECT_EQ(static_cast<double>(number), number_of_code(code)) << code;
      EXPECT_EQ(std::signbit(number), (code & 0x80U) != 0) << code;
    }
    EXPECT_EQ(fp8_from_float(number), code);
  }
}

TEST(Fp8, RoundsToTheNearestAndInTheMiddleToTheEvenOne) {
  for (unsigned code = 0; code < 0x7e; ++code) {
    const auto low = static_cast<float>(number_of_code(code));
    const auto high = static_cast<float>(number_of_code(code + 1));
    const float middle = (low + high) / 2;  // exact
    for (const unsigned sign : {0U, 0x80U}) {
      const float by = sign == 0 ? 1.0F : -1.0F;
      EXPECT_EQ(fp8_from_float(by * middle), sign | (code % 2 == 0 ? code : code + 1)) << code;
      EXPECT_EQ(fp8_from_float(by * std::nextafter(middle, low)), sign | code) << code;
      EXPECT_EQ(fp8_from_float(by * std::nextafter(middle, high)), sign | (code + 1)) << code;
    }
  }
}

TEST(Fp8, NothingFiniteBecomesNoNumber) {
  for (const float number : {448.0F, 464.0F, 480.0F, 1e9F, std::numeric_limits<float>::max(), INFINITY}) {
    EXPECT_EQ(fp8_from_float(number), 0x7e) << number;
    EXPECT_EQ(fp8_from_float(-number), 0xfe) << number;
  }
  EXPECT_EQ(fp8_from_float(NAN) & 0x7f, 0x7f);
  EXPECT_EQ(fp8_from_float(std::numeric_limits<float>::denorm_min()), 0);
  for (std::uint32_t bits = 0; bits < 0x7f800000U; bits += 4099)
    ASSERT_NE(fp8_from_float(std::bit_cast<float>(bits)), 0x7f) << bits;
}

TEST(Fp8, ARowHasTheScaleOfItsLargestNumber) {
  std::vector<float> row{0.5F, -3.5F, 0, 0.01F};
  std::vector<std::uint8_t> codes(row.size());
  const float scale = fp8_from_row(row, codes);
  EXPECT_EQ(scale, 3.5F / 448);
  EXPECT_EQ(codes[1], 0xfe);
  for (std::size_t at = 0; at < row.size(); ++at)
    EXPECT_NEAR(fp8_to_float(codes[at]) * scale, row[at], std::abs(row[at]) / 16 + scale * 0x1p-10F) << at;
  EXPECT_EQ(fp8_from_row(std::vector<float>(3), codes), 0);
  EXPECT_EQ(codes[0] | codes[1] | codes[2], 0);
  // What is too small for a scale, or too large for any.
  for (const float size : {1e-44F, 1e-38F, 3e38F}) {
    row = {size, -size, 0, size / 3};
    const float own = fp8_from_row(row, codes);
    EXPECT_TRUE(std::isfinite(own) && own > 0) << size;
    for (const std::uint8_t code : codes) EXPECT_NE(code & 0x7f, 0x7f) << size;
  }
  row = {1, INFINITY, -2, NAN};
  EXPECT_EQ(fp8_from_row(row, codes), 2.0F / 448);
  EXPECT_EQ(codes[1], 0x7e);
  EXPECT_EQ(codes[3] & 0x7f, 0x7f) << "what is no number stays none";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

struct MadeCodes {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::int64_t columns;

  MadeCodes(Numbers& numbers, std::int64_t rows, std::int64_t wide, float size)
      : codes(static_cast<std::size_t>(rows * wide)), columns(wide) {
    const auto each = static_cast<std::size_t>(wide);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
      scales.push_back(fp8_from_row(numbers.floats(wide, size * (1 + static_cast<float>(row % 5))),
                                    std::span(codes).subspan(row * each, each)));
  }
  double number(std::size_t row, std::size_t column) const {
    return number_of_code(codes[row * static_cast<std::size_t>(columns) + column]) *
           static_cast<double>(scales[row]);
  }
  double times(std::size_t row, const double* values) const {
    double sum = 0;
    for (std::size_t at = 0; at < static_cast<std::size_t>(columns); ++at)
      sum += number(row, at) * values[at];
    return sum;
  }
};

std::vector<double> exactly(const std::vector<Bits>& values) {
  std::vector<double> exact;
  for (const Bits bits : values) exact.push_back(static_cast<double>(widened(bits)));
  return exact;
}

// The distance from the formula, of numbers that are floats and of those that are added.
void check_few(std::int32_t rows, std::int64_t columns, std::int64_t features) {
  Numbers numbers;
  const MadeCodes matrix(numbers, features, columns, 0.03F);
  const auto bias = numbers.floats(features, 1);
  const auto values = numbers.bf16(rows * columns, 1);
  const auto exact = exactly(values);
  std::vector<float> floats(static_cast<std::size_t>(rows * features), NAN);
  auto stream = numbers.floats(rows * features, 1);
  const auto before = stream;
  FewProduct job{.rows = rows,
                 .values = values.data(),
                 .columns = columns,
                 .weights = matrix.codes.data(),
                 .scales = matrix.scales.data(),
                 .features = features,
                 .bias = bias.data(),
                 .floats = floats.data(),
                 .out_stride = features};
  multiply_few(job, {});
  job.floats = nullptr;
  job.added_to = stream.data();
  multiply_few(job, {});
  std::vector<double> wanted;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    for (std::size_t feature = 0; feature < static_cast<std::size_t>(features); ++feature)
      wanted.push_back(matrix.times(feature, exact.data() + row * static_cast<std::size_t>(columns)) +
                       static_cast<double>(bias[feature]));
  }
  EXPECT_LE(distance(
                floats.size(), [&](std::size_t at) { return floats[at]; },
                [&](std::size_t at) { return wanted[at]; }),
            1e-5)
      << rows << " of " << columns;
  EXPECT_LE(distance(
                stream.size(), [&](std::size_t at) { return stream[at]; },
                [&](std::size_t at) { return static_cast<double>(before[at]) + wanted[at]; }),
            1e-5)
      << rows << " of " << columns;
}

TEST(FewFp8, ProductsAreThoseOfTheFormula) {
  for (const std::int32_t rows : {1, 3, 8, 11, few_fp8_rows_max}) check_few(rows, 1216, 112);
  // No eight of these fit into the memory of a multiprocessor.
  EXPECT_TRUE(fits_few(8, 14'400, true));
  check_few(8, 14'400, 16);
  EXPECT_FALSE(fits_few(few_fp8_rows_max + 1, 64, true));
  EXPECT_FALSE(fits_few(1, 1 << 20, true));
}

TEST(FewFp8, NormsItsRowsAndGatesItsFeatures) {
  constexpr std::int64_t columns = 192;
  constexpr std::int64_t width = 64;
  Numbers numbers;
  const MadeCodes matrix(numbers, 2 * width, columns, 0.05F);
  const auto bias = numbers.floats(2 * width, 1);
  const auto scale = numbers.floats(columns, 1);
  for (const std::int32_t rows : {1, 6, 13}) {
    const auto stream = numbers.floats(rows * columns, 2);
    std::vector<double> normed;
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const from = stream.data() + row * columns;
      double squares = 0;
      for (std::int64_t at = 0; at < columns; ++at) squares += std::pow(static_cast<double>(from[at]), 2);
      for (std::int64_t at = 0; at < columns; ++at)
        normed.push_back(static_cast<double>(from[at]) / std::sqrt(squares / columns + 1e-5) *
                         static_cast<double>(scale[static_cast<std::size_t>(at)]));
    }
    std::vector<Bits> out(static_cast<std::size_t>(rows * width), 0x7fff);
    multiply_few({.rows = rows,
                  .stream = stream.data(),
                  .norm = {columns, 1e-5F, scale.data(), nullptr},
                  .columns = columns,
                  .weights = matrix.codes.data(),
                  .scales = matrix.scales.data(),
                  .features = 2 * width,
                  .bias = bias.data(),
                  .out = out.data(),
                  .out_stride = width,
                  .activation = Activation::silu,
                  .gated = true},
                 {});
    EXPECT_LE(distance(
                  out.size(), [&](std::size_t at) { return widened(out[at]); },
                  [&](std::size_t at) {
                    const std::size_t feature = at % width;
                    const double* const row = normed.data() + at / width * columns;
                    const double gate = matrix.times(feature, row) + static_cast<double>(bias[feature]);
                    return gate / (1 + std::exp(-gate)) *
                           (matrix.times(width + feature, row) + static_cast<double>(bias[width + feature]));
                  }),
              0.01)
        << rows;
  }
}

TEST(WidenFp8, IsEveryCodeTimesItsScale) {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t at = 0; at < codes.size(); ++at) codes[at] = static_cast<std::uint8_t>(at);
  for (const float scale : {1.0F, 0.0123F}) {
    const std::vector<float> scales(4, scale);
    std::vector<Bits> out(256, 0x1234);
    widen({.codes = codes.data(), .scales = scales.data(), .rows = 4, .columns = 64, .out = out.data()}, {});
    for (unsigned code = 0; code < 256; ++code) {
      if ((code & 0x7fU) == 0x7fU) {
        EXPECT_TRUE(std::isnan(widened(out[code])));
      } else {
        EXPECT_EQ(out[code], narrowed(static_cast<float>(number_of_code(code)) * scale)) << code;
      }
    }
  }
}

TEST(ExpertsFp8, MultiplyTheRowsThatCameToThem) {
  constexpr std::int64_t columns = 320;
  constexpr std::int64_t features = 32;
  constexpr std::size_t rows = 14;
  Numbers numbers;
  std::vector<std::int32_t> first{0, 0, 11, 14};  // nobody came to the first
  std::vector<MadeCodes> matrices;
  for (int expert = 0; expert < 3; ++expert) matrices.emplace_back(numbers, features, columns, 0.05F);
  std::vector<const void*> weights;
  std::vector<const float*> scales;
  for (const MadeCodes& matrix : matrices) {
    weights.push_back(matrix.codes.data());
    scales.push_back(matrix.scales.data());
  }
  const auto values = numbers.bf16(rows * columns, 1);
  const auto exact = exactly(values);
  std::vector<Bits> out(rows * features, 0x7fff);
  multiply_experts({.type = Type::bf16,
                    .routing = {.tokens = rows, .experts = 3, .chosen = 1, .expert_first = first.data()},
                    .columns = columns,
                    .values = values.data(),
                    .weights = weights.data(),
                    .scales = scales.data(),
                    .features = features,
                    .out = out.data()},
                   {});
  EXPECT_LE(distance(
                out.size(), [&](std::size_t at) { return widened(out[at]); },
                [&](std::size_t at) {
                  const std::size_t row = at / features;
                  return matrices[row < 11 ? 1 : 2].times(at % features, exact.data() + row * columns);
                }),
            0.01);
}

#endif

}  // namespace
}  // namespace tutti::serve::cuda
