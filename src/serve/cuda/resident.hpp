// A model on a device: its part, its memory, its weights, and the queue that everything goes through. Made
// whole or not at all. One thread at a time. Needs CUDA.
#pragma once

#include <memory>
#include <string>

#include "serve/cuda/device.hpp"
#include "serve/cuda/model.hpp"
#include "serve/cuda/scratch.hpp"
#include "serve/cuda/weights.hpp"

namespace tutti::serve::cuda {

// Steps whose answers may wait to be read: none is written over another.
inline constexpr std::size_t answer_slots = 2;

struct ReservedMemory {
  DeviceMemory weights;
  DeviceMemory adapters;
  DeviceMemory scratch;
  DeviceMemory cache;
  PinnedMemory inputs;   // of a step
  PinnedMemory samples;  // to be drawn, in each slot
  PinnedMemory tokens;   // that were chosen, in each slot
};

struct Resident {
  model::Shape shape;  // of this rank's part
  Options options;     // with the device that was chosen, and what it can do
  std::string device_name;
  MemoryPlan plan;
  Limits limits;
  StepSizes sizes;
  ReservedMemory memory;
  OwnStream stream;
  Scratch scratch;
  Weights weights;

  // The device belongs to a thread, and steps may come from another one than the first.
  Result<> enter() const;
  std::size_t rows_max() const;
  // As many as the products of a full step have, those of nobody among them.
  std::size_t padded_rows() const;
};

Result<std::unique_ptr<Resident>> make_resident(const model::Shape& whole, Options options,
                                                const ReadRows& read, const ReadStored& stored);

// The least of what all ranks have: none goes on before all are here.
Result<std::int64_t> least(const Options& options, std::int64_t number);

}  // namespace tutti::serve::cuda
