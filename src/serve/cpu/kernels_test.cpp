#include "serve/cpu/kernels.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "serve/cpu/instructions.hpp"
#include "serve/cpu/matrix.hpp"
#include "serve/cpu/reference_test.hpp"

namespace tutti::serve::cpu {
namespace {

std::vector<float> made_floats(std::size_t count, std::uint64_t seed, double size = 1) {
  std::vector<float> all(count);
  for (std::size_t at = 0; at < count; ++at)
    all[at] = static_cast<float>(size * made_number(seed * 100'000 + at));
  return all;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double bound,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  for (const float value : b) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (std::size_t at = 0; at < a.size(); ++at)
    ASSERT_NEAR(a[at], b[at], bound * largest) << what << " at " << at;
}

struct Packed {
  Matrix matrix;
  std::vector<std::byte> memory;
};
Packed packed(WeightType type, std::int64_t rows, std::int64_t columns, const std::vector<float>& values) {
  Packed made{{.type = type, .panels = whole_panels(rows) / panel_rows, .columns = columns}, {}};
  made.memory.resize(made.matrix.bytes());
  made.matrix.data = made.memory.data();
  for (std::int64_t row = 0; row < rows; row += panel_rows) {
    const std::int64_t count = std::min(panel_rows, rows - row);
    pack_panel(made.matrix, row / panel_rows,
               std::span(values).subspan(static_cast<std::size_t>(row * columns),
                                         static_cast<std::size_t>(count * columns)));
  }
  return made;
}

// Inputs of a product, quantised where that is wanted.
struct Inputs {
  std::int64_t tokens;
  std::int64_t columns;  // whole blocks
  std::vector<float> values;
  std::vector<std::int8_t> quants;
  std::vector<float> scales;
  std::vector<std::int32_t> offsets;

  Inputs(const Kernels& kernels, WeightType type, std::int64_t tokens_, std::int64_t used)
      : tokens(tokens_),
        columns(whole_blocks(used)),
        values(static_cast<std::size_t>(tokens * columns)),
        quants(values.size()),
        scales(values.size() / block_columns),
        offsets(scales.size()) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t at = 0; at < used; ++at) {
        values[static_cast<std::size_t>(token * columns + at)] =
            static_cast<float>(made_number(static_cast<std::uint64_t>(token * 5000 + at)));
      }
      const auto row = static_cast<std::size_t>(token * columns);
      kernels.quantize({.values = values.data() + row,
                        .columns = columns,
                        .zero = zero_of(type),
                        .quants = quants.data() + row,
                        .scales = scales.data() + row / block_columns,
                        .offsets = offsets.data() + row / block_columns});
    }
  }
};

std::vector<float> product(const Kernels& kernels, const Matrix& matrix, const Inputs& inputs,
                           std::int64_t first_token, std::int64_t tokens, const float* bias, bool add) {
  std::vector<float> out(static_cast<std::size_t>(tokens * matrix.rows()), 0.5F);
  const std::int64_t at = first_token * inputs.columns;
  kernels.product[static_cast<std::size_t>(matrix.type)](
      {.panels = matrix.data,
       .panel_bytes = matrix.panel_bytes(),
       .panel_count = matrix.panels,
       .columns = is_quantized(matrix.type) ? inputs.columns : matrix.columns,
       .values = inputs.values.data() + at,
       .values_stride = inputs.columns,
       .quants = inputs.quants.data() + at,
       .scales = inputs.scales.data() + at / block_columns,
       .offsets = inputs.offsets.data() + at / block_columns,
       .tokens = tokens,
       .out = out.data(),
       .out_stride = matrix.rows(),
       .bias = bias,
       .add = add});
  return out;
}

constexpr std::array all_types{WeightType::f32, WeightType::bf16, WeightType::int8, WeightType::int4};

TEST(Kernels, MultiplyAsTheFormulaDoes) {
  constexpr std::int64_t rows = 83;
  constexpr std::int64_t columns = 100;
  const auto values = made_floats(rows * columns, 1);
  const auto bias = made_floats(static_cast<std::size_t>(whole_panels(rows)), 2);
  for (const Kernels* kernels : all_kernels()) {
    for (const WeightType type : all_types) {
      const Packed weights = packed(type, rows, columns, values);
      const Inputs inputs(*kernels, type, 3, columns);
      const auto out = product(*kernels, weights.matrix, inputs, 0, 3, bias.data(), true);
      std::vector<float> expected;
      for (std::int64_t token = 0; token < 3; ++token) {
        for (std::int64_t row = 0; row < weights.matrix.rows(); ++row) {
          std::vector<float> kept(columns, 0.0F);
          if (row < rows) unpack_row(weights.matrix, row, kept.data());
          double sum = 0.5 + static_cast<double>(bias[static_cast<std::size_t>(row)]);
          for (std::int64_t at = 0; at < columns; ++at) {
            const auto place = static_cast<std::size_t>(token * inputs.columns + at);
            const double value =
                is_quantized(type)
                    ? inputs.quants[place] * static_cast<double>(inputs.scales[place / block_columns])
                    : static_cast<double>(inputs.values[place]);
            sum += static_cast<double>(kept[static_cast<std::size_t>(at)]) * value;
          }
          expected.push_back(static_cast<float>(sum));
        }
      }
      expect_near(out, expected, 1e-6, std::string(kernels->name) + " " + std::string(name_of(type)));
    }
  }
}

TEST(Kernels, GiveATokenTheSameBitsInEveryCompany) {
  constexpr std::int64_t rows = 16 * 7;
  constexpr std::int64_t columns = 96;
  constexpr std::int64_t tokens = 150;  // more than one pass
  const auto values = made_floats(rows * columns, 3);
  for (const Kernels* kernels : all_kernels()) {
    for (const WeightType type : all_types) {
      const Packed weights = packed(type, rows, columns, values);
      const Inputs inputs(*kernels, type, tokens, columns);
      const auto all = product(*kernels, weights.matrix, inputs, 0, tokens, nullptr, false);
      for (const std::int64_t count : {1, 2, 3, 5, 7, 11, 16, 23}) {
        for (const std::int64_t first : {0, 9, 120}) {
          const auto some = product(*kernels, weights.matrix, inputs, first, count, nullptr, false);
          ASSERT_EQ(std::memcmp(some.data(), all.data() + first * rows, some.size() * sizeof(float)), 0)
              << kernels->name << " " << name_of(type) << ": " << count << " tokens";
        }
      }
    }
  }
}

TEST(Kernels, AgreeWithTheScalarOnes) {
  const Kernels& plain = scalar_kernels();
  for (const Kernels* kernels : all_kernels()) {
    const std::string name = kernels->name;
    for (const WeightType type : all_types) {
      const Packed weights = packed(type, 70, 160, made_floats(70 * 160, 4));
      const Inputs inputs(plain, type, 21, 160);
      expect_near(product(*kernels, weights.matrix, inputs, 0, 21, nullptr, false),
                  product(plain, weights.matrix, inputs, 0, 21, nullptr, false), 1e-6, name);
      const Inputs own(*kernels, type, 21, 160);
      EXPECT_EQ(own.quants, inputs.quants) << name;
      EXPECT_EQ(own.offsets, inputs.offsets) << name;
    }
    for (const std::int64_t count : {1, 15, 16, 33, 100}) {
      const auto size = static_cast<std::size_t>(count);
      const auto values = made_floats(size, 5, 6);
      const auto others = made_floats(size, 6);
      for (const Bend how : {Bend::gelu, Bend::gelu_tanh, Bend::silu}) {
        for (const float* other : {others.data(), static_cast<const float*>(nullptr)}) {
          std::vector<float> a(size);
          std::vector<float> b(size);
          kernels->bend(how, values.data(), other, a.data(), count);
          plain.bend(how, values.data(), other, b.data(), count);
          expect_near(a, b, 1e-6, name);
        }
      }
      for (const auto member : {&Kernels::normalize_rms, &Kernels::normalize_layer}) {
        std::vector<float> a(size);
        std::vector<float> b(size);
        const auto scale = made_floats(size, 7);
        Normalize job{values.data(), count, scale.data(), others.data(), 1e-5F, a.data()};
        (kernels->*member)(job);
        job.out = b.data();
        (plain.*member)(job);
        expect_near(a, b, 1e-5, name);
      }
      auto a = made_floats(2 * size, 8);
      auto b = a;
      kernels->rotate(a.data(), values.data(), others.data(), count);
      plain.rotate(b.data(), values.data(), others.data(), count);
      expect_near(a, b, 1e-6, name);
      kernels->add_scaled(values.data(), 0.3F, a.data(), count);
      plain.add_scaled(values.data(), 0.3F, b.data(), count);
      expect_near(a, b, 1e-6, name);
    }
  }
}

TEST(Kernels, BendAsTheFormulasDo) {
  const std::vector<float> values{-100, -20, -3, -1,  -1e-3F, 0,      1e-3F, 0.5F,
                                  1,    3,   20, 100, 1e20F,  -1e20F, 88,    -88};
  for (const Kernels* kernels : all_kernels()) {
    std::vector<float> out(values.size());
    kernels->bend(Bend::silu, values.data(), nullptr, out.data(), 16);
    for (std::size_t at = 0; at < values.size(); ++at) {
      const auto x = static_cast<double>(values[at]);
      EXPECT_NEAR(out[at], x / (1 + std::exp(-x)), 1e-6 * std::max(1.0, std::abs(x) * (x > 0 ? 1 : 1e-20)))
          << kernels->name << " " << x;
    }
  }
}

TEST(Kernels, QuantizeWhatIsNothingAsNothing) {
  for (const Kernels* kernels : all_kernels()) {
    const std::vector<float> values(block_columns, 0.0F);
    std::vector<std::int8_t> quants(block_columns, 1);
    float scale = 1;
    std::int32_t offset = 1;
    kernels->quantize({values.data(), block_columns, int8_zero, quants.data(), &scale, &offset});
    EXPECT_EQ(quants, std::vector<std::int8_t>(block_columns, 0));
    EXPECT_EQ(scale, 0.0F);
    EXPECT_EQ(offset, 0);
  }
}

}  // namespace
}  // namespace tutti::serve::cpu
