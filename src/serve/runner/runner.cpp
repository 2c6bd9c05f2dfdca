#include "serve/runner/runner.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "base/portions.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve {
namespace {

Instant steady_now() { return Instant(Duration(SteadyClock::now().time_since_epoch())); }

struct Waiting {
  std::vector<Tensor> inputs;
  std::int64_t rows = 1;
  Runner::Receive receive;
  std::string who;
};
using Batch = std::map<RunId, Waiting>;

}  // namespace

struct Runner::Shared {
  Shared(std::unique_ptr<Program> from, const RunnerSettings& chosen)
      : program(std::move(from)), settings(chosen), gather(chosen.gather), unfinished(chosen.requests_max) {}

  void work(int lane);
  void end_lanes();
  Batch next();
  std::optional<std::vector<RunId>> take();
  void compute(int lane, Batch& batch);
  Result<std::vector<Tensor>> compute_alone(int lane, const Waiting& request) const;
  Result<std::vector<std::vector<Tensor>>> compute_joined(int lane, const Batch& batch) const;
  void finish(Waiting& request, Result<std::vector<Tensor>> answer);

  const std::unique_ptr<Program> program;
  const RunnerSettings settings;

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  Gather gather;
  Batch waiting;        // all that gather has
  Portions unfinished;  // requests, by who asks
  std::uint64_t last_id = 0;
  bool stopping = false;
  RunnerCounts counts;

  std::vector<std::thread> lanes;  // last: they use the rest
};

Runner::Runner(std::unique_ptr<Program> program, const RunnerSettings& settings)
    : shared_(std::make_unique<Shared>(std::move(program), settings)) {
  try {
    for (int lane = 0; lane < shared_->program->lanes(); ++lane)
      shared_->lanes.emplace_back([shared = shared_.get(), lane] { shared->work(lane); });
  } catch (...) {
    shared_->end_lanes();  // those that could be started
    throw;
  }
}

Runner::~Runner() {
  shared_->end_lanes();
  for (auto& [id, request] : shared_->waiting) {
    patiently([&receive = request.receive] {
      receive(unknown("this engine is about to stop").remedy("ask another one"));
    });
  }
}

void Runner::Shared::end_lanes() {
  {
    const std::scoped_lock lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  program->stop();
  for (std::thread& lane : lanes) lane.join();
}

const Program& Runner::program() const { return *shared_->program; }

Result<RunId> Runner::submit(std::vector<Tensor> inputs, Receive receive, const std::string& who) {
  const std::int64_t rows_max = shared_->settings.gather.rows_max;
  std::string kind;
  std::int64_t rows = 1;
  if (rows_max > 1) {
    const auto counted = rows_of(inputs);
    if (!counted) return counted.error();
    rows = *counted;
    if (rows > rows_max)
      return invalid("there are " + std::to_string(rows) + " rows in it, and at most " +
                     std::to_string(rows_max) + " are computed at once")
          .remedy("send it in parts, or start the engine with a larger --max-batch");
    kind = kind_of(inputs);
  }
  Batch made;  // before it takes a place: there may be no memory for it
  made.emplace(RunId(), Waiting{std::move(inputs), rows, std::move(receive), who});
  auto entry = made.extract(made.begin());
  const std::scoped_lock lock(shared_->mutex);
  if (!shared_->unfinished.take(who))
    return failed(std::to_string(shared_->unfinished.all()) + " requests wait already, " +
                  std::to_string(shared_->unfinished.of(who)) + " of them from your address")
        .remedy("ask again in a while, or start another engine");
  const RunId id(++shared_->last_id);
  try {
    shared_->gather.put(id, kind, rows, steady_now(), who);
  } catch (const std::bad_alloc&) {
    shared_->unfinished.give_back(who);
    throw;
  }
  entry.key() = id;
  shared_->waiting.insert(std::move(entry));
  // Also for the first of its kind: somebody has to wait for its time.
  shared_->changed.notify_one();
  return id;
}

void Runner::cancel(RunId id) {
  const std::scoped_lock lock(shared_->mutex);
  if (!shared_->gather.drop(id)) return;
  const auto dropped = shared_->waiting.extract(id);
  shared_->unfinished.give_back(dropped.mapped().who);
}

RunnerCounts Runner::counts() const {
  ProgramState state = shared_->program->state();
  const std::scoped_lock lock(shared_->mutex);
  RunnerCounts counts = shared_->counts;
  counts.waiting = static_cast<std::int64_t>(shared_->waiting.size());
  counts.program = std::move(state);
  return counts;
}

void Runner::Shared::work(int lane) {
  for (;;) {
    Batch batch = next();
    if (batch.empty()) return;
    compute(lane, batch);
  }
}

// With the lock. Nothing where there is no memory even for the list of them.
std::optional<std::vector<RunId>> Runner::Shared::take() {
  try {
    return gather.take(steady_now());
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

// Waits for it; empty when the runner stops.
Batch Runner::Shared::next() {
  Batch batch;
  std::unique_lock lock(mutex);
  while (!stopping) {
    const auto ids = take();
    if (!ids) {
      changed.wait_for(lock, memory_pause);
      continue;
    }
    for (const RunId id : *ids) {
      const auto found = waiting.find(id);
      TUTTI_CHECK(found != waiting.end());
      batch.insert(waiting.extract(found));
    }
    if (!batch.empty()) {
      counts.running += static_cast<std::int64_t>(batch.size());
      // What is left may be due, and nobody else may know.
      if (gather.waiting() > 0) changed.notify_one();
      break;
    }
    if (const auto due = gather.due()) {
      changed.wait_until(lock, SteadyClock::time_point(due->time_since_epoch()));
    } else {
      changed.wait(lock);
    }
  }
  return batch;
}

Result<std::vector<Tensor>> Runner::Shared::compute_alone(int lane, const Waiting& request) const {
  return within_memory([&]() -> Result<std::vector<Tensor>> {
    auto outputs = program->run(lane, request.inputs);
    if (!outputs || settings.gather.rows_max <= 1) return outputs;
    // Alone or together: what it answers does not depend on who else asks.
    if (auto fits = check_rows(*outputs, request.rows); !fits) return std::move(fits).error();
    return outputs;
  });
}

Result<std::vector<std::vector<Tensor>>> Runner::Shared::compute_joined(int lane, const Batch& batch) const {
  std::vector<const std::vector<Tensor>*> requests;
  std::vector<std::int64_t> rows;
  for (const auto& [id, request] : batch) {
    requests.push_back(&request.inputs);
    rows.push_back(request.rows);
  }
  auto outputs = program->run(lane, join_rows(requests));
  if (!outputs) return std::move(outputs).error();
  return split_rows(*outputs, rows);
}

void Runner::Shared::compute(int lane, Batch& batch) {
  std::int64_t rows = 0;
  for (const auto& [id, request] : batch) rows += request.rows;
  {
    const std::scoped_lock lock(mutex);
    ++counts.batches;
    counts.rows += rows;
  }
  if (batch.size() == 1) return finish(batch.begin()->second, compute_alone(lane, batch.begin()->second));
  auto answers = within_memory([&] { return compute_joined(lane, batch); });
  std::size_t nth = 0;
  for (auto& [id, request] : batch) {
    if (answers) {
      finish(request, std::move((*answers)[nth++]));
    } else if (answers.error().code() == ErrorCode::unknown) {
      // The worker has died of one of them, and nobody knows of which.
      finish(request, within_memory([&]() -> Result<std::vector<Tensor>> { return answers.error(); }));
    } else {
      {
        const std::scoped_lock lock(mutex);
        ++counts.again_alone;
      }
      finish(request, compute_alone(lane, request));
    }
  }
}

void Runner::Shared::finish(Waiting& request, Result<std::vector<Tensor>> answer) {
  {
    const std::scoped_lock lock(mutex);
    --counts.running;
    ++counts.finished;
    if (!answer) ++counts.failed;
    unfinished.give_back(request.who);
  }
  try {
    request.receive(std::move(answer));
  } catch (const std::bad_alloc&) {
    patiently([&] { request.receive(no_memory()); });
  }
}

}  // namespace tutti::serve
