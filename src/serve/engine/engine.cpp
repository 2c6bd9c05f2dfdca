#include "serve/engine/engine.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace tutti::serve {

struct Engine::Shared {
  struct Submitted {
    RequestId id;
    Request request;
    Receive receive;
  };
  struct Receiver {
    Receive receive;
    std::int32_t answers_left = 0;
  };

  Shared(std::unique_ptr<Model> from, const BatchSettings& chosen, Batch::TokenBytes token_bytes)
      : model(std::move(from)),
        limits(model->limits()),
        settings(chosen),
        batch(limits, settings, std::move(token_bytes)) {
    counts.batch = batch.counts();
  }

  void run();
  bool take_orders();
  void compute();
  Result<> begin(const Plan& plan);
  bool has_orders();
  void finish_step(Result<std::vector<Chosen>> chosen);
  void deliver(std::vector<Piece> pieces);
  void publish();

  // The thread's own.
  std::unique_ptr<Model> model;
  const Limits limits;
  const BatchSettings settings;
  Batch batch;
  std::map<RequestId, Receiver> receivers;
  std::int64_t model_failures = 0;
  bool failing = false;
  std::size_t ended = 0;  // requests, since the counts were published

  std::mutex mutex;  // of all below
  std::condition_variable ordered;
  std::condition_variable emptied;
  std::vector<Submitted> submitted;
  std::vector<RequestId> cancelled;
  std::uint64_t last_id = 0;
  std::size_t unfinished = 0;  // requests
  bool draining = false;
  bool stopping = false;
  EngineCounts counts;

  std::thread thread;  // last: it uses the rest
};

Engine::Engine(std::unique_ptr<Model> model, const BatchSettings& settings, Batch::TokenBytes token_bytes)
    : shared_(std::make_unique<Shared>(std::move(model), settings, std::move(token_bytes))) {
  shared_->thread = std::thread([shared = shared_.get()] { shared->run(); });
}

Engine::~Engine() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->draining = true;
    shared_->stopping = true;
  }
  shared_->ordered.notify_one();
  shared_->thread.join();
}

const Limits& Engine::limits() const { return shared_->limits; }

Result<RequestId> Engine::submit(Request request, Receive receive) {
  if (auto checked = check(request, shared_->limits); !checked) return std::move(checked).error();
  const std::scoped_lock lock(shared_->mutex);
  if (shared_->draining) return failed("this engine is about to stop").remedy("ask another one");
  if (shared_->unfinished >= shared_->settings.requests_max) {
    return failed(std::to_string(shared_->unfinished) + " requests wait already")
        .remedy("ask again in a while, or start another engine");
  }
  ++shared_->unfinished;
  const RequestId id(++shared_->last_id);
  shared_->submitted.push_back({id, std::move(request), std::move(receive)});
  shared_->ordered.notify_one();
  return id;
}

void Engine::cancel(RequestId id) {
  const std::scoped_lock lock(shared_->mutex);
  shared_->cancelled.push_back(id);
  shared_->ordered.notify_one();
}

void Engine::drain() {
  std::unique_lock lock(shared_->mutex);
  shared_->draining = true;
  shared_->counts.draining = true;
  shared_->emptied.wait(lock, [&] { return shared_->unfinished == 0; });
}

EngineCounts Engine::counts() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->counts;
}

void Engine::Shared::run() {
  while (take_orders()) compute();
}

// What was submitted and cancelled since the last step. False when the engine stops.
bool Engine::Shared::take_orders() {
  std::vector<Submitted> requests;
  std::vector<RequestId> cancels;
  bool stops = false;
  {
    std::unique_lock lock(mutex);
    ordered.wait(lock,
                 [&] { return !submitted.empty() || !cancelled.empty() || stopping || !batch.empty(); });
    requests.swap(submitted);
    cancels.swap(cancelled);
    stops = stopping;
  }
  for (Submitted& entry : requests) {
    receivers[entry.id] = {std::move(entry.receive), entry.request.answers};
    const auto taken = batch.submit(entry.id, std::move(entry.request));
    TUTTI_CHECK(taken.ok(), "what was let in fits");
  }
  for (const RequestId id : cancels) deliver(batch.cancel(id));
  if (stops) {
    while (!receivers.empty()) deliver(batch.cancel(receivers.begin()->first));
  }
  publish();
  return !stops;
}

// A step, and while it is computed the next one is planned and given to a model that works ahead, as long as
// nobody has come or gone.
void Engine::Shared::compute() {
  const Plan* plan = &batch.plan();
  if (plan->empty()) return;
  if (!model->works_ahead()) {
    auto computed = model->step(plan->chunks);
    finish_step(computed ? model->choose(plan->choices)
                         : Result<std::vector<Chosen>>(std::move(computed).error()));
    return;
  }
  auto begun = begin(*plan);
  while (plan != nullptr) {
    const Plan* next = begun && !has_orders() ? batch.plan_ahead() : nullptr;
    auto next_begun = next != nullptr ? begin(*next) : Result<>();
    auto chosen = begun ? model->answer() : Result<std::vector<Chosen>>(std::move(begun).error());
    const bool is_lost = !chosen && next != nullptr;
    if (is_lost && next_begun) static_cast<void>(model->answer());  // of what nobody waits for any more
    finish_step(std::move(chosen));
    plan = is_lost ? nullptr : next;
    begun = std::move(next_begun);
  }
}

Result<> Engine::Shared::begin(const Plan& plan) {
  if (auto given = model->step(plan.chunks); !given) return given;
  return model->ask(plan.choices);
}

bool Engine::Shared::has_orders() {
  const std::scoped_lock lock(mutex);
  return !submitted.empty() || !cancelled.empty() || stopping;
}

void Engine::Shared::finish_step(Result<std::vector<Chosen>> chosen) {
  failing = !chosen;
  if (failing) ++model_failures;
  auto pieces = chosen ? batch.take(*chosen) : batch.fail(chosen.error().text());
  publish();  // first, so that whoever has a piece finds it counted
  deliver(std::move(pieces));
  publish();
}

void Engine::Shared::deliver(std::vector<Piece> pieces) {
  for (Piece& piece : pieces) {
    const auto receiver = receivers.find(piece.request);
    TUTTI_CHECK(receiver != receivers.end());
    const bool is_last = piece.finish && --receiver->second.answers_left == 0;
    receiver->second.receive(std::move(piece));
    if (!is_last) continue;
    receivers.erase(receiver);
    ++ended;
  }
}

void Engine::Shared::publish() {
  const BatchCounts now = batch.counts();
  const std::scoped_lock lock(mutex);
  counts = {now, model_failures, failing, draining};
  unfinished -= std::exchange(ended, 0);
  if (unfinished == 0) emptied.notify_all();
}

}  // namespace tutti::serve
