#include "serve/split/split.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "learn/model/names.hpp"

namespace tutti::serve {
namespace {

model::Shape llama() {
  return {.model_type = "llama",
          .vocabulary = 100,
          .layers = 1,
          .hidden = 8,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 2,
          .intermediate = 12,
          .context = 16,
          .gated = true,
          .output_bias = true,
          .tied = false};
}

// A number says where it comes from: its row, and its column in hundredths.
Result<> read_places(const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                     std::span<float> floats) {
  const bool is_narrow = tensor.ends_with(".bias");
  const std::size_t columns = is_narrow ? 1 : floats.size() / static_cast<std::size_t>(rows);
  for (std::size_t at = 0; at < floats.size(); ++at)
    floats[at] = static_cast<float>(first_row) + static_cast<float>(at / columns) +
                 static_cast<float>(at % columns) / 100;
  return {};
}

std::vector<float> read(const model::Shape& shape, Part part, const std::string& tensor, std::int64_t row,
                        std::int64_t rows, std::int64_t columns) {
  std::vector<float> floats(static_cast<std::size_t>(rows * columns), -1.0F);
  EXPECT_TRUE(read_part(shape, part, read_places)(tensor, row, rows, floats));
  return floats;
}

TEST(Split, APartIsASmallerModel) {
  const model::Shape whole = llama();
  const model::Shape half = shape_of_part(whole, {1, 2});
  EXPECT_EQ(half.heads, 2);
  EXPECT_EQ(half.kv_heads, 1);
  EXPECT_EQ(half.intermediate, 6);
  EXPECT_EQ(half.hidden, whole.hidden);
  EXPECT_EQ(half.vocabulary, whole.vocabulary);
  EXPECT_EQ(shape_of_part(whole, {3, 4}).kv_heads, 1) << "two ranks have the same one";
  EXPECT_EQ(shape_of_part(whole, {0, 1}), whole);
}

TEST(Split, RowsAndColumnsAreCutOutOfTheWholeTensors) {
  const model::Shape whole = llama();
  const model::LayerNames names = model::names_of_layer(whole, 0);
  const auto weight = [](const std::string& part) { return model::weight_of(part); };
  // The third of four ranks: head 2, which has the second head of keys.
  const Part part{2, 4};
  EXPECT_EQ(read(whole, part, weight(names.queries), 1, 1, 2), (std::vector<float>{5, 5.01F}));
  EXPECT_EQ(read(whole, part, weight(names.keys), 0, 1, 2), (std::vector<float>{2, 2.01F}));
  EXPECT_EQ(read(whole, part, weight(names.values), 1, 1, 2), (std::vector<float>{3, 3.01F}));
  EXPECT_EQ(read(whole, part, weight(names.output), 3, 2, 2),
            (std::vector<float>{3.04F, 3.05F, 4.04F, 4.05F}));
  EXPECT_EQ(read(whole, part, weight(names.feed_forward.up), 0, 1, 2), (std::vector<float>{6, 6.01F}));
  EXPECT_EQ(read(whole, part, weight(names.feed_forward.down), 7, 1, 3),
            (std::vector<float>{7.06F, 7.07F, 7.08F}));
  // What is whole on each rank.
  EXPECT_EQ(read(whole, part, "model.norm.weight", 3, 1, 1), (std::vector<float>{3}));
  EXPECT_EQ(read(whole, part, "lm_head.weight", 3, 1, 2), (std::vector<float>{3, 3.01F}));
}

TEST(Split, WhatIsReadAsItIsStoredIsCutTheSame) {
  const model::Shape whole = llama();
  const ReadStored stored = [](const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                               safetensors::Type type, std::span<std::byte> bytes) -> Result<bool> {
    if (type != safetensors::Type::bf16) return false;
    std::vector<float> floats(bytes.size() / 2);
    if (auto done = read_places(tensor, first_row, rows, floats); !done) return std::move(done).error();
    safetensors::from_floats(floats, type, bytes);
    return true;
  };
  const model::LayerNames names = model::names_of_layer(whole, 0);
  struct Case {
    std::string tensor;
    std::int64_t columns;
  };
  for (const auto& [tensor, columns] : std::vector<Case>{{model::weight_of(names.queries), 8},
                                                         {model::weight_of(names.output), 2},
                                                         {model::weight_of(names.feed_forward.down), 3},
                                                         {model::bias_of(names.output), 1},
                                                         {"lm_head.weight", 8}}) {
    const Part part{3, 4};
    const auto floats = read(whole, part, tensor, 1, 1, columns);
    std::vector<std::byte> expected(floats.size() * 2);
    safetensors::from_floats(floats, safetensors::Type::bf16, expected);
    std::vector<std::byte> bytes(expected.size(), std::byte{0xff});
    const auto done = read_stored_part(whole, part, stored)(tensor, 1, 1, safetensors::Type::bf16, bytes);
    ASSERT_TRUE(done && *done) << tensor;
    EXPECT_EQ(bytes, expected) << tensor;
    std::vector<std::byte> wide(floats.size() * 4);
    const auto other = read_stored_part(whole, part, stored)(tensor, 1, 1, safetensors::Type::f32, wide);
    ASSERT_TRUE(other) << tensor;
    // A zero is one in every type.
    EXPECT_EQ(*other, tensor == model::bias_of(names.output)) << tensor;
  }
  EXPECT_FALSE(read_stored_part(whole, {0, 2}, nullptr));
}

TEST(Split, WhatIsAddedOnceIsOnTheFirstRankAlone) {
  const std::string bias = model::bias_of(model::names_of_layer(llama(), 0).output);
  EXPECT_EQ(read(llama(), {0, 2}, bias, 1, 2, 1), (std::vector<float>{1, 2}));
  EXPECT_EQ(read(llama(), {1, 2}, bias, 1, 2, 1), (std::vector<float>{0, 0}));
}

TEST(Split, TheVocabularyIsSharedToTheLastToken) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    std::int64_t next = 0;
    const std::int64_t width = head_of_part(100, {0, ranks}, 16).width;
    for (int rank = 0; rank < ranks; ++rank) {
      const HeadRows rows = head_of_part(100, {rank, ranks}, 16);
      EXPECT_EQ(rows.first, rank * width) << rank << " of " << ranks;
      EXPECT_EQ(rows.width, width);
      EXPECT_EQ(rows.count, std::clamp<std::int64_t>(100 - next, 0, width));
      next += rows.count;
    }
    EXPECT_EQ(next, 100);
    EXPECT_EQ(width % 16, 0);
  }
}

TEST(Split, WhatCannotBeCutIsNamed) {
  const auto problem = [](const model::Shape& shape, int ranks) {
    const auto fine = check_split(shape, ranks);
    return fine ? std::string() : fine.error().message();
  };
  model::Shape shape = llama();
  for (const int ranks : {1, 2, 4}) EXPECT_EQ(problem(shape, ranks), "");
  EXPECT_EQ(problem(shape, 3), "its 4 heads cannot be shared by 3 ranks");
  shape.intermediate = 13;
  EXPECT_EQ(problem(shape, 2), "its 13 numbers of the inner width cannot be shared by 2 ranks");
  shape = llama();
  shape.heads = shape.kv_heads = 6;
  EXPECT_EQ(problem(shape, 4), "its 6 heads cannot be shared by 4 ranks");
  shape.heads = 12;
  EXPECT_EQ(problem(shape, 4), "its 6 heads of keys and values cannot be shared by 4 ranks");
  shape = llama();
  shape.experts = {.count = 4, .chosen = 2, .intermediate = 5};
  EXPECT_EQ(problem(shape, 2), "its 5 numbers of the experts' inner width cannot be shared by 2 ranks");
  EXPECT_NE(problem(shape, 0), "");
}

}  // namespace
}  // namespace tutti::serve
