// One rank of a training run, from its folder to its end. The folder has:
//
//   recipe.json    what to train and how (src/learn/recipe)
//   config.json    the model, as Hugging Face describes it
//   metrics.jsonl  a line for each step
//   checkpoints/   what the run can go on from
//   owner          who trains in it now
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "learn/checkpoint/fence.hpp"
#include "learn/train/metrics.hpp"
#include "learn/train/ownership.hpp"
#include "learn/train/patience.hpp"

namespace tutti::train {

enum class Ending { finished, stopped };

struct RunOptions {
  std::string folder;
  checkpoint::Fence fence{};
  std::string submission{};     // a file of recipe::Submission; none: recipe.json and config.json say it
  int device = -1;              // the GPU of this rank; -1: the host
  std::int64_t memory = 0;      // of the rank, 0: not known
  std::string progress_file{};  // where the newest line is put for the agent, or empty
  std::string saved_folder{};   // whose time of change tells the agent of the last checkpoint, or empty
  OwnershipOptions ownership{};
  PatienceOptions last_save{};  // with a disk that does not take the last checkpoint
  // Told of a failure before anything is waited for that may never come.
  std::function<void(const Error&)> failing{};
  // Told of an end, all of which is saved, before the folder is given back: its disk may not answer any more.
  std::function<void(Ending)> leaving{};
};

// Trains until the last step, or until `stop` says so (asked between steps; one rank's word is enough), and
// leaves a checkpoint. Rank 0 prints. A rank that fails ends the waits of all others first, so that they end
// at once and name it. An error with the code `invalid` is one that the next attempt would meet again;
// with `unknown` the disk did not do its part, and a later attempt may fare better.
Result<Ending> train(const RunOptions& options, comm::Communicator world, const std::function<bool()>& stop);

}  // namespace tutti::train
