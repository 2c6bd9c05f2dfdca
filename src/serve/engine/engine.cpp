#include "serve/engine/engine.hpp"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/portions.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve {
namespace {

// How soon a model that is lost is missed while nobody asks.
constexpr auto idle_time_max = std::chrono::seconds(1);
// That a step has to come back in when the engine stops.
constexpr auto last_step_time_max = std::chrono::seconds(1);
constexpr std::chrono::milliseconds pause_min{1'000};
constexpr std::chrono::milliseconds pause_max{60'000};
// A model that has lived so long is opened again at once.
constexpr auto good_life = std::chrono::minutes(1);

}  // namespace

BatchSettings salted(BatchSettings settings) {
  while (settings.salt == 0)
    TUTTI_CHECK(getrandom(&settings.salt, sizeof settings.salt, 0) == sizeof settings.salt);
  return settings;
}

struct Engine::Shared {
  struct Submitted {
    RequestId id;
    Request request;
    Receive receive;
  };
  struct Receiver {
    Receive receive;
    std::int32_t answers_left = 0;
    std::string key;
  };

  Shared(std::unique_ptr<Model> from, const BatchSettings& chosen, Batch::TokenBytes token_bytes,
         Reopen again, Gone told)
      : model(std::move(from)),
        reopen(std::move(again)),
        when_gone(std::move(told)),
        settings(salted(chosen)),
        batch(model->limits(), settings, std::move(token_bytes)),
        limits(model->limits()),
        unfinished(settings.requests_max) {
    counts.batch = batch.counts();
  }

  void run();
  bool take_orders();
  void let_in(std::list<Submitted> requests);
  void refuse(RequestId id, std::int32_t answers);
  void cancel(RequestId id);
  void lose();
  void lose_what_ran();
  void recover();
  void end_for_good();
  bool open_again();
  void exchange(std::unique_ptr<Model> next);
  void compute();
  void compute_ahead(const Plan* plan);
  Result<> begin(const Plan& plan);
  Result<std::vector<Chosen>> answer();
  bool has_orders();
  void finish_step(Result<std::vector<Chosen>> chosen);
  void tell(std::vector<Piece> pieces);
  void deliver(std::vector<Piece> pieces);
  void deliver(Piece piece);
  void publish();

  // The thread's own.
  std::unique_ptr<Model> model;  // none while it is away
  const Reopen reopen;
  const Gone when_gone;
  const BatchSettings settings;
  Batch batch;
  std::map<RequestId, Receiver> receivers;
  std::int64_t model_failures = 0;
  std::int64_t model_losses = 0;
  bool failing = false;
  std::chrono::steady_clock::time_point step_failed_at;  // the last one
  bool is_away = false;
  bool is_gone = false;
  std::string loss;  // what the step said that noticed it
  std::chrono::steady_clock::time_point opened = std::chrono::steady_clock::now();
  std::chrono::milliseconds pause{0};   // before it is opened again
  int asked = 0;                        // of a model that works ahead, and not answered
  std::map<RequestId, Receiver> ended;  // since the counts were published

  std::mutex model_mutex;  // of the model, while it is exchanged or abandoned

  std::mutex mutex;  // of all below
  Limits limits;
  std::condition_variable ordered;
  std::condition_variable emptied;
  std::list<Submitted> submitted;
  std::list<RequestId> cancelled;
  std::uint64_t last_id = 0;
  Portions unfinished;     // requests, by key
  std::size_t untold = 0;  // that are finished, and their receivers may not know
  bool draining = false;
  bool stopping = false;
  bool stopped = false;
  std::condition_variable has_stopped;
  EngineCounts counts;
  std::chrono::steady_clock::time_point failed_at;  // if they say that it fails

  std::thread thread;  // last: it uses the rest
};

Engine::Engine(std::unique_ptr<Model> model, const BatchSettings& settings, Batch::TokenBytes token_bytes,
               Reopen reopen, Gone gone)
    : shared_(std::make_unique<Shared>(std::move(model), settings, std::move(token_bytes), std::move(reopen),
                                       std::move(gone))) {
  shared_->thread = std::thread([shared = shared_.get()] {
    shared->run();
    const std::scoped_lock lock(shared->mutex);
    shared->stopped = true;
    shared->has_stopped.notify_all();
  });
}

Engine::~Engine() {
  bool is_over = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->draining = true;
    shared_->stopping = true;
    shared_->ordered.notify_one();
    is_over = shared_->has_stopped.wait_for(lock, last_step_time_max, [&] { return shared_->stopped; });
  }
  if (!is_over) {
    const std::scoped_lock lock(shared_->model_mutex);
    if (shared_->model) shared_->model->abandon();
  }
  shared_->thread.join();
}

Limits Engine::limits() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->limits;
}

Result<RequestId> Engine::submit(Request request, Receive receive) {
  const Limits known = limits();
  if (auto checked = check(request, known); !checked) return std::move(checked).error();
  const std::string key = request.key;
  std::list<Shared::Submitted> made;  // before it takes a place: there may be no memory for it
  made.push_back({{}, std::move(request), std::move(receive)});
  const std::scoped_lock lock(shared_->mutex);
  if (shared_->counts.gone) return failed("the model is lost").remedy("start the engine again");
  if (shared_->counts.away || shared_->limits.blocks != known.blocks)
    return failed("the model is being started again").remedy("ask again in a while");
  if (shared_->draining) return failed("this engine is about to stop").remedy("ask another one");
  if (Portions& unfinished = shared_->unfinished; !unfinished.take(key)) {
    return failed(std::to_string(unfinished.all()) + " requests wait already, " +
                  std::to_string(unfinished.of(key)) + " of them from your address")
        .remedy("ask again in a while, or start another engine");
  }
  const RequestId id(++shared_->last_id);
  made.front().id = id;
  shared_->submitted.splice(shared_->submitted.end(), made);
  shared_->ordered.notify_one();
  return id;
}

void Engine::cancel(RequestId id) {
  // Whoever has left cannot be asked to leave again: what he had would be computed to its end.
  auto order = patiently([&] { return std::list<RequestId>{id}; });
  const std::scoped_lock lock(shared_->mutex);
  shared_->cancelled.splice(shared_->cancelled.end(), order);
  shared_->ordered.notify_one();
}

void Engine::drain() {
  std::unique_lock lock(shared_->mutex);
  shared_->draining = true;
  shared_->counts.draining = true;
  shared_->emptied.wait(lock, [&] { return shared_->unfinished.all() == 0 && shared_->untold == 0; });
}

EngineCounts Engine::counts(std::chrono::steady_clock::time_point now) const {
  const std::scoped_lock lock(shared_->mutex);
  EngineCounts counts = shared_->counts;
  counts.failing = counts.failing && now - shared_->failed_at < failing_time;
  return counts;
}

void Engine::Shared::run() {
  while (take_orders()) {
    compute();
    if (!model->is_lost()) continue;
    if (!reopen) return end_for_good();
    recover();
    if (!model) return;  // the engine stops
  }
}

// What was submitted and cancelled since the last step. False when the engine stops.
bool Engine::Shared::take_orders() {
  std::list<Submitted> requests;
  std::list<RequestId> cancels;
  bool stops = false;
  {
    std::unique_lock lock(mutex);
    const auto is_wanted = [&] {
      return !submitted.empty() || !cancelled.empty() || stopping || !batch.empty();
    };
    ordered.wait_for(lock, idle_time_max, is_wanted);
    requests.swap(submitted);
    cancels.swap(cancelled);
    stops = stopping;
  }
  let_in(std::move(requests));
  for (const RequestId id : cancels) cancel(id);
  while (stops && !receivers.empty()) cancel(receivers.begin()->first);
  publish();
  return !stops;
}

void Engine::Shared::let_in(std::list<Submitted> requests) {
  for (Submitted& entry : requests) {
    const std::int32_t answers = entry.request.answers;
    Receiver& receiver = *patiently([&] {
      const auto made = receivers.try_emplace(entry.id).first;
      made->second.key = entry.request.key;
      return &made->second;
    });
    receiver.receive = std::move(entry.receive);
    receiver.answers_left = answers;
    try {
      const auto taken = batch.submit(entry.id, std::move(entry.request));
      TUTTI_CHECK(taken.ok(), "what was let in fits");
    } catch (const std::bad_alloc&) {
      batch.knows(entry.id) ? lose_what_ran() : refuse(entry.id, answers);
    }
  }
}

void Engine::Shared::refuse(RequestId id, std::int32_t answers) {
  for (std::int32_t answer = 0; answer < answers; ++answer) {
    deliver(patiently([&] {
      return Piece{.request = id, .answer = answer, .finish = Finish::lost, .problem = no_memory().text()};
    }));
  }
}

void Engine::Shared::cancel(RequestId id) {
  while (batch.knows(id)) {
    try {
      deliver(batch.cancel(id));
    } catch (const std::bad_alloc&) {
      lose_what_ran();
    }
  }
}

// There was no memory to plan a step, or for what came of it. Those who wait go on.
void Engine::Shared::lose_what_ran() {
  ++model_failures;
  failing = true;
  step_failed_at = std::chrono::steady_clock::now();
  while (asked > 0) static_cast<void>(answer());  // of what nobody waits for any more
  tell(patiently([&] { return batch.recover(no_memory().text()); }));
}

// Nothing can be computed any more, and everybody who waits is told.
void Engine::Shared::lose() {
  ++model_losses;
  publish();  // from now on nothing is let in
  std::list<Submitted> late;
  {
    const std::scoped_lock lock(mutex);
    late.swap(submitted);
  }
  let_in(std::move(late));
  asked = 0;
  auto pieces = patiently([&] {
    if (loss.empty()) loss = model->why_lost();
    return batch.lose(loss);
  });
  deliver(std::move(pieces));
  publish();
}

// Nobody opens it again: what is left is to stop.
void Engine::Shared::end_for_good() {
  is_gone = true;
  lose();
  std::unique_lock lock(mutex);
  if (!stopping && when_gone) {  // who stops it has abandoned it
    lock.unlock();
    patiently([&] { when_gone(failed(loss)); });
    lock.lock();
  }
  ordered.wait(lock, [&] { return stopping; });
}

void Engine::Shared::exchange(std::unique_ptr<Model> next) {
  const std::scoped_lock lock(model_mutex);
  model = std::move(next);
}

// Until there is a model again, or none any more because the engine stops.
void Engine::Shared::recover() {
  is_away = true;
  lose();
  loss.clear();
  exchange(nullptr);  // what it holds is free for the next one
  // Who dies young is not believed in the next time either.
  if (std::chrono::steady_clock::now() - opened > good_life) pause = {};
  for (;;) {
    {
      std::unique_lock lock(mutex);
      if (ordered.wait_for(lock, pause, [&] { return stopping; })) return;
    }
    pause = std::clamp(pause * 2, pause_min, pause_max);
    if (open_again()) break;
  }
  publish();
}

bool Engine::Shared::open_again() {
  auto next = within_memory([&] { return reopen(); });
  // A model of other sizes is not the one that this engine has told everybody about.
  if (!next || (*next)->limits().vocabulary != limits.vocabulary ||
      (*next)->limits().context != limits.context ||
      (*next)->limits().step_tokens_max != limits.step_tokens_max ||
      (*next)->limits().step_rows_max != limits.step_rows_max)
    return false;
  const auto renewed = within_memory([&]() -> Result<> {
    batch.renew((*next)->limits());
    return {};
  });
  if (!renewed) return false;
  exchange(std::move(*next));
  opened = std::chrono::steady_clock::now();
  failing = false;
  is_away = false;
  const std::scoped_lock lock(mutex);
  limits = model->limits();
  return true;
}

void Engine::Shared::compute() {
  try {
    const Plan& plan = batch.plan();
    if (plan.empty()) {
      if (auto pieces = batch.told(); !pieces.empty()) tell(std::move(pieces));
      return;
    }
    if (model->works_ahead()) return compute_ahead(&plan);
    finish_step(within_memory([&]() -> Result<std::vector<Chosen>> {
      if (auto computed = model->step(plan.chunks); !computed) return std::move(computed).error();
      return model->choose(plan.choices);
    }));
  } catch (const std::bad_alloc&) {
    lose_what_ran();
  }
}

// A step, and while it is computed the next one is planned and given to a model that works ahead, as long as
// nobody has come or gone.
void Engine::Shared::compute_ahead(const Plan* plan) {
  auto begun = begin(*plan);
  while (plan != nullptr) {
    const Plan* next = begun && !has_orders() ? batch.plan_ahead() : nullptr;
    auto next_begun = next != nullptr ? begin(*next) : Result<>();
    auto chosen = begun ? answer() : Result<std::vector<Chosen>>(std::move(begun).error());
    const bool is_lost = !chosen && next != nullptr;
    if (is_lost && next_begun) static_cast<void>(answer());  // of what nobody waits for any more
    finish_step(std::move(chosen));
    plan = is_lost ? nullptr : next;
    begun = std::move(next_begun);
  }
}

Result<> Engine::Shared::begin(const Plan& plan) {
  return within_memory([&]() -> Result<> {
    if (auto given = model->step(plan.chunks); !given) return given;
    auto told = model->ask(plan.choices);
    if (told) ++asked;
    return told;
  });
}

Result<std::vector<Chosen>> Engine::Shared::answer() {
  --asked;
  return within_memory([&] { return model->answer(); });
}

bool Engine::Shared::has_orders() {
  const std::scoped_lock lock(mutex);
  return !submitted.empty() || !cancelled.empty() || stopping;
}

void Engine::Shared::finish_step(Result<std::vector<Chosen>> chosen) {
  failing = !chosen;
  if (failing) {
    ++model_failures;
    step_failed_at = std::chrono::steady_clock::now();
  }
  if (failing && model->is_lost()) {  // all of it is, not only what ran
    loss = chosen.error().text();
    return;
  }
  // For want of memory it may be answered when it is asked again.
  tell(chosen ? batch.take(*chosen)
              : batch.fail(chosen.error().text(),
                           chosen.error() == no_memory() ? Finish::lost : Finish::failed));
}

void Engine::Shared::tell(std::vector<Piece> pieces) {
  publish();  // first, so that whoever has a piece finds it counted
  deliver(std::move(pieces));
  publish();
}

void Engine::Shared::deliver(std::vector<Piece> pieces) {
  for (Piece& piece : pieces) deliver(std::move(piece));
}

void Engine::Shared::deliver(Piece piece) {
  const auto receiver = receivers.find(piece.request);
  TUTTI_CHECK(receiver != receivers.end());
  const bool is_last = piece.finish && --receiver->second.answers_left == 0;
  if (is_last) {  // first: whoever hears of it and comes with the next one finds its place
    const std::scoped_lock lock(mutex);
    unfinished.give_back(receiver->second.key);
    ++untold;
  }
  patiently([&] { receiver->second.receive(std::move(piece)); });
  if (is_last) ended.insert(receivers.extract(receiver));
}

void Engine::Shared::publish() {
  const BatchCounts now = batch.counts();
  std::map<RequestId, Receiver> over;  // their receivers are let go without the lock
  over.swap(ended);
  const std::scoped_lock lock(mutex);
  counts = {now, model_failures, model_losses, failing, is_away, is_gone, draining};
  failed_at = step_failed_at;
  untold -= over.size();
  if (unfinished.all() == 0 && untold == 0) emptied.notify_all();
}

}  // namespace tutti::serve
