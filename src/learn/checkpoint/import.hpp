// The weights of a Hugging Face folder under our names: what a training can start from. It is const after
// open(): any thread, several at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/hash/hash.hpp"
#include "base/result.hpp"
#include "learn/checkpoint/box.hpp"
#include "learn/model/shape.hpp"
#include "learn/safetensors/file.hpp"

namespace tutti::checkpoint {

class ForeignWeights {
 public:
  // A folder with model.safetensors or its index, or one .safetensors file. Every tensor of the model must be
  // there in its shape, as 32-bit or 16-bit floats; buffers that are computed anew are passed over.
  static Result<ForeignWeights> open(const std::string& path, const model::Shape& shape);

  // Of the tensors' names and shapes, and of some bytes of each: quick, and another one for a model that was
  // trained further.
  Result<Hash128> fingerprint() const;

  // A box of a tensor of ours, without "model/" in front; `floats` has room for exactly it.
  Result<> read(const std::string& name, const Box& box, std::span<float> floats) const;
  // Whole rows of it.
  Result<> read_rows(const std::string& name, std::int64_t first_row, std::int64_t rows,
                     std::span<float> floats) const;
  // The same as the file has them, where it has them in this type and in this order; else false, and `bytes`
  // is as it was.
  Result<bool> read_stored(const std::string& name, std::int64_t first_row, std::int64_t rows,
                           safetensors::Type type, std::span<std::byte> bytes) const;

 private:
  // Where one of our tensors lies: rows of theirs, or columns.
  struct Source {
    std::vector<std::int64_t> shape;  // of ours
    std::size_t file = 0;
    safetensors::Entry entry;
    std::int64_t first_row = 0;
    bool transposed = false;
  };
  class Finder;

  Result<const Source*> find(const std::string& name) const;
  // A box of the file's own tensor.
  Result<> read_bytes(const Source& source, const Box& theirs, std::span<std::byte> bytes) const;

  std::string path_;
  std::vector<safetensors::File> files_;
  std::map<std::string, Source> sources_;
};

// A folder of Hugging Face: what its config.json says, and the weights.
struct ForeignModel {
  model::Shape shape;
  ForeignWeights weights;
};
Result<ForeignModel> open_foreign(const std::string& folder);

}  // namespace tutti::checkpoint
