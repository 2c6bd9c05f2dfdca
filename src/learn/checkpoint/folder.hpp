// The checkpoints of a run, in one folder:
//
//     step-00000100/                        a checkpoint: manifest.json and the files of its ranks
//     .step-00000200.attempt-0002.part/     one that is being written
//     attempt                               the newest attempt that has claimed the folder
//     lock                                  held around each change
//
// A checkpoint appears whole, by one rename, or not at all. What an attempt writes after a newer one has
// claimed the folder never appears. Any thread and any process, also at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "learn/checkpoint/manifest.hpp"

namespace tutti::checkpoint {

// Makes the folder this attempt's, and removes what older ones have left unfinished. Refused if a newer one
// has it.
Result<> claim(const std::string& folder, std::int64_t attempt);

// Where the ranks are to write their files. Each rank may ask; the answer is the same.
Result<std::string> begin(const std::string& folder, std::int64_t step, std::int64_t attempt);

// Makes what the ranks of `state.attempt` have written for `state.step` a checkpoint. Refused if a newer
// attempt has claimed the folder, if a file is not as recorded, or if the files do not hold each tensor
// exactly once. A step that is there already stays as it is.
Result<> commit(const std::string& folder, const State& state, std::span<const FileRecord> files);

// Removes all but the newest `keep` checkpoints whose manifest can be read. The newest of them always stays,
// and so does all that is newer than it.
Result<> prune(const std::string& folder, std::size_t keep);

// Removes one checkpoint, such as one that proved damaged.
Result<> discard(const std::string& folder, std::int64_t step);

struct Listed {
  std::int64_t step = 0;
  std::string path;
  Instant written_at{};
  std::string problem;  // why its manifest cannot be read; then what follows is not known
  std::uint64_t bytes = 0;
  std::size_t files = 0;
  std::int64_t attempt = 0;
  std::string mesh;
  double loss = std::numeric_limits<double>::quiet_NaN();
};

// One checkpoint, wherever it lies.
Listed describe(const std::string& checkpoint);

// The newest last; none if there is no such folder. One that is removed meanwhile is not in it.
Result<std::vector<Listed>> list(const std::string& folder);

// The steps of all that is named like a checkpoint, the newest last.
Result<std::vector<std::int64_t>> steps_in(const std::string& folder);
std::string checkpoint_path(const std::string& folder, std::int64_t step);
// The manifest in checkpoint_path(), if it is of this step.
Result<Manifest> load_manifest(const std::string& folder, std::int64_t step);

}  // namespace tutti::checkpoint
