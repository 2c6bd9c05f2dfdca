#include "node/agent/attic.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "base/files/rights.hpp"
#include "base/files/tree.hpp"
#include "base/id.hpp"
#include "base/log/log.hpp"
#include "control/wire/messages.hpp"
#include "node/agent/left_rank.hpp"
#include "node/agent/membership.hpp"
#include "node/rank/checkpoints.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {
namespace {

constexpr std::int64_t stat_block_bytes = 512;  // as stat() counts them
constexpr std::size_t own_files_max = 64;

// What is in the folder of a rank may be its account's, and not its agent's.
Result<> remove_users(const std::string& folder) { return files::remove_folder(folder, {.of_users = true}); }

void remove_tree(const std::string& folder) {
  if (auto removed = remove_users(folder); !removed) log::warning("{}", removed.error().text());
}

bool is_over(Duration age, Duration age_max) { return age_max > Duration::zero() && age > age_max; }

// What the shim and the agent write into the folder of a rank; all else is the rank's.
bool is_own(std::string_view name) {
  return name.starts_with("log.") || name == "exit" || name == "spec" || name == "shim" ||
         name == "acknowledged";
}

// The rank has put more into its folder than a log can be: of that nothing is kept. Names like those of tutti
// are bounded in number, and a file of several names keeps one.
Bytes keep_own(const std::string& folder) {
  const files::FileDescriptor open_folder(::open(folder.c_str(), files::folder_flags));
  const files::Listing listing = open_folder.valid() ? files::list_open_folder(open_folder) : nullptr;
  std::set<ino_t> kept;
  std::int64_t bytes = 0;
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat status {};
    const bool known = ::fstatat(open_folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (known && is_own(name) && S_ISREG(status.st_mode) && kept.size() < own_files_max &&
        kept.insert(status.st_ino).second) {
      bytes += std::int64_t{status.st_blocks} * stat_block_bytes;
    } else {
      remove_tree(folder + "/" + name);
    }
  }
  return Bytes(bytes);
}

// Where the account of a rank that has ended could go on filling its folder, out of its reach: where that is
// now, "" if there is nothing.
std::string put_out_of_reach(const std::string& said, const std::string& removed) {
  const std::string target = files::unforeseen_name(removed + "/said.");
  auto moved = files::make_folder(removed, 0700);
  if (moved) moved = files::move_folder(said, target);
  if (!moved) log::warning("{}", moved.error().text());
  return rank::is_own_folder(target) ? target : "";
}

}  // namespace

Weighed weigh(const std::string& folder) {
  // A link in its place is the rank's, and not followed.
  if (!rank::is_own_folder(folder)) return {};
  files::restore_rights(folder);
  Weighed weighed;
  if (const auto spec = rank::read_spec(folder)) weighed.owner = spec->owner;
  const auto most = static_cast<std::uint64_t>(kept_rank_bytes_max.count());
  const std::uint64_t bytes = files::folder_bytes(folder, most);
  weighed.bytes = bytes < most ? Bytes(static_cast<std::int64_t>(bytes)) : keep_own(folder);
  return weighed;
}

void AtticShelves::put(const std::string& folder, Instant ended_at) { put(folder, ended_at, weigh(folder)); }

void AtticShelves::put(const std::string& folder, Instant ended_at, const Weighed& weighed) {
  Owner& owner = owners_[weighed.owner];
  const auto later =
      std::upper_bound(owner.kept.begin(), owner.kept.end(), ended_at,
                       [](Instant ended, const Kept& other) { return ended < other.ended_at; });
  owner.kept.insert(later, {folder, weighed.bytes, ended_at});
  owner.bytes += weighed.bytes;
  bytes_ += weighed.bytes;
  ++folders_;
}

// Out of the way at once, so that a later agent does not take what is left of it for something whole.
void AtticShelves::remove_rank(const std::string& folder) {
  if (options_.removed.empty()) {
    remove_tree(folder);
    return forget_aside(options_.folder, folder);
  }
  const std::string target = options_.removed + "/" + folder.substr(folder.rfind('/') + 1) + "." +
                             std::to_string(::getpid()) + ".attic." + std::to_string(++removed_);
  auto moved = files::make_folder(options_.removed, 0700);
  if (moved) moved = files::move_folder(folder, target);
  if (!moved) return log::warning("a folder that is to be removed stays: {}", moved.error().text());
  forget_aside(options_.folder, folder);
  if (!remove_users(target)) staying_.push_back(target);
}

void AtticShelves::tidy(Instant now) {
  tidy_logs(now);
  tidy_checkpoints(now);
}

void AtticShelves::tidy_logs(Instant now) {
  while (!closed_) {
    const auto owner = who_loses_one(now);
    if (owner == owners_.end()) return;
    const Kept oldest = std::move(owner->second.kept.front());
    owner->second.kept.pop_front();
    owner->second.bytes -= oldest.bytes;
    bytes_ -= oldest.bytes;
    --folders_;
    if (owner->second.kept.empty()) owners_.erase(owner);
    remove_rank(oldest.folder);
  }
}

// Where there is too much, whoever has the most of it: nobody loses a log for what others leave.
AtticShelves::Owners::iterator AtticShelves::who_loses_one(Instant now) {
  const auto is_old = [&](const auto& owner) {
    return is_over(now - owner.second.kept.front().ended_at, options_.logs_age_max);
  };
  if (const auto old = std::find_if(owners_.begin(), owners_.end(), is_old); old != owners_.end()) return old;
  if (folders_ > options_.logs_ranks_max)
    return std::max_element(owners_.begin(), owners_.end(), [](const auto& one, const auto& other) {
      return one.second.kept.size() < other.second.kept.size();
    });
  if (bytes_ > options_.logs_bytes_max)
    return std::max_element(owners_.begin(), owners_.end(), [](const auto& one, const auto& other) {
      return one.second.bytes < other.second.bytes;
    });
  return owners_.end();
}

// Jobs of two clusters have the same numbers, and may share the folder.
std::string AtticShelves::checkpoints_of(const std::string& cluster) const {
  return options_.checkpoints + (cluster.empty() ? "" : "/" + cluster);
}

void AtticShelves::job_ended(sched::JobId job, const std::string& cluster) const {
  if (auto ended = rank::end_checkpoints(checkpoints_of(cluster) + "/" + job.text()); !ended)
    log::warning("{}", ended.error().text());
}

// In a folder that others have, too, nobody can tell whether the cluster that left something there lives on
// elsewhere, with agents that were told to keep it.
std::vector<std::string> AtticShelves::clusters_to_judge(const std::string& cluster) const {
  std::vector<std::string> clusters{cluster};
  if (!options_.own_checkpoints || cluster.empty()) return clusters;
  const auto names = files::list_folder(options_.checkpoints);
  if (!names) {
    log::warning("{}", names.error().text());
    return clusters;
  }
  for (const std::string& name : *names ? **names : std::vector<std::string>()) {
    // A number is a job, as earlier versions had it there.
    if (name != cluster && wire::is_cluster_id(name) && !parse_id_number(name)) clusters.push_back(name);
  }
  return clusters;
}

// Of earlier clusters as of this one: only jobs that have ended.
AtticShelves::Tried AtticShelves::tidy_checkpoints(Instant now, const std::string& cluster,
                                                   const Tried& tried_last) const {
  Tried tried;
  if (options_.checkpoints_age_max <= Duration::zero()) return tried;
  for (const std::string& one : clusters_to_judge(cluster)) {
    std::string& last = tried[one];
    if (const auto before = tried_last.find(one); before != tried_last.end()) last = before->second;
    const auto removed =
        rank::remove_old_checkpoints(checkpoints_of(one), now - options_.checkpoints_age_max, last);
    if (!removed) log::warning("old checkpoints stay: {}", removed.error().text());
  }
  return tried;
}

Result<std::optional<std::uint64_t>> AtticShelves::last_saved(const std::string& cluster) const {
  return rank::last_saved_job(checkpoints_of(cluster), wire::jobs_seen_max);
}

Attic::Attic(net::Loop& loop, AtticOptions options, Saved saved)
    : options_(std::move(options)),
      shelves_(std::make_shared<AtticShelves>(options_)),
      saved_(std::move(saved)),
      sizes_(loop, LaneLimits{.threads_max = 1}),
      logs_(loop, 1),
      checkpoints_(loop, 1),
      timer_(loop.every(attic_every, [this] {
        tidy_logs();
        tidy_checkpoints();
        look_for_saved();
      })) {}

void Attic::belong_to(const std::string& cluster) {
  if (cluster == cluster_) return;
  cluster_ = cluster;
  look_for_saved();
}

// The folder may come later, with the first job or with its disk.
void Attic::look_for_saved() {
  if (!saved_ || cluster_.empty() || saved_known_ == cluster_ || std::exchange(looking_for_saved_, true))
    return;
  checkpoints_.run(
      [this, shelves = shelves_, cluster = cluster_]() -> Lane::Then {
        return [this, cluster, last = shelves->last_saved(cluster)] { looked_for_saved(cluster, last); };
      },
      [this](const std::string&) { looking_for_saved_ = false; });
}

void Attic::looked_for_saved(const std::string& cluster, const Result<std::optional<std::uint64_t>>& last) {
  looking_for_saved_ = false;
  const std::string unread = last ? "" : last.error().text();
  if (std::exchange(saved_unread_, unread) != unread && !unread.empty())
    log::warning("which jobs have saved something is not known: {}", unread);
  if (cluster != cluster_) return look_for_saved();
  if (!last || !*last) return;
  saved_known_ = cluster;
  saved_(cluster, **last);
}

void Attic::put(const std::string& folder, std::optional<Instant> ended_at) {
  sizes_.run(folder,
             [this, shelves = shelves_, folder, ended_at, removed = options_.removed]() -> Lane::Then {
               // Before anything in it is changed.
               const Instant when = ended_at ? *ended_at : changed_at(folder);
               const bool may_be_moved = !removed.empty() && rank::is_own_folder(folder);
               const std::string said =
                   may_be_moved ? put_out_of_reach(rank::said_folder(folder), removed) : std::string();
               return [this, shelves, folder, when, said, weighed = weigh(folder)] {
                 if (!said.empty() && stays_) stays_(said);
                 put(shelves, folder, when, weighed);
               };
             });
}

void Attic::keep_aside() {
  if (options_.folder.empty()) return;
  sizes_.run([this, shelves = shelves_, folder = options_.folder]() -> Lane::Then {
    return [this, shelves, aside = find_aside(folder)] {
      if (shelves != shelves_) return;  // somebody else has looked since
      for (const std::string& rank : aside.ranks) put(rank, std::nullopt);
      for (const std::string& empty : aside.empty)
        if (stays_) stays_(empty);
    };
  });
}

void Attic::put(const Shelves& shelves, const std::string& folder, Instant ended_at, const Weighed& weighed) {
  logs_.run([this, shelves, folder, ended_at, weighed, now = date_.now()]() -> Lane::Then {
    shelves->put(folder, ended_at, weighed);
    shelves->tidy_logs(now);
    return tidied(shelves);
  });
}

void Attic::clear() {
  shelves_->close();
  shelves_ = std::make_shared<AtticShelves>(options_);
  kept_ = {};
}

void Attic::job_ended(sched::JobId job) {
  checkpoints_.run([shelves = shelves_, job, cluster = cluster_]() -> Lane::Then {
    shelves->job_ended(job, cluster);
    return {};
  });
  tidy_checkpoints();
}

void Attic::tidy_logs() {
  if (logs_.under_way() != 0) return;  // each does it
  logs_.run([this, shelves = shelves_, now = date_.now()]() -> Lane::Then {
    shelves->tidy_logs(now);
    return tidied(shelves);
  });
}

// Not a look for each job that ends.
void Attic::tidy_checkpoints() {
  if (std::exchange(tidying_checkpoints_, true)) return;
  checkpoints_.run(
      [this, shelves = shelves_, cluster = cluster_, now = date_.now(),
       behind = tried_last_]() -> Lane::Then {
        return [this, tried_last = shelves->tidy_checkpoints(now, cluster, behind)] {
          tried_last_ = tried_last;
          tidying_checkpoints_ = false;
        };
      },
      [this](const std::string&) { tidying_checkpoints_ = false; });
}

Lane::Then Attic::tidied(const Shelves& shelves) {
  return [this, shelves, bytes = shelves->logs_bytes(), staying = shelves->take_staying()] {
    if (shelves == shelves_) kept_ = bytes;
    for (const std::string& path : staying)
      if (stays_) stays_(path);
  };
}

}  // namespace tutti::agent
