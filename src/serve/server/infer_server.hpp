// A program that answers over HTTP, as the Open Inference Protocol has it: tensors in, tensors out, in JSON
// or as bytes. It listens from the start, and answers 503 until its program is there.
//
//   loop (HTTP) ─▶ reading: JSON, bounds, bytes ─▶ runner (its lanes) ─▶ writing ─▶ loop
//
// One thread runs it; start(), drain() and stop() from any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"
#include "serve/program/program.hpp"
#include "serve/runner/runner.hpp"
#include "serve/server/front.hpp"

namespace tutti::serve {

inline constexpr std::size_t tensor_reading_threads = 2;
inline constexpr std::size_t tensor_writing_threads = 2;

struct InferSettings : FrontSettings {
  RunnerSettings runner;
};

class InferServer {
 public:
  // Refuses an address that others can reach without a key.
  static Result<std::unique_ptr<InferServer>> listen(const InferSettings& settings);
  ~InferServer();
  InferServer(const InferServer&) = delete;
  InferServer& operator=(const InferServer&) = delete;

  // What it answers.
  static std::span<const Page> pages();
  std::uint16_t port() const;
  // The program is there: from now on it answers, by this name. Once.
  void start(const std::string& name, std::unique_ptr<Program> program);
  // The first signal that asks the process to end drains, the second stops. Before run().
  void drain_when_asked();
  // That second signal, after run(); 0: there was none.
  int cut_short_by() const;

  // Until it is drained or stopped.
  void run();
  // Takes no more requests; run() returns when all are answered, or told that they are not after
  // drain_time_max.
  void drain();
  void stop();

  RunnerCounts counts() const;

 private:
  class Core;
  explicit InferServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tutti::serve
