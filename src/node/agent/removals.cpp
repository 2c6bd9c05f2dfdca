#include "node/agent/removals.hpp"

#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/files/files.hpp"
#include "base/files/rights.hpp"
#include "base/log/log.hpp"

namespace tutti::agent {
namespace {

// Of one account one thing at a time: who leaves millions of files behind does not keep what others have
// left.
constexpr LaneLimits removal_limits{.threads_max = 1};

}  // namespace

// On a thread of the lane.
Removals::End Removals::remove_tree(const std::string& path) {
  const auto removed = files::remove_folder(path);
  if (removed) return {};
  const auto most = static_cast<std::uint64_t>(staying_bytes_max.count());
  return {.why = removed.error().text(),
          .bytes = Bytes(static_cast<std::int64_t>(files::folder_bytes(path, most)))};
}

Removals::Removals(net::Loop& loop, std::string folder, Duration every)
    : folder_(std::move(folder)),
      lane_(loop, removal_limits),
      timer_(loop.every(every, [this] { try_again(); })) {}

void Removals::move_out(const std::string& path, const std::string& owner) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string target =
      folder_ + "/" + name + "." + std::to_string(::getpid()) + "." + std::to_string(++moved_);
  lane_.run(owner, [this, path, target, owner, folder = folder_]() -> Lane::Then {
    auto moved = files::make_folder(folder, 0700);
    if (moved) moved = files::move_folder(path, target);
    if (!moved) return [why = moved.error().text()] { log::warning("{}", why); };
    return [this, target, owner, end = remove_tree(target)] { done(target, owner, end); };
  });
}

void Removals::remove(const std::string& path, const std::string& owner) {
  lane_.run(owner, [this, path, owner]() -> Lane::Then {
    return [this, path, owner, end = remove_tree(path)] { done(path, owner, end); };
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
  const bool has_room = is_known || staying_.size() < staying_max;
  if (!is_known) log::warning("{}{}", end.why, has_room ? "; it is tried again" : "");
  if (!has_room) return;
  staying_.insert_or_assign(path, Staying{.owner = owner, .bytes = end.bytes, .under_way = false});
  bytes_ += end.bytes;
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
