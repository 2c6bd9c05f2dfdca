// The port to what computes: a model whose keys and values lie in blocks of a fixed number. It knows tokens
// and blocks, and nothing of requests: who gets which block, and what is computed next, is decided by
// serve/batch. One thread at a time, but for abandon().
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

  // Of a model that works ahead two steps may be under way: the second is given while the first is computed,
  // and its chunks may follow choices that are not answered yet.
  //
  //   step, ask, step (follows), ask, answer, step (follows), ask, answer, … answer
  //
  // choose() is ask() and answer(). Answers come in the order of the questions; a question that was refused
  // has none. What is asked for a step that others follow is_plain().
  virtual bool works_ahead() const { return false; }
  virtual Result<> ask(std::span<const Choice>) { return invalid("this model does not work ahead"); }
  // Whether answer() would not wait.
  virtual bool has_answer() { return true; }
  virtual Result<std::vector<Chosen>> answer() { return invalid("nothing was asked"); }
  // It can compute nothing any more, and never will: the process that computed is gone. Also while nobody
  // asks for anything.
  virtual bool is_lost() { return false; }
  // For those who waited for it.
  virtual std::string why_lost() const { return "the process that computed it has ended"; }
  // Whatever computes elsewhere is ended, so that a step that is under way fails soon: it is lost. Does not
  // wait. The one call that may come from another thread, while the model computes.
  virtual void abandon() {}

  // What a person is told at the start: "cpu, avx512, int8 weights, 1.1 GB".
  virtual std::string describe() const = 0;
  // Of the files that it was read from, where another process has read them: another one tells that they were
  // others. "": this one has.
  virtual std::string fingerprint() const { return ""; }
};

}  // namespace tutti::serve
