#include "serve/cpu/matrix.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "serve/cpu/reference_test.hpp"

namespace tutti::serve::cpu {
namespace {

// The largest error of a number, in relation to the largest number of its block.
double packing_error(WeightType type) {
  constexpr std::int64_t rows = 11;
  constexpr std::int64_t columns = 75;
  std::vector<float> values(rows * columns);
  for (std::size_t at = 0; at < values.size(); ++at) values[at] = static_cast<float>(made_number(at));
  Matrix matrix{.type = type, .panels = 2, .columns = columns};
  std::vector<std::byte> memory(matrix.bytes());
  matrix.data = memory.data();
  pack_panel(matrix, 1, values);
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<float> kept(columns);
    unpack_row(matrix, panel_rows + row, kept.data());
    for (std::size_t at = 0; at < kept.size(); ++at) {
      worst = std::max(worst, static_cast<double>(
                                  std::abs(kept[at] - values[static_cast<std::size_t>(row) * columns + at])));
    }
  }
  return worst;
}

TEST(Matrix, KeepsNumbersAsNearAsItsTypeCan) {
  EXPECT_EQ(packing_error(WeightType::f32), 0);
  EXPECT_LE(packing_error(WeightType::bf16), 1.0 / 256);
  EXPECT_LE(packing_error(WeightType::int8), 0.51 / 127);
  EXPECT_LE(packing_error(WeightType::int4), 1.01 / 8);
  EXPECT_GT(packing_error(WeightType::int4), packing_error(WeightType::int8));
}

TEST(Matrix, TakesTheBytesThatItSays) {
  const Matrix matrix{.type = WeightType::int8, .panels = 3, .columns = 64};
  EXPECT_EQ(matrix.bytes(), 3U * 2 * (16 * 32 + 16 * 2));
  const Matrix small{.type = WeightType::int4, .panels = 1, .columns = 64};
  EXPECT_EQ(small.bytes(), 2U * (16 * 16 + 16 * 2));
}

TEST(WeightType, IsReadAndWritten) {
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int8, WeightType::int4}) {
    const auto parsed = parse_weight_type(name_of(type));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, type);
  }
  EXPECT_FALSE(parse_weight_type("int2"));
}

}  // namespace
}  // namespace tutti::serve::cpu
