// Checkpoints that are written while training goes on: the state is copied, which is all that training waits
// for, and threads of all ranks write it, meet, and commit. Used by the training thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "learn/checkpoint/fence.hpp"
#include "learn/checkpoint/manifest.hpp"
#include "learn/train/parameters.hpp"

namespace tutti::train {

struct SaverOptions {
  std::string folder;
  checkpoint::Fence fence{};
  std::int64_t kept = 3;
};

class Saver {
 public:
  // All ranks together: the communicator is the threads' own.
  Saver(SaverOptions options, comm::Communicator& world);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  ~Saver();

  // Makes room for the copies, beside the first steps: memory that was never touched is slow.
  void prepare(Parameters& parameters);
  // Begins to save; waits first for one that is still under way. Seconds that training stood still.
  double begin(Parameters& parameters, const checkpoint::State& state);
  // The loss of the step that follows the state: a checkpoint is committed when it is known.
  void provide_loss(double loss);
  bool waits_for_loss();
  // Until what was begun is committed, on all ranks alike. With the code `unknown` another try may fare
  // better: a disk was full or did not answer. With `invalid` none will: somebody else has the folder.
  Result<> finish();
  // Once more what finish() could not end with the code `unknown`, from the copy that is still there.
  void try_again();
  // The last error of a save that training went on after, once; and the newest step that is safe.
  std::optional<Error> take_problem();
  std::int64_t committed_step() const;

 private:
  Result<> save(const checkpoint::State& state);
  Result<> write_and_commit(const checkpoint::State& state);
  Result<std::string> write_mine(const checkpoint::State& state);
  Result<> commit(checkpoint::State state, const std::vector<std::string>& records);
  Result<double> wait_for_loss();
  void make_room(std::int64_t count, bool pinned);
  void copy(Parameters& parameters);

  SaverOptions options_;
  comm::Communicator communicator_;
  std::vector<Parameters::Saved> saved_;
  checkpoint::State state_;
  at::Tensor staging_;
  std::thread preparing_;
  std::thread running_;
  Result<> ended_;  // of running_, once it is joined
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool loss_wanted_ = false;
  std::optional<double> loss_;
  std::optional<Error> problem_;
  std::int64_t committed_ = -1;
};

// What a tensor of this kind is called in a checkpoint.
std::string stored_name(Kind kind, const std::string& tensor);

}  // namespace tutti::train
