// A checkpoint opened for reading, by whatever mesh: any box of any tensor, from only the blocks that hold
// it. One thread at a time; another thread opens one of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/hash/hash.hpp"
#include "base/result.hpp"
#include "learn/checkpoint/manifest.hpp"
#include "learn/checkpoint/tensors.hpp"

namespace tutti::checkpoint {

class Blocks;

// Bytes done, and bytes in all.
using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& path);
  // The one of a step, in the folder of a run's checkpoints.
  static Result<Checkpoint> open(const std::string& folder, std::int64_t step);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& path() const { return path_; }
  const State& state() const { return state_; }
  const Tensors& tensors() const { return tensors_; }

  // The elements of the box, row-major; `bytes` has room for exactly them. What comes is what was written: a
  // block that is not is an error that names its file.
  Result<> read(const std::string& tensor, const Box& box, std::span<std::byte> bytes) const;
  // Opens its files now, and so keeps them though a training removes it meanwhile; where there are very many,
  // the first ones. Who reads without it opens each when it is needed.
  Result<> hold() const;
  // From the disk, so far.
  std::uint64_t bytes_read() const;
  // Of all that was written of the model and of the training, by the hashes in its manifest.
  Hash128 fingerprint() const;

  // Reads every block of every file.
  Result<> verify(const Progress& progress) const;

 private:
  Checkpoint(std::string path, Manifest manifest, Tensors tensors);
  static Result<Checkpoint> open(const std::string& path, Result<Manifest> manifest);

  std::string path_;
  State state_;
  Tensors tensors_;
  std::unique_ptr<Blocks> blocks_;
};

// The newest checkpoint in the folder whose manifest can be read, or the newest from before a step: where to
// go on when reading one has failed. Nothing if there is none at all, an error if there are only damaged
// ones. One that a training removes meanwhile is none of them.
Result<std::optional<Checkpoint>> open_latest(const std::string& folder,
                                              std::optional<std::int64_t> before_step = std::nullopt);
// The newest, and held, for whoever reads beside a training.
Result<std::optional<Checkpoint>> hold_latest(const std::string& folder);

}  // namespace tutti::checkpoint
