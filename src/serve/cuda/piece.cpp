#include "serve/cuda/piece.hpp"

#include <algorithm>
#include <cstring>

#include "learn/safetensors/types.hpp"
#include "serve/cuda/kernels/fp8.hpp"
#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {
namespace {

safetensors::Type stored_type(Type type) {
  return type == Type::bf16 ? safetensors::Type::bf16 : safetensors::Type::f32;
}

// Rows that lie side by side go to their places, the last one first: none is overwritten before it has moved.
void spread(std::byte* data, std::size_t rows, std::size_t row_bytes, std::size_t stride_bytes) {
  if (row_bytes == stride_bytes) return;
  for (std::size_t row = rows; row-- > 0;) {
    std::byte* const place = data + row * stride_bytes;
    std::memmove(place, data + row * row_bytes, row_bytes);
    std::memset(place + row_bytes, 0, stride_bytes - row_bytes);
  }
}

Result<> read_floats(const WeightPiece& piece, const ReadRows& read, std::vector<float>& floats) {
  floats.resize(static_cast<std::size_t>(piece.rows * piece.columns));
  return read(piece.tensor, piece.first_row, piece.rows, floats);
}

Result<> fill_fp8(const WeightPiece& piece, const ReadRows& read, std::span<std::byte> to,
                  std::vector<float>& floats) {
  if (auto done = read_floats(piece, read, floats); !done) return done;
  const auto columns = static_cast<std::size_t>(piece.columns);
  const auto stride = static_cast<std::size_t>(piece.stride);
  std::ranges::fill(to, std::byte{});
  const std::span codes(reinterpret_cast<std::uint8_t*>(to.data()), bytes_of_rows(piece));
  for (std::size_t row = 0; row < static_cast<std::size_t>(piece.rows); ++row) {
    const float scale =
        fp8_from_row(std::span(floats).subspan(row * columns, columns), codes.subspan(row * stride, columns));
    std::memcpy(to.data() + codes.size() + row * sizeof(scale), &scale, sizeof(scale));
  }
  return {};
}

}  // namespace

std::size_t bytes_of_rows(const WeightPiece& piece) {
  return static_cast<std::size_t>(piece.rows * piece.stride) * (piece.is_fp8 ? 1 : bytes_of(piece.type));
}

std::size_t bytes_of_piece(const WeightPiece& piece) {
  return bytes_of_rows(piece) + (piece.is_fp8 ? static_cast<std::size_t>(piece.rows) * sizeof(float) : 0);
}

Result<> fill_piece(const WeightPiece& piece, const PieceReader& reader, std::span<std::byte> to,
                    std::vector<float>& floats) {
  if (piece.is_fp8) return fill_fp8(piece, reader.floats, to, floats);
  const auto type = stored_type(piece.type);
  const std::size_t row_bytes = static_cast<std::size_t>(piece.columns) * bytes_of(piece.type);
  const std::size_t stride_bytes = static_cast<std::size_t>(piece.stride) * bytes_of(piece.type);
  const auto rows = static_cast<std::size_t>(piece.rows);
  const auto narrow = to.first(rows * row_bytes);
  bool is_stored = false;
  if (reader.stored) {
    const auto done = reader.stored(piece.tensor, piece.first_row, piece.rows, type, narrow);
    if (!done) return done.error();
    is_stored = *done;
  }
  if (!is_stored) {
    if (auto done = read_floats(piece, reader.floats, floats); !done) return done;
    safetensors::from_floats(floats, type, narrow);
  }
  spread(to.data(), rows, row_bytes, stride_bytes);
  return {};
}

}  // namespace tutti::serve::cuda
