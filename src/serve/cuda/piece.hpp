// A piece of a model's weights as the device is to have it. Values; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "serve/cuda/weights.hpp"
#include "serve/split/split.hpp"

namespace tutti::serve::cuda {

struct PieceReader {
  ReadRows floats;
  ReadStored stored;  // or null
};

// Of its rows, and with the scales that lie behind them where it is of fp8.
std::size_t bytes_of_rows(const WeightPiece& piece);
std::size_t bytes_of_piece(const WeightPiece& piece);

// Fills `to`, which has the bytes of the piece: row by row, with zeros behind each. What the files have in
// the piece's type is read to where it belongs; all else passes through `floats`, which is the caller's so
// that it is reserved once.
Result<> fill_piece(const WeightPiece& piece, const PieceReader& reader, std::span<std::byte> to,
                    std::vector<float>& floats);

}  // namespace tutti::serve::cuda
