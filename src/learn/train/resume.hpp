// Which checkpoint a run goes on with: the newest that is whole on every rank. Nothing is ever deleted
// because it could not be read: what proves damaged is set aside, another model's is refused, and a disk that
// gives nothing is an error. Damage is proven by two: what one rank alone reads wrong is that rank's. All
// ranks together.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "learn/checkpoint/manifest.hpp"
#include "learn/model/shape.hpp"
#include "learn/train/parameters.hpp"

namespace tutti::train {

struct ResumeOptions {
  std::string checkpoints;  // the folder
  model::Shape shape;
};

// Where the training stood, and the parameters are filled; nothing if the run has never saved. `say` is for
// people. Throws Failure.
std::optional<checkpoint::State> resume(const ResumeOptions& options, comm::Communicator& world,
                                        Parameters& parameters,
                                        const std::function<void(const std::string&)>& say);

// Each rank fills its own; the first problem that one of them met, on all ranks alike. "" if there is none.
struct Filled {
  std::string problem;
  // It is the stored values that are at fault: on every rank that met a problem, and on one more that was
  // asked to read them too.
  bool damaged = false;
};
Filled fill_everywhere(comm::Communicator& world, Parameters& parameters, const Parameters::Source& source,
                       bool with_moments);

}  // namespace tutti::train
