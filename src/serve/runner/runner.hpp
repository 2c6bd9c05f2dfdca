// A program that answers: requests from any thread are gathered into batches, and each lane of the program
// has a thread that takes the next one. What became of a request goes to its receiver on that thread.
//
//   submit ─▶ gather: waits for its like ─▶ a lane: joined ─▶ Program::run ─▶ split by rows ─▶ receivers
//
// A batch that fails is computed again, one request after the other: who is wrong spoils nobody else's
// answer. Those who ask take turns, so that nobody's crowd of requests shuts out the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "serve/gather/gather.hpp"
#include "serve/program/program.hpp"

namespace tutti::serve {

struct RunnerSettings {
  GatherSettings gather;  // rows_max 1: nothing is gathered, and the first dimension has no meaning
  std::size_t requests_max = 1'000;
};

struct RunnerCounts {
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  std::int64_t batches = 0;      // that were computed
  std::int64_t rows = 0;         // of those
  std::int64_t finished = 0;     // requests
  std::int64_t failed = 0;       // of those
  std::int64_t again_alone = 0;  // requests whose batch had failed
  ProgramState program;
};

class Runner {
 public:
  // Hands the answer over and returns: the lane waits for it. invalid is what the model does not take,
  // unknown a program that has died or an engine that stops. One that throws because it has no memory for the
  // answer is told that instead, until it takes it.
  using Receive = std::function<void(Result<std::vector<Tensor>>&&)>;

  Runner(std::unique_ptr<Program> program, const RunnerSettings& settings);
  // What is not finished fails, and its receivers are told so.
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  const Program& program() const;

  // Refused are requests that no batch can hold (invalid) and too many of them, of all or of who asks
  // (failed). The answer may come before this returns. Where there is no memory for it that is thrown, and
  // nothing has happened.
  Result<RunId> submit(std::vector<Tensor> inputs, Receive receive, const std::string& who = "");
  // Nobody wants it any more: it is not computed if it still waits, and its receiver hears nothing then.
  void cancel(RunId id);

  RunnerCounts counts() const;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace tutti::serve
