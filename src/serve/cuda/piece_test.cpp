#include "serve/cuda/piece.hpp"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "learn/safetensors/types.hpp"
#include "serve/cuda/kernels/fp8.hpp"
#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {
namespace {

using Stored = safetensors::Type;

// A file of one tensor, in one type.
struct File {
  Stored type = Stored::f32;
  std::int64_t columns = 0;
  std::vector<std::byte> bytes;

  File(Stored of, std::int64_t rows, std::int64_t wide) : type(of), columns(wide) {
    std::vector<float> floats;
    for (std::int64_t at = 0; at < rows * wide; ++at)
      floats.push_back(std::sin(static_cast<float>(at) * 12.9898F) * 3);
    bytes.resize(floats.size() * safetensors::size_of(type));
    safetensors::from_floats(floats, type, bytes);
  }
  std::span<const std::byte> rows(std::int64_t first, std::int64_t count) const {
    const std::size_t row = static_cast<std::size_t>(columns) * safetensors::size_of(type);
    return std::span(bytes).subspan(static_cast<std::size_t>(first) * row,
                                    static_cast<std::size_t>(count) * row);
  }
  ReadRows floats() const {
    return [this](const std::string&, std::int64_t first, std::int64_t count,
                  std::span<float> floats) -> Result<> {
      safetensors::to_floats(type, rows(first, count), floats);
      return {};
    };
  }
  ReadStored stored() const {
    return [this](const std::string&, std::int64_t first, std::int64_t count, Stored wanted,
                  std::span<std::byte> out) -> Result<bool> {
      if (wanted != type) return false;
      std::ranges::copy(rows(first, count), out.begin());
      return true;
    };
  }
};

WeightPiece piece_of(std::int64_t rows, std::int64_t columns, std::int64_t stride, Type type) {
  return {.tensor = "a", .first_row = 2, .rows = rows, .columns = columns, .stride = stride, .type = type};
}

std::vector<std::byte> filled(const WeightPiece& piece, const PieceReader& reader) {
  std::vector<std::byte> bytes(bytes_of_piece(piece), std::byte{0xa5});
  std::vector<float> floats;
  const auto done = fill_piece(piece, reader, bytes, floats);
  EXPECT_TRUE(done) << done.error().text();
  return bytes;
}

// Of every pair of types, and with every padding, the bytes are those of the way through floats; a type that
// is kept takes no other way than its own.
TEST(FillPiece, WhatIsStoredArrivesAsItWouldThroughFloats) {
  const ReadRows nobody = [](auto&&...) -> Result<> { return failed("nobody reads floats here"); };
  for (const Stored stored : {Stored::f32, Stored::bf16, Stored::f16}) {
    for (const Type type : {Type::f32, Type::bf16}) {
      for (const std::int64_t stride : {60, 64, 192}) {
        const File file(stored, 9, 60);
        const WeightPiece piece = piece_of(5, 60, stride, type);
        const auto expected = filled(piece, {file.floats(), nullptr});
        const bool is_kept =
            (stored == Stored::f32 && type == Type::f32) || (stored == Stored::bf16 && type == Type::bf16);
        EXPECT_EQ(filled(piece, {is_kept ? nobody : file.floats(), file.stored()}), expected)
            << safetensors::name_of(stored) << " " << static_cast<int>(type) << " " << stride;
      }
    }
  }
}

TEST(FillPiece, RowsHaveTheirNumbersAndThenZeros) {
  const File file(Stored::bf16, 4, 3);
  const WeightPiece piece = piece_of(2, 3, 5, Type::bf16);
  const auto bytes = filled(piece, {file.floats(), file.stored()});
  std::vector<float> numbers(10);
  safetensors::to_floats(Stored::bf16, bytes, numbers);
  std::vector<float> stored(12);
  safetensors::to_floats(Stored::bf16, file.bytes, stored);
  EXPECT_EQ(numbers, (std::vector<float>{stored[6], stored[7], stored[8], 0, 0, stored[9], stored[10],
                                         stored[11], 0, 0}));
}

TEST(FillPiece, RowsOfFp8HaveTheirScalesBehindThem) {
  const File file(Stored::bf16, 4, 3);
  WeightPiece piece = piece_of(2, 3, 8, Type::bf16);
  piece.is_fp8 = true;
  EXPECT_EQ(bytes_of_rows(piece), 16U);
  const auto bytes = filled(piece, {file.floats(), file.stored()});
  ASSERT_EQ(bytes.size(), 16U + 2 * sizeof(float));
  std::vector<float> stored(12);
  safetensors::to_floats(Stored::bf16, file.bytes, stored);
  for (std::size_t row = 0; row < 2; ++row) {
    std::vector<std::uint8_t> codes(3);
    const float expected = fp8_from_row(std::span(stored).subspan(6 + row * 3, 3), codes);
    float scale = 0;
    std::memcpy(&scale, bytes.data() + 16 + row * sizeof(scale), sizeof(scale));
    EXPECT_EQ(scale, expected);
    for (std::size_t at = 0; at < 8; ++at)
      EXPECT_EQ(bytes[row * 8 + at], std::byte{at < 3 ? codes[at] : std::uint8_t{0}}) << row << " " << at;
  }
}

TEST(FillPiece, AFileThatCannotBeReadIsToldOf) {
  const WeightPiece piece = piece_of(2, 3, 5, Type::bf16);
  std::vector<std::byte> bytes(bytes_of_piece(piece));
  std::vector<float> floats;
  const ReadRows fine = [](auto&&...) -> Result<> { return {}; };
  const ReadStored broken = [](auto&&...) -> Result<bool> { return failed("the disk is gone"); };
  const auto done = fill_piece(piece, {fine, broken}, bytes, floats);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message(), "the disk is gone");
}

}  // namespace
}  // namespace tutti::serve::cuda
