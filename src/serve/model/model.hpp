// The port to what computes: a model whose keys and values lie in blocks of a fixed number. It knows tokens
// and blocks, and nothing of requests: who gets which block, and what is computed next, is decided by
// serve/batch. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  virtual const Limits& limits() const = 0;

  // Computes the chunks: their keys and values are in their blocks afterwards, and the rows of logits are
  // there until the next step.
  virtual Result<> step(std::span<const Chunk> chunks) = 0;
  virtual Result<std::vector<Chosen>> choose(std::span<const Choice> choices) = 0;
  // The numbers of a row themselves, for tests and comparisons.
  virtual Result<std::vector<float>> logits(std::int32_t row) = 0;

  // It can compute nothing any more, and never will: the process that computed is gone. Also while nobody
  // asks for anything.
  virtual bool is_lost() { return false; }

  // What a person is told at the start: "cpu, avx512, int8 weights, 1.1 GB".
  virtual std::string describe() const = 0;
};

}  // namespace tutti::serve
