// Brings the pieces of a model onto the device, several at a time. Needs CUDA.
#pragma once

#include <span>

#include "base/result.hpp"
#include "serve/cuda/model.hpp"
#include "serve/cuda/piece.hpp"
#include "serve/cuda/weights.hpp"

namespace tutti::serve::cuda {

// Each piece is read into memory that the device can reach, and copied from there.
Result<> load_pieces(std::span<const WeightPiece> pieces, const PieceReader& reader, int device);

// What no file holds: the lists of experts, how fast positions turn.
Result<> load_lists(const model::Shape& shape, const Weights& weights);

// The matrices of adapters, one after the other, and the tables that lead to them.
Result<> load_adapters(const AdapterLayout& layout, const model::Shape& shape, Type type,
                       std::span<const lora::Adapter> adapters);

}  // namespace tutti::serve::cuda
