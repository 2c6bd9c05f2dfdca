#include "learn/checkpoint/tensors.hpp"

#include <gtest/gtest.h>

namespace tutti::checkpoint {
namespace {

FileRecord file_of(std::vector<PieceRecord> pieces) { return {.name = "rank", .pieces = std::move(pieces)}; }
PieceRecord piece(std::vector<std::int64_t> shape, Box box) {
  return {.tensor = "t", .shape = std::move(shape), .box = std::move(box)};
}

std::string why_not(const std::vector<FileRecord>& files) {
  const auto tensors = index_tensors(files);
  return tensors ? "" : tensors.error().text();
}

TEST(Tensors, ArePutTogetherFromAllFiles) {
  const std::vector files{file_of({piece({4, 6}, {{2, 0}, {2, 6}}),
                                   {.tensor = "scalar", .type = safetensors::Type::i64, .begin = 8}}),
                          file_of({piece({4, 6}, {{0, 3}, {2, 3}}), piece({4, 6}, {{0, 0}, {2, 3}}),
                                   piece({4, 6}, {{0, 0}, {0, 0}})})};
  const auto tensors = index_tensors(files);
  ASSERT_TRUE(tensors) << tensors.error().text();
  ASSERT_EQ(tensors->size(), 2U);
  EXPECT_EQ(tensors->at("t").shape, (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(tensors->at("t").places.size(), 3U) << "without the empty one";
  EXPECT_EQ(tensors->at("scalar").type, safetensors::Type::i64);
  EXPECT_EQ(tensors->at("scalar").places.at(0).begin, 8U);
}

TEST(Tensors, WithAPartMissingAreRefused) {
  EXPECT_EQ(why_not({file_of({piece({4, 6}, {{0, 0}, {4, 5}})})}),
            "tensor 't' : 4 of its 24 elements are in no piece");
  EXPECT_EQ(why_not({file_of({piece({4, 6}, {{0, 0}, {0, 6}})})}),
            "tensor 't' : 24 of its 24 elements are in no piece");
  EXPECT_EQ(why_not({file_of({piece({4, 0}, {{0, 0}, {4, 0}})})}), "") << "there is nothing to miss";
}

TEST(Tensors, WithAPartTwiceAreRefused) {
  EXPECT_EQ(why_not({file_of({piece({4, 6}, {{0, 0}, {3, 6}})}), file_of({piece({4, 6}, {{2, 5}, {2, 1}})})}),
            "tensor 't' : its pieces [0:3,0:6] and [2:4,5:6] overlap");
  // As many elements as it should have, some twice and some never.
  EXPECT_EQ(why_not({file_of({piece({4}, {{0}, {2}})}), file_of({piece({4}, {{1}, {2}})})}),
            "tensor 't' : its pieces [0:2] and [1:3] overlap");
  EXPECT_EQ(why_not({file_of({piece({}, {}), piece({}, {})})}), "tensor 't' : its pieces [] and [] overlap");
}

TEST(Tensors, ThatFilesDisagreeAboutAreRefused) {
  PieceRecord other = piece({4}, {{2}, {2}});
  other.type = safetensors::Type::i32;
  const std::string why = "tensor 't' : its pieces differ in the type or the shape that they say it has";
  EXPECT_EQ(why_not({file_of({piece({4}, {{0}, {2}})}), file_of({other})}), why);
  EXPECT_EQ(why_not({file_of({piece({4}, {{0}, {2}})}), file_of({piece({5}, {{2}, {2}})})}), why);
}

}  // namespace
}  // namespace tutti::checkpoint
