// A model that answers: one thread owns the model and the batch, and goes on as long as there is something to
// compute. Requests come from any thread; pieces of answers go to their receivers on the engine's thread.
// What there is no memory for is lost, and the rest goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "serve/batch/batch.hpp"
#include "serve/model/model.hpp"

namespace tutti::serve {

// For so long a step that could not be computed is told of, unless another one is computed before: whoever
// sends no requests here because of it would wait for that one for ever.
inline constexpr auto failing_time = std::chrono::seconds(10);

struct EngineCounts {
  BatchCounts batch;
  std::int64_t model_failures = 0;
  std::int64_t model_losses = 0;
  bool failing = false;  // the last step could not be computed, a moment ago
  bool away = false;     // the model is lost, and another one is being opened
  bool gone = false;     // the model is lost, and nobody opens it again
  bool draining = false;
};

// With a salt for the prefix cache that nobody can know, unless there is one.
BatchSettings salted(BatchSettings settings);

class Engine {
 public:
  // Is called on the engine's thread and keeps all others waiting: it hands the piece over and returns. It
  // may submit and cancel. The last piece of each answer has its finish. One that throws because it has no
  // memory for the piece leaves it as it is, and is given it again.
  using Receive = std::function<void(Piece&&)>;

  // The same model anew, on the engine's thread, which it may keep for a while.
  using Reopen = std::function<Result<std::unique_ptr<Model>>()>;

  // The model is lost for good, with why; once, on the engine's thread, when everybody has been told.
  using Gone = std::function<void(const Error&)>;

  // With `reopen`, a model that is lost is opened again, with growing pauses as long as that fails; what was
  // not finished is lost, and nothing is let in meanwhile. Without it nothing is let in ever after.
  Engine(std::unique_ptr<Model> model, const BatchSettings& settings, Batch::TokenBytes token_bytes,
         Reopen reopen = nullptr, Gone gone = nullptr);
  // What is not finished is cancelled, and its receivers are told so. A model that computes elsewhere and
  // does not come back from its step is abandoned.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Limits limits() const;

  // Refused are requests that can never be answered (invalid), too many of them, of all or of one key, and
  // all while it drains or its model is away or gone (failed). The first piece may come before this returns.
  // Where there is no memory for it that is thrown, and nothing has happened.
  Result<RequestId> submit(Request request, Receive receive);
  // Nobody wants it any more; its blocks are free before the next step. Waits for the little memory it takes.
  void cancel(RequestId id);
  // Takes no more requests, and returns when all are finished. Not for receivers.
  void drain();

  EngineCounts counts(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) const;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace tutti::serve
