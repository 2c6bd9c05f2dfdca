// What a checkpoint says of itself: where the training stood, and which file holds which part of which
// tensor, with a hash for each block of each file. Records travel between ranks and to the disk as JSON; what
// is read is checked. Values, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "learn/checkpoint/box.hpp"
#include "learn/safetensors/types.hpp"

namespace tutti::checkpoint {

constexpr std::uint64_t block_bytes = std::uint64_t{1} << 20;  // what one hash vouches for
constexpr const char* manifest_name = "manifest.json";
constexpr std::size_t manifest_bytes_max = std::size_t{1} << 30;

// Where a training stands after `step` steps, as far as its tensors do not say it.
struct State {
  std::int64_t step = 0;
  std::int64_t attempt = 0;  // that wrote it
  std::string mesh;          // that wrote it, for people: any mesh can read it
  std::uint64_t samples_seen = 0;
  std::uint64_t tokens_seen = 0;
  std::uint64_t seed = 0;
  double loss =
      std::numeric_limits<double>::quiet_NaN();  // of the step that follows: what a replay must give
  std::string data_fingerprint;
  std::string recipe;        // JSON text, kept as it is
  std::string model_config;  // a config.json
};

// A part of a tensor, and its bytes in a file: row-major, [begin, end).
struct PieceRecord {
  std::string tensor;
  safetensors::Type type = safetensors::Type::f32;
  std::vector<std::int64_t> shape;  // of the whole tensor
  Box box;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const PieceRecord&, const PieceRecord&) = default;
};

struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> blocks;  // their hashes
  std::vector<PieceRecord> pieces;

  std::string json() const;
  static Result<FileRecord> parse(std::string_view text);
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct Manifest {
  State state;
  std::vector<FileRecord> files;
};

// The text carries a hash of itself, so that a damaged one is noticed.
std::string encode(const Manifest& manifest);
Result<Manifest> decode(std::string_view text);

// The manifest in the folder of a checkpoint.
Result<Manifest> load_manifest(const std::string& checkpoint);
// Writes it there, on the disk when this returns. What readers would not take is refused.
Result<> save_manifest(const std::string& checkpoint, const Manifest& manifest,
                       std::size_t bytes_max = manifest_bytes_max);

}  // namespace tutti::checkpoint
