#include "learn/train/saver.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/clock/clock.hpp"
#include "comm/reduce.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/write.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/math.hpp"
#include "learn/train/meeting.hpp"

namespace tutti::train {
namespace {

std::int64_t count_of(const std::vector<Parameters::Saved>& saved) {
  std::int64_t count = 0;
  for (const auto& one : saved) count += one.values.numel();
  return count;
}

// A piece of memory to copy, small enough that the threads share the work evenly.
struct Part {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};
constexpr std::size_t part_bytes_max = std::size_t{4} << 20;

void add_parts(const at::Tensor& to, const at::Tensor& from, std::vector<Part>& parts) {
  auto* const target = static_cast<std::byte*>(to.data_ptr());
  const auto* const source = static_cast<const std::byte*>(from.data_ptr());
  for (std::size_t begin = 0; begin < from.nbytes(); begin += part_bytes_max) {
    parts.push_back({target + begin, source + begin, std::min(part_bytes_max, from.nbytes() - begin)});
  }
}

// A rank's problem as the text that it hands to the others, in place of a record, which begins with '{'.
constexpr char hopeless = '!';
constexpr char for_now = '?';

std::string told(const Error& error) {
  return (error.code() == ErrorCode::invalid ? hopeless : for_now) + error.text();
}
bool is_problem(const std::string& text) {
  return !text.empty() && (text.front() == hopeless || text.front() == for_now);
}
Error problem_of(const std::string& text, std::int64_t step) {
  return Error(text.front() == hopeless ? ErrorCode::invalid : ErrorCode::unknown, text.substr(1))
      .within("checkpoint of step " + std::to_string(step));
}

}  // namespace

std::string stored_name(Kind kind, const std::string& tensor) {
  switch (kind) {
    case Kind::weight:
      return "model/" + tensor;
    case Kind::first_moment:
      return "adam.m/" + tensor;
    case Kind::second_moment:
      return "adam.v/" + tensor;
  }
  return tensor;
}

Saver::Saver(SaverOptions options, comm::Communicator& world)
    : options_(std::move(options)), communicator_(require(world.split(0, world.rank(), "checkpoints"))) {}

Saver::~Saver() {
  {
    const std::lock_guard lock(mutex_);
    if (loss_wanted_ && !loss_) loss_ = std::numeric_limits<double>::quiet_NaN();
  }
  changed_.notify_all();
  if (preparing_.joinable()) preparing_.join();
  if (running_.joinable()) running_.join();
}

void Saver::make_room(std::int64_t count, bool pinned) {
  staging_ = at::empty({count}, at::TensorOptions(at::kFloat).pinned_memory(pinned));
  std::memset(staging_.data_ptr(), 0, staging_.nbytes());
}

void Saver::prepare(Parameters& parameters) {
  preparing_ = std::thread(
      [this, count = count_of(parameters.saved()), pinned = parameters.keeping().device.is_cuda()] {
        // copy() makes the room that is not there, and what it throws is an error of the training.
        [[maybe_unused]] const auto made = caught([&] { make_room(count, pinned); });
      });
}

// Everything into one buffer of the host, which is kept for the next time.
void Saver::copy(Parameters& parameters) {
  if (preparing_.joinable()) preparing_.join();
  saved_ = parameters.saved();
  const bool on_gpu = parameters.keeping().device.is_cuda();
  const std::int64_t count = count_of(saved_);
  if (!staging_.defined() || staging_.numel() != count) make_room(count, on_gpu);
  std::int64_t at = 0;
  std::vector<Part> parts;
  for (auto& saved : saved_) {
    at::Tensor place = staging_.slice(0, at, at + saved.values.numel());
    if (on_gpu) {
      place.copy_(saved.values, true);
    } else {
      add_parts(place, saved.values, parts);
    }
    saved.values = place;
    at += place.numel();
  }
  math::finish(parameters.keeping().device);
  at::parallel_for(0, static_cast<std::int64_t>(parts.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Part& part = parts[static_cast<std::size_t>(i)];
      comm::copy_bytes(part.to, part.from, part.bytes, comm::Store::stream);
    }
  });
}

double Saver::begin(Parameters& parameters, const checkpoint::State& state) {
  const auto start = SteadyClock::now();
  if (auto done = finish(); !done) {
    const std::lock_guard lock(mutex_);
    problem_ = done.error();
  }
  copy(parameters);
  {
    const std::lock_guard lock(mutex_);
    loss_wanted_ = true;
    loss_.reset();
  }
  state_ = state;
  try_again();
  return seconds_since(start);
}

void Saver::try_again() {
  running_ = std::thread([this] { ended_ = save(state_); });
}

void Saver::provide_loss(double loss) {
  {
    const std::lock_guard lock(mutex_);
    loss_wanted_ = false;
    loss_ = loss;
  }
  changed_.notify_all();
}

bool Saver::waits_for_loss() {
  const std::lock_guard lock(mutex_);
  return loss_wanted_;
}

Result<> Saver::finish() {
  if (!running_.joinable()) return {};
  running_.join();
  return std::exchange(ended_, Result<>());
}

std::optional<Error> Saver::take_problem() {
  const std::lock_guard lock(mutex_);
  return std::exchange(problem_, std::nullopt);
}

std::int64_t Saver::committed_step() const {
  const std::lock_guard lock(mutex_);
  return committed_;
}

Result<double> Saver::wait_for_loss() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, meeting_deadline, [&] { return loss_.has_value(); })) {
    return failed("the next step's loss never came");
  }
  return *loss_;
}

Result<std::string> Saver::write_mine(const checkpoint::State& state) {
  auto part = checkpoint::begin(options_.folder, state.step, options_.fence);
  if (!part) return std::move(part).error();
  std::vector<checkpoint::Piece> pieces;
  for (const auto& saved : saved_) {
    const auto* const data = static_cast<const std::byte*>(saved.values.data_ptr());
    pieces.push_back({.tensor = stored_name(saved.kind, saved.tensor->name),
                      .shape = saved.tensor->shape,
                      .box = saved.box,
                      .bytes = {data, saved.values.nbytes()}});
  }
  auto record = checkpoint::write_file(*part, communicator_.rank(), pieces);
  if (!record) return std::move(record).error();
  return record->json();
}

Result<> Saver::commit(checkpoint::State state, const std::vector<std::string>& records) {
  std::vector<checkpoint::FileRecord> files;
  for (const std::string& text : records) {
    auto record = checkpoint::FileRecord::parse(text);
    if (!record) return std::move(record).error();
    files.push_back(std::move(*record));
  }
  auto loss = wait_for_loss();
  if (!loss) return std::move(loss).error();
  state.loss = *loss;
  if (auto done = checkpoint::commit(options_.folder, options_.fence, state, files); !done) return done;
  // The state is safe. An old one that stays costs room and nothing else, and the next save tries again.
  if (auto pruned = checkpoint::prune(options_.folder, static_cast<std::size_t>(options_.kept)); !pruned)
    std::fprintf(stderr, "an old checkpoint stays: %s\n", pruned.error().text().c_str());
  return {};
}

// The border of the thread: what is thrown beyond it would end the process.
Result<> Saver::save(const checkpoint::State& state) {
  auto done = caught([&] { return write_and_commit(state); });
  if (done) return std::move(*done);
  // The others would wait for this rank where they meet.
  Error error = std::move(done).error().within("checkpoint of step " + std::to_string(state.step));
  communicator_.abort(error.text());
  return error;
}

Result<> Saver::write_and_commit(const checkpoint::State& state) {
  auto mine = caught([&] { return require(write_mine(state)); });
  // A rank that could not write says so with a text that is no record, so that none waits for it.
  auto records = tell_all(communicator_, mine ? *mine : told(mine.error()));
  if (!records) return std::move(records).error();
  std::string problem;
  for (std::size_t rank = 0; rank < records->size(); ++rank) {
    const std::string& text = (*records)[rank];
    if (!is_problem(text) || (!problem.empty() && problem.front() == hopeless)) continue;
    problem = text.front() + ("rank " + std::to_string(rank) + ": ") + text.substr(1);
  }
  if (problem.empty() && communicator_.rank() == 0) {
    const auto done = caught([&] { require(commit(state, *records)); });
    if (!done) problem = told(done.error());
  }
  // Rank 0 tells how it ended.
  auto ends = tell_all(communicator_, problem);
  if (!ends) return std::move(ends).error();
  if (problem.empty()) problem = ends->front();
  if (!problem.empty() && communicator_.rank() == 0)
    checkpoint::abandon(options_.folder, state.step, options_.fence);
  if (!problem.empty()) return problem_of(problem, state.step);
  const std::lock_guard lock(mutex_);
  committed_ = state.step;
  return {};
}

}  // namespace tutti::train
