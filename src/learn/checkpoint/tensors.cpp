#include "learn/checkpoint/tensors.hpp"

#include <algorithm>

namespace tutti::checkpoint {
namespace {

Result<> add(Tensors& tensors, const PieceRecord& piece, std::size_t file) {
  const auto [found, fresh] = tensors.try_emplace(piece.tensor, StoredTensor{piece.type, piece.shape, {}});
  StoredTensor& tensor = found->second;
  if (tensor.type != piece.type || tensor.shape != piece.shape) {
    return invalid("its pieces differ in the type or the shape that they say it has");
  }
  if (piece.box.elements() > 0) tensor.places.push_back({piece.box, file, piece.begin});
  return {};
}

// Sorts the places by their first row, so that only those that share rows are compared with one another.
Result<> check_no_overlap(std::vector<Place>& places) {
  std::ranges::sort(
      places, {}, [](const Place& place) -> const auto& { return place.box.offset; });
  for (std::size_t one = 0; one < places.size(); ++one) {
    const Box& box = places[one].box;
    for (std::size_t other = one + 1; other < places.size(); ++other) {
      const Box& next = places[other].box;
      if (!box.offset.empty() && next.offset[0] >= box.offset[0] + box.extent[0]) break;
      if (overlap(box, next)) return invalid("its pieces " + box.text() + " and " + next.text() + " overlap");
    }
  }
  return {};
}

Result<> check_complete(StoredTensor& tensor) {
  if (auto apart = check_no_overlap(tensor.places); !apart) return apart;
  std::int64_t held = 0;
  for (const Place& place : tensor.places) held += place.box.elements();
  const std::int64_t all = whole(tensor.shape).elements();
  if (held == all) return {};
  return invalid(std::to_string(all - held) + " of its " + std::to_string(all) + " elements are in no piece");
}

}  // namespace

Result<Tensors> index_tensors(std::span<const FileRecord> files) {
  Tensors tensors;
  for (std::size_t file = 0; file < files.size(); ++file) {
    for (const PieceRecord& piece : files[file].pieces) {
      auto added = add(tensors, piece, file);
      if (!added) return std::move(added).error().within("tensor '" + piece.tensor + "'");
    }
  }
  for (auto& [name, tensor] : tensors) {
    if (auto complete = check_complete(tensor); !complete) {
      return std::move(complete).error().within("tensor '" + name + "'");
    }
  }
  return tensors;
}

}  // namespace tutti::checkpoint
