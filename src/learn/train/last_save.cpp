#include "learn/train/last_save.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "learn/train/failure.hpp"

namespace tutti::train {
namespace {

constexpr Duration look_every = std::chrono::milliseconds(100);

Duration now() { return std::chrono::steady_clock::now().time_since_epoch(); }

std::string rounded(Duration time) { return format_duration(std::chrono::ceil<std::chrono::seconds>(time)); }

double sum_of_all(Group& world, double mine) {
  at::Tensor sum = at::full({1}, mine, at::kDouble);
  world.all_reduce(sum);
  return sum.item<double>();
}

// The clock of rank 0 decides for all; one rank's word to stop is enough.
std::optional<Duration> agreed_pause(Group& world, Patience& patience, const LastSave& options) {
  const bool stopped = sum_of_all(world, options.stop() ? 1 : 0) > 0;
  const auto mine = options.rank == 0 ? patience.next_pause(now(), stopped) : std::nullopt;
  const double pause = sum_of_all(world, options.rank != 0 ? 0 : mine ? in_seconds(*mine) : -1);
  if (pause < 0) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(pause));
}

// Until then, or until this rank is asked to stop: whoever is back earlier meets the others where they save.
void wait(Duration pause, const LastSave& options, bool was_stopped) {
  const Duration until = now() + pause;
  for (Duration left = pause; left > Duration::zero(); left = until - now()) {
    options.check();
    if (!was_stopped && options.stop()) return;
    std::this_thread::sleep_for(std::min(left, look_every));
  }
}

}  // namespace

bool finish_last_save(Saver& saver, Group& world, const LastSave& options) {
  Patience patience(options.patience, now());
  for (bool again = false;; again = true) {
    const auto done = saver.finish();
    if (done) return again;
    // What another try would not change: a newer attempt has the folder, a rank is gone.
    if (done.error().code() != ErrorCode::unknown) throw Failure(done.error());
    const bool was_stopped = options.stop();
    const auto pause = agreed_pause(world, patience, options);
    const std::string missing = "the last " + done.error().text() + "; it is missing in " + options.folder;
    if (!pause) {
      throw Failure(Error(ErrorCode::unknown, missing)
                        .remedy("make room there, or put the folder back in its place: the run goes on from "
                                "the checkpoint before it"));
    }
    options.tell(missing + "; tried again in " + rounded(*pause) + ", for " +
                 rounded(std::max(patience.left(now()), *pause)));
    wait(*pause, options, was_stopped);
    saver.try_again();
  }
}

}  // namespace tutti::train
