// What adapters add, on the machine that stands for a GPU: see kernels_test.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "serve/cuda/kernels/kernels.hpp"
#include "serve/cuda/kernels/numbers_test.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace tutti::serve::cuda {
namespace {

constexpr std::int32_t lora_rank = 20;
constexpr std::int64_t lora_columns = 192;
constexpr std::int64_t lora_features[] = {300, 61, 61};
constexpr std::int64_t lora_stride = 448;

// Three adapters: all parts, some of them, and nothing at all here.
struct MadeChanges {
  std::int32_t rank[4] = {0, 5, lora_rank, 1};
  std::vector<float> shrink[4][lora_parts_max];
  std::vector<float> expand[4][lora_parts_max];

  explicit MadeChanges(Numbers& numbers) {
    for (const int adapter : {1, 2}) {
      for (int part = 0; part < lora_parts_max; ++part) {
        if (adapter == 2 && part == 1) continue;
        // Numbers that bf16 holds, so that both types have the same.
        for (const Bits bits : numbers.bf16(rank[adapter] * lora_columns, 0.1F))
          shrink[adapter][part].push_back(widened(bits));
        for (const Bits bits : numbers.bf16(rank[adapter] * lora_features[part], 0.3F))
          expand[adapter][part].push_back(widened(bits));
      }
    }
  }
};

template <class Element>
std::vector<Element> elements_of(const std::vector<float>& floats) {
  if constexpr (std::is_same_v<Element, float>) {
    return floats;
  } else {
    std::vector<Element> narrow;
    for (const float number : floats) narrow.push_back(narrowed(number));
    return narrow;
  }
}
float float_of(float number) { return number; }
float float_of(Bits number) { return widened(number); }

template <class Element>
class LoraTest : public testing::Test {
 protected:
  static constexpr Type type = std::is_same_v<Element, float> ? Type::f32 : Type::bf16;

  LoraTest() : made(numbers) {
    changes.resize(4);
    for (int adapter = 1; adapter < 4; ++adapter) {
      changes[static_cast<std::size_t>(adapter)].rank = made.rank[adapter];
      for (int part = 0; part < lora_parts_max; ++part) {
        if (made.shrink[adapter][part].empty()) continue;
        shrinks[adapter][part] = elements_of<Element>(made.shrink[adapter][part]);
        expands[adapter][part] = elements_of<Element>(made.expand[adapter][part]);
        changes[static_cast<std::size_t>(adapter)].shrink[part] = shrinks[adapter][part].data();
        changes[static_cast<std::size_t>(adapter)].expand[part] = expands[adapter][part].data();
      }
    }
  }

  LoraProduct job(const std::vector<std::int32_t>& adapters, const Element* values) {
    // What nobody has shrunk is no number.
    shrunk.assign(adapters.size() * lora_parts_max * lora_rank, NAN);
    LoraProduct product{.type = type,
                        .rows = static_cast<std::int32_t>(adapters.size()),
                        .adapter = adapters.data(),
                        .changes = changes.data(),
                        .rank_max = lora_rank,
                        .columns = lora_columns,
                        .values = values,
                        .parts = lora_parts_max,
                        .shrunk = shrunk.data(),
                        .out_stride = lora_stride};
    std::int64_t first = 2;
    for (int part = 0; part < lora_parts_max; ++part) {
      product.first_feature[part] = first;
      product.features[part] = lora_features[part];
      first += lora_features[part] + 3;
    }
    return product;
  }

  // What a row is expected to have become, from the formulas.
  std::vector<double> expected(std::int32_t adapter, const Element* values, const LoraProduct& product) {
    std::vector<double> added(lora_stride);
    for (int part = 0; part < lora_parts_max; ++part) {
      if (made.shrink[adapter][part].empty()) continue;
      for (std::int32_t at = 0; at < made.rank[adapter]; ++at) {
        double sum = 0;
        for (std::int64_t column = 0; column < lora_columns; ++column)
          sum += static_cast<double>(
                     made.shrink[adapter][part][static_cast<std::size_t>(at * lora_columns + column)]) *
                 static_cast<double>(float_of(values[column]));
        for (std::int64_t feature = 0; feature < lora_features[part]; ++feature)
          added[static_cast<std::size_t>(product.first_feature[part] + feature)] +=
              sum *
              static_cast<double>(
                  made.expand[adapter][part][static_cast<std::size_t>(at * lora_features[part] + feature)]);
      }
    }
    return added;
  }

  Numbers numbers;
  MadeChanges made;
  std::vector<LoraChange> changes;
  std::vector<Element> shrinks[4][lora_parts_max];
  std::vector<Element> expands[4][lora_parts_max];
  std::vector<float> shrunk;
};

using Elements = testing::Types<float, Bits>;
TYPED_TEST_SUITE(LoraTest, Elements);

TYPED_TEST(LoraTest, AddsToEachRowWhatItsAdapterSays) {
  const std::vector<std::int32_t> adapters{0, 1, 1, 2, 0, 3, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 2};
  const auto rows = adapters.size();
  const auto values =
      elements_of<TypeParam>(this->numbers.floats(static_cast<std::int64_t>(rows) * lora_columns, 1));
  const auto before =
      elements_of<TypeParam>(this->numbers.floats(static_cast<std::int64_t>(rows) * lora_stride, 1));
  const auto stream = this->numbers.floats(static_cast<std::int64_t>(rows) * lora_stride, 1);
  auto out = before;
  auto added_to = stream;
  LoraProduct product = this->job(adapters, values.data());
  product.out = out.data();
  add_lora(product, {});
  LoraProduct adding = this->job(adapters, values.data());
  adding.added_to = added_to.data();
  add_lora(adding, {});
  const double allowed = std::is_same_v<TypeParam, float> ? 1e-5 : 0.01;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto added = this->expected(adapters[row], values.data() + row * lora_columns, product);
    const std::size_t begin = row * lora_stride;
    for (std::size_t at = 0; at < lora_stride; ++at) {
      const double sum = static_cast<double>(float_of(before[begin + at])) + added[at];
      ASSERT_NEAR(float_of(out[begin + at]), sum, allowed * (1 + std::abs(sum))) << row << " " << at;
      ASSERT_NEAR(added_to[begin + at], static_cast<double>(stream[begin + at]) + added[at], 1e-4) << row;
      if (added[at] == 0) {
        ASSERT_EQ(out[begin + at], before[begin + at]) << "nobody may touch it";
      }
    }
  }

  // Alone, each row is what it was in company.
  for (const std::size_t row : {std::size_t{2}, std::size_t{9}, std::size_t{15}, rows - 1}) {
    std::vector<TypeParam> own(before.begin() + static_cast<std::ptrdiff_t>(row * lora_stride),
                               before.begin() + static_cast<std::ptrdiff_t>((row + 1) * lora_stride));
    const std::vector<std::int32_t> one{adapters[row]};
    LoraProduct alone = this->job(one, values.data() + row * lora_columns);
    alone.out = own.data();
    add_lora(alone, {});
    EXPECT_TRUE(
        std::equal(own.begin(), own.end(), out.begin() + static_cast<std::ptrdiff_t>(row * lora_stride)))
        << row;
  }
}

}  // namespace
}  // namespace tutti::serve::cuda

#endif
