#include "learn/train/ownership.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "learn/checkpoint/folder.hpp"

namespace tutti::train {
namespace {

constexpr auto look_every_max = std::chrono::milliseconds(250);

using Steady = std::chrono::steady_clock;

std::string new_token() {
  std::random_device random;
  constexpr int words = 4;
  std::string token;
  for (int i = 0; i < words; ++i) token += std::to_string(random()) + (i + 1 < words ? "-" : "");
  return token;
}

Error trained_by(const std::string& run, const checkpoint::Owner& owner) {
  const std::string since = owner.since_s > 0 ? " since " + owner.since_text() : "";
  return invalid(owner.text() + " trains in this folder" + since)
      .within(run)
      .remedy(
          "wait for it or cancel it, train elsewhere with --set run=ANOTHER, or take the folder with "
          "--take-over if it surely runs no more");
}

bool is_attempt_of_same_job(const checkpoint::Fence& a, const checkpoint::Fence& b) {
  return a.job != 0 && same_job(a, b);
}

// Whether the owner that is seen can be replaced, as far as a look or two can tell.
class Judge {
 public:
  Judge(const checkpoint::Fence& fence, const OwnershipOptions& options, Duration look_every)
      : fence_(fence), options_(options), watch_(look_every) {}

  enum class Verdict { gone, lives, newer, not_known };
  Verdict look(const checkpoint::SeenOwner& seen) {
    const bool newer = is_newer(seen.owner.fence, fence_);
    if (is_attempt_of_same_job(fence_, seen.owner.fence)) {
      if (!newer) return Verdict::gone;
      if (!checkpoint::passes_over(options_.over, seen.owner.fence)) return Verdict::newer;
    }
    // Who was submitted later knew of this one, and this one's restart knows nothing of him.
    if (options_.take_over && !newer) return Verdict::gone;
    const auto still = watch_.still_for(seen, Steady::now().time_since_epoch());
    if (!still) return Verdict::lives;
    return *still >= options_.dead_after ? Verdict::gone : Verdict::not_known;
  }

 private:
  const checkpoint::Fence& fence_;
  const OwnershipOptions& options_;
  checkpoint::OwnerWatch watch_;
};

std::optional<FolderId> folder_at(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return FolderId{status.st_dev, status.st_ino};
}

std::string checkpoints_of(const std::string& run) { return run + "/checkpoints"; }

// Takes the owner's file away, unless somebody newer has had the folder.
Result<> replace(const std::string& run, const checkpoint::Owner& owner, const checkpoint::Fence& fence,
                 const std::optional<checkpoint::Fence>& over) {
  if (auto allowed = checkpoint::check_claim(checkpoints_of(run), fence, over); !allowed) return allowed;
  if (auto removed = checkpoint::remove_owner(run, owner); !removed) return std::move(removed).error();
  return {};
}

// Nothing if somebody else was quicker.
Result<std::optional<files::FileDescriptor>> settle(const std::string& run, const checkpoint::Owner& me,
                                                    const std::optional<checkpoint::Fence>& over) {
  if (auto allowed = checkpoint::check_claim(checkpoints_of(run), me.fence, over); !allowed)
    return std::move(allowed).error();
  return checkpoint::become_owner(run, me);
}

}  // namespace

Result<std::unique_ptr<Ownership>> Ownership::take(const std::string& run, checkpoint::Fence fence,
                                                   const std::string& node, const OwnershipOptions& options) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  checkpoint::Owner me{.fence = std::move(fence),
                       .node = node,
                       .pid = getpid(),
                       .since_s = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                       .token = new_token()};
  const auto pause = std::min<Duration>(look_every_max, options.beat_every / 2);
  Judge judge(me.fence, options, pause);
  for (;;) {
    const auto seen = checkpoint::owner_of(run);
    if (!seen) return seen.error();
    if (!*seen) {
      auto made = settle(run, me, options.over);
      if (!made) return std::move(made).error();
      if (!*made) continue;
      return std::unique_ptr<Ownership>(
          new Ownership(run, std::move(me), std::move(**made), options.beat_every));
    }
    switch (judge.look(**seen)) {
      case Judge::Verdict::lives:
        return trained_by(run, (*seen)->owner);
      case Judge::Verdict::newer:
        return invalid((*seen)->owner.text() + " is a newer attempt, and trains in this folder").within(run);
      case Judge::Verdict::gone:
        if (auto replaced = replace(run, (*seen)->owner, me.fence, options.over); !replaced)
          return std::move(replaced).error();
        break;
      case Judge::Verdict::not_known:
        std::this_thread::sleep_for(pause);
        break;
    }
  }
}

Ownership::Ownership(std::string run, checkpoint::Owner owner, files::FileDescriptor file,
                     Duration beat_every)
    : run_(std::move(run)), owner_(std::move(owner)), folder_(folder_at(run_)), file_(std::move(file)) {
  if (auto claimed = checkpoint::claimed_by(checkpoints_of(run_))) claimed_before_ = std::move(*claimed);
  thread_ = std::thread([this, beat_every] { keep(beat_every); });
}

Ownership::~Ownership() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  // What cannot be removed is found dead by the next one.
  if (!lost_) static_cast<void>(checkpoint::remove_owner(run_, owner_).ok());
}

std::optional<Error> Ownership::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Ownership::keep(Duration beat_every) {
  std::unique_lock lock(mutex_);
  while (!ending_ && !lost_) {
    lock.unlock();
    look();
    lock.lock();
    changed_.wait_for(lock, beat_every, [&] { return ending_; });
  }
}

// A disk that does not answer is no reason to give up: whoever takes the folder over leaves his name.
void Ownership::look() {
  static_cast<void>(checkpoint::beat(file_).ok());
  const auto seen = checkpoint::owner_of(run_);
  if (!seen) return;
  if (!*seen) return make_again();
  if ((*seen)->owner.token == owner_.token || (*seen)->owner.token.empty()) return;
  lose_to((*seen)->owner.fence, (*seen)->owner.text());
}

// Somebody has looked at the file from close by, or has removed it: it is made again, if nobody else makes
// it. Who has had the folder meanwhile and is done with it has left his claim. Where the folder itself is
// gone, another one that lies in its place was never this one's.
void Ownership::make_again() {
  if (folder_at(run_) != folder_) return;
  const auto claimed = checkpoint::claimed_by(checkpoints_of(run_));
  if (!claimed) return;
  const bool replaced = *claimed && **claimed != owner_.fence && *claimed != claimed_before_ &&
                        !is_newer(owner_.fence, **claimed);
  if (replaced) return lose_to(**claimed, (*claimed)->text());
  auto made = checkpoint::become_owner(run_, owner_);
  if (made && *made) file_ = std::move(**made);
}

void Ownership::lose_to(const checkpoint::Fence& fence, const std::string& who) {
  const std::lock_guard lock(mutex_);
  const ErrorCode code = is_attempt_of_same_job(owner_.fence, fence) ? ErrorCode::failed : ErrorCode::invalid;
  lost_ = Error(code, who + " has taken this folder over").within(run_);
}

}  // namespace tutti::train
