// A model that several processes of this machine compute together, each a part of every layer (serve/split):
//
//   engine ─▶ ParallelModel ══ step ══▶ rank 0 ◀─ comm: sums, logits ─▶ rank 1 …
//                           ══ choose ═▶ rank 0, which has the logits of all
//
// A rank that dies or hangs fails the requests under its name, and all of them end: none is left behind.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "serve/load/load.hpp"
#include "serve/model/model.hpp"
#include "serve/remote/worker.hpp"

namespace tutti::serve::parallel {

// Starts the ranks that the options ask for, `PROGRAM model MODEL OPTIONS` each, and waits until all have
// loaded their parts.
Result<std::unique_ptr<Model>> open_model(const std::string& program, const Source& source,
                                          const LoadOptions& options);
// The same with any programs, the n-th being rank n.
Result<std::unique_ptr<Model>> open_ranks(const std::vector<remote::Worker::Program>& programs);

// What such a program does with MODEL OPTIONS, as a rank or as the only one: computes for the process that
// has started it, until that has gone.
Result<> host_model(std::span<const std::string> words, const MakeModel& on_gpu);

}  // namespace tutti::serve::parallel
