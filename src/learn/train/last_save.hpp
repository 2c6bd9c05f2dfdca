// The end of a run: its last checkpoint is all that it has come to, and nothing is left to compute. Where the
// disk does not take it, the ranks keep the state in memory and try again. Used by the training thread.
#pragma once

#include <functional>
#include <string>

#include "learn/train/group.hpp"
#include "learn/train/patience.hpp"
#include "learn/train/saver.hpp"

namespace tutti::train {

struct LastSave {
  PatienceOptions patience{};
  int rank = 0;
  std::string folder;                            // where the checkpoint is to appear
  std::function<bool()> stop;                    // this rank is asked to end
  std::function<void()> check;                   // throws if there is no point in waiting any more
  std::function<void(const std::string&)> tell;  // what is missing, before each wait
};

// All ranks together, after the last Saver::begin: until it is committed. True if it took more than one try.
// Throws a Failure with the code `unknown` when the patience is over: a later attempt may fare better.
bool finish_last_save(Saver& saver, Group& world, const LastSave& options);

}  // namespace tutti::train
