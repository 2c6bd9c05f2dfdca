// A model that is a program: tensors in, tensors out. The port that serve/runner drives. run() from several
// threads, each in a lane of its own; the rest from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "serve/tensor/signature.hpp"
#include "serve/tensor/tensor.hpp"

namespace tutti::serve {

struct ProgramState {
  bool is_ready = true;  // else what comes now fails at once
  std::string problem;   // why it is not
  std::int64_t restarts = 0;
};

class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  virtual ~Program() = default;

  // How many can compute at once.
  virtual int lanes() const = 0;
  virtual const Signature& signature() const = 0;
  virtual std::string describe() const = 0;

  // In the order of the signature. What the program does not take is invalid; `unknown` is a program that has
  // died meanwhile, or is not there: asking again later may help.
  virtual Result<std::vector<Tensor>> run(int lane, const std::vector<Tensor>& inputs) = 0;
  virtual ProgramState state() const = 0;
  // All that runs or comes fails from now on.
  virtual void stop() = 0;
};

}  // namespace tutti::serve
