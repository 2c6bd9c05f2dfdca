#include "node/agent/removals.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/rights.hpp"
#include "base/files/tree.hpp"
#include "base/log/log.hpp"

namespace tutti::agent {
namespace {

// Of one account one thing at a time: who leaves millions of files behind does not keep what others have
// left.
constexpr LaneLimits removal_limits{.threads_max = 1};
// Below the root of a tree: what lies in the places of an attempt is its account's.
constexpr int owner_levels_max = 2;
constexpr int owner_names_max = 100;
constexpr int look_flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;

// What lies in memory does not wait for what the same account has left on a disk.
std::string lane_of(const std::string& owner, const std::string& path) {
  return owner.empty() ? "" : owner + " in " + std::filesystem::path(path).parent_path().string();
}

std::optional<uid_t> somebody_in(const files::FileDescriptor& found, int levels) {
  struct stat status {};
  if (!found.valid() || ::fstat(found.get(), &status) != 0) return std::nullopt;
  if (status.st_uid != ::geteuid()) return status.st_uid;
  const bool goes_on = S_ISDIR(status.st_mode) && levels > 0;
  const files::Listing listing = goes_on ? files::list_open_folder(found) : nullptr;
  for (int names = 0; names < owner_names_max; ++names) {
    const dirent* entry = listing ? ::readdir(listing.get()) : nullptr;
    if (entry == nullptr) break;
    if (const auto owner = somebody_in(files::open_below(found, entry->d_name, look_flags), levels - 1))
      return owner;
  }
  return std::nullopt;
}

}  // namespace

std::string owner_of_tree(const std::string& path) {
  const files::FileDescriptor root(::open(path.c_str(), look_flags));
  const auto owner = somebody_in(root, owner_levels_max);
  return owner ? account_owner(*owner) : "";
}

std::string account_owner(uid_t account) { return "uid " + std::to_string(account); }

// On a thread of the lane.
Removals::End Removals::remove_tree(const std::string& path, const files::RemoveOptions& options) {
  const auto removed = files::remove_folder(path, options);
  if (removed) return {};
  const auto most = static_cast<std::uint64_t>(staying_bytes_max.count());
  return {.why = removed.error().text(),
          .bytes = Bytes(static_cast<std::int64_t>(files::folder_bytes(path, most)))};
}

Removals::Removals(net::Loop& loop, std::string folder, Duration every, files::RemoveOptions options)
    : folder_(std::move(folder)),
      options_(options),
      lane_(loop, removal_limits),
      timer_(loop.every(every, [this] { try_again(); })) {}

void Removals::of_its_owner(const std::string& path, const std::string& owner,
                            const std::function<void(const std::string& owner)>& then) {
  if (!owner.empty() || !options_.of_users) return then(owner);
  lane_.run([path, then]() -> Lane::Then { return [then, found = owner_of_tree(path)] { then(found); }; });
}

void Removals::move_out(const std::string& path, const std::string& owner) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string target =
      folder_ + "/" + name + "." + std::to_string(::getpid()) + "." + std::to_string(++moved_);
  of_its_owner(path, owner, [this, path, target](const std::string& whose) {
    const auto work = [this, path, target, whose, folder = folder_, options = options_]() -> Lane::Then {
      auto moved = files::make_folder(folder, 0700);
      if (moved) moved = files::move_folder(path, target);
      if (!moved) return [why = moved.error().text()] { log::warning("{}", why); };
      return [this, target, whose, end = remove_tree(target, options)] { done(target, whose, end); };
    };
    lane_.run(lane_of(whose, target), work);
  });
}

void Removals::remove(const std::string& path, const std::string& owner) {
  of_its_owner(path, owner, [this, path](const std::string& whose) {
    lane_.run(lane_of(whose, path), [this, path, whose, options = options_]() -> Lane::Then {
      return [this, path, whose, end = remove_tree(path, options)] { done(path, whose, end); };
    });
  });
}

void Removals::remove_left() {
  const auto names = files::list_folder(folder_);
  if (!names) return log::warning("{}", names.error().text());
  for (const std::string& name : *names ? **names : std::vector<std::string>()) remove(folder_ + "/" + name);
}

void Removals::done(const std::string& path, const std::string& owner, const End& end) {
  const auto known = staying_.find(path);
  const bool is_known = known != staying_.end();
  if (is_known) bytes_ -= known->second.bytes;
  if (end.why.empty()) {
    if (is_known) staying_.erase(known);
    return;
  }
  const bool has_room = is_known || (staying_.size() < staying_max && staying_of(owner) < staying_of_one_max);
  if (!is_known) log::warning("{}{}", end.why, has_room ? "; it is tried again" : "");
  if (!has_room) return;
  staying_.insert_or_assign(path, Staying{.owner = owner, .bytes = end.bytes, .under_way = false});
  bytes_ += end.bytes;
}

std::size_t Removals::staying_of(const std::string& owner) const {
  if (owner.empty()) return 0;
  return static_cast<std::size_t>(std::count_if(
      staying_.begin(), staying_.end(), [&](const auto& known) { return known.second.owner == owner; }));
}

// One round is bounded, and the next goes on behind it: none is passed over for good.
void Removals::try_again() {
  std::size_t tried = 0;
  auto at = staying_.upper_bound(tried_last_);
  for (std::size_t looked = 0; looked < staying_.size() && tried < removals_per_round_max; ++looked, ++at) {
    if (at == staying_.end()) at = staying_.begin();
    tried_last_ = at->first;
    if (std::exchange(at->second.under_way, true)) continue;
    ++tried;
    remove(at->first, at->second.owner);
  }
}

}  // namespace tutti::agent
