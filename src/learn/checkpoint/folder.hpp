// The checkpoints of a run, in one folder:
//
//     step-00000100/                        a checkpoint: manifest.json and the files of its ranks
//     step-00000050.damaged-1/              one that is not what was written; damaged.txt says why
//     .step-00000200.job-12.attempt-0002.part/   one that is being written
//     attempt                               the newest attempt that has claimed the folder, of which job, and
//                                           as which submission
//     lock                                  held around each change
//
// A checkpoint appears whole, by one rename, or not at all. What an attempt writes after a newer one has
// claimed the folder never appears. Any thread and any process, also at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "learn/checkpoint/fence.hpp"
#include "learn/checkpoint/manifest.hpp"

namespace tutti::checkpoint {

constexpr const char* damaged_note_name = "damaged.txt";

// Makes the folder this attempt's, and removes what others have left unfinished. Refused if a newer one of
// the same cluster has it that it may not pass over; which of two clusters may, its owner (owner.hpp) has
// decided before. The name of its submission, one line or none, is noted with the claim.
Result<> claim(const std::string& folder, const Fence& fence, const std::string& submission = "",
               const std::optional<Fence>& over = std::nullopt);
// Whether it would be refused as things are now; changes nothing.
Result<> check_claim(const std::string& folder, const Fence& fence,
                     const std::optional<Fence>& over = std::nullopt);
// Who did last; nothing if nobody has.
Result<std::optional<Fence>> claimed_by(const std::string& folder);
// As which submission; "" if that is not noted.
Result<std::string> claimed_as(const std::string& folder);

// Where the ranks are to write their files. Each rank may ask; the answer is the same. Refused where the
// folder does not hold this claim: with `invalid` if another one has claimed it since, with `failed` if
// another folder has come into its place, which can be put right.
Result<std::string> begin(const std::string& folder, std::int64_t step, const Fence& fence);
// Removes what was begun and cannot be ended, so that a disk that was full for a moment is not full for good.
void abandon(const std::string& folder, std::int64_t step, const Fence& fence);

// Makes what the ranks of an attempt have written for `state.step` a checkpoint. Refused as begin() is, if a
// file is not as recorded, or if the files do not hold each tensor exactly
// once. A step that is there already stays as it is.
Result<> commit(const std::string& folder, const Fence& fence, const State& state,
                std::span<const FileRecord> files);
// A step that the run once had a checkpoint of, whether it is still there or not: that of the last commit, as
// noted beside the folder in FOLDER.committed, or one that was set aside. Nothing if it never had any.
Result<std::optional<std::int64_t>> had_step(const std::string& folder);

// Everything, under a name beside it: FOLDER.old-1, or the next number that is free. The new name.
Result<std::string> move_away(const std::string& folder);

// Removes all but the newest `keep` checkpoints whose manifest can be read. The newest of them always stays,
// and so does all that is newer than it.
Result<> prune(const std::string& folder, std::size_t keep);

// Renames one that proved damaged, so that the step can be saved again; nothing is lost. The new path.
Result<std::string> set_aside(const std::string& folder, std::int64_t step, const std::string& why);

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
