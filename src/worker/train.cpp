#include "worker/train.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "comm/communicator.hpp"
#include "learn/train/capability.hpp"
#include "learn/train/leave.hpp"
#include "learn/train/trainer.hpp"

namespace tutti::worker {
namespace {

// A death is noticed at once, by its closed connection; this is for a rank that is there and does not come.
constexpr Duration operation_deadline = std::chrono::minutes(5);

std::atomic<bool> stop_asked{false};

void ask_to_stop(int) { stop_asked = true; }

std::int64_t number_from(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return otherwise;
  std::int64_t value = otherwise;
  const std::string_view view(text);
  std::from_chars(view.data(), view.data() + view.size(), value);
  return value;
}

// The whole word, and nothing else.
template <class Number>
Result<Number> parse(const char* name, std::string_view word, Number smallest, Number largest) {
  Number value{};
  const char* const end = word.data() + word.size();
  const auto parsed = std::from_chars(word.data(), end, value);
  const bool inside = value >= smallest && value <= largest;  // a NaN is not
  if (parsed.ec == std::errc() && parsed.ptr == end && inside) return value;
  return invalid("'" + std::string(word.substr(0, 64)) + "' cannot be " + name).within("command line");
}

std::string text_from(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// The ranks of a host share its cores. OpenBLAS, where libtorch has it, counts its own threads.
void share_cores(std::int64_t ranks_of_node) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  const auto threads =
      static_cast<int>(std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, ranks_of_node)));
  at::set_num_threads(threads);
  using SetThreads = void (*)(int);
  if (auto* const set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
}

// Activations come and go with each step: the memory stays with the process instead of being zeroed by the
// kernel each time.
void keep_memory() {
  constexpr int never = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, never);
  mallopt(M_TRIM_THRESHOLD, never);
  mallopt(M_TOP_PAD, 64 << 20);
}

int gpu_of_rank(std::int64_t local_rank) {
  const int count = at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().getNumGPUs()) : 0;
  return count == 0 ? -1 : static_cast<int>(local_rank % count);
}

// As the end of train() below would.
void leave_soon(train::Ending ending) {
  constexpr int stopped = 128 + SIGTERM;
  train::leave_after(
      train::exit_deadline, ending == train::Ending::stopped ? stopped : 0,
      "all of it is saved, and the run's folder could not be given back: its disk does not answer");
}

}  // namespace

Result<int> train(std::span<const std::string> words) {
  if (words.empty() || words.size() > 3)
    return invalid("train takes RUN, how much memory a rank has, and what to train");
  const auto memory = parse<std::int64_t>("BYTES", words.size() > 1 ? words[1] : "0", 0,
                                          std::numeric_limits<std::int64_t>::max());
  if (!memory) return memory.error();
  auto options = comm::Options::from_environment();
  if (!options) return std::move(options).error();
  const std::int64_t ranks_of_node = number_from("LOCAL_WORLD_SIZE", options->size);
  share_cores(ranks_of_node);

  train::RunOptions run{
      .folder = words[0],
      .fence = {number_from("TUTTI_ATTEMPT", 0), number_from("TUTTI_JOB", 0), text_from("TUTTI_CLUSTER")},
      .submission = words.size() > 2 ? words[2] : "",
      .device = gpu_of_rank(number_from("LOCAL_RANK", 0)),
      .memory = *memory,
      .progress_file = text_from("TUTTI_PROGRESS_FILE"),
      .saved_folder = text_from("TUTTI_CHECKPOINT_DIR"),
      .failing = [](const Error& error) { train::leave_after(train::exit_deadline, error); },
      .leaving = leave_soon};
  if (auto fine = train::check_device(run.device); !fine) return std::move(fine).error();
  if (run.device < 0) keep_memory();
  options->device_memory = run.device >= 0;
  options->deadline = operation_deadline;
  auto world = comm::Communicator::connect(*options);
  if (!world) return std::move(world).error();
  // Until all have met there is nothing to save, and who waits for one that never comes just ends.
  std::signal(SIGTERM, ask_to_stop);
  auto ending = train::train(run, std::move(*world), [] { return stop_asked.load(); });
  if (!ending) return std::move(ending).error();
  if (*ending == train::Ending::stopped) {
    std::signal(SIGTERM, SIG_DFL);
    std::raise(SIGTERM);
  }
  return 0;
}

}  // namespace tutti::worker
