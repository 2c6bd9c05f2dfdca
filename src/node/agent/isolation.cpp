#include "node/agent/isolation.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "base/files/tree.hpp"
#include "node/rank/call_filter.hpp"
#include "node/rank/device_filter.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

// Of the agent's folder what ranks pass through; all else in it is closed.
constexpr std::array<std::string_view, 3> passages{"ranks", "work", "checkpoints"};
constexpr std::array<std::string_view, 2> passages_of_all{"ranks", "work"};  // the other may be elsewhere
constexpr const char* places_name = "places";
constexpr const char* memory_disk = "/dev/shm";
constexpr fsfilcnt_t names_of_an_attempt = 8;       // there, and some
constexpr std::string_view any_letters = "XXXXXX";  // of mkdtemp()
constexpr const char* other_folder =
    "`--data /var/lib/tutti-agent`, or another folder of root's that all may reach";

// Ranks of all accounts may pass through it.
bool is_open_to_all(const struct stat& folder) { return (folder.st_mode & S_IXOTH) != 0; }

// Whoever may rename what is in it could put a folder of his own in the place of the agent's.
bool is_in_other_hands(const struct stat& folder) {
  const bool anybodys = (folder.st_mode & S_IWOTH) != 0 && (folder.st_mode & S_ISVTX) == 0;
  return (folder.st_uid != 0 && folder.st_uid != ::geteuid()) || anybodys;
}

Error not_reached(const std::string& folder, const std::string& above) {
  return invalid("ranks run as the accounts of their users (--isolation user), who may not pass through " +
                 files::printable(above) + ", where the agent's folder is")
      .within(files::printable(folder))
      .remedy(std::string(other_folder) + "; `--isolation none` runs all ranks as root");
}

Error in_other_hands(const std::string& folder, const std::string& above) {
  return invalid("others than root may change what is in " + files::printable(above) +
                 ", where the agent's folder is")
      .within(files::printable(folder))
      .remedy(other_folder);
}

Result<> check_way_to(const std::string& folder) {
  for (fs::path above = fs::path(folder).parent_path();; above = above.parent_path()) {
    struct stat status {};
    const bool is_there = ::stat(above.c_str(), &status) == 0;
    if (is_there && !is_open_to_all(status)) return not_reached(folder, above);
    if (is_there && is_in_other_hands(status)) return in_other_hands(folder, above);
    if (above == above.root_path() || above.empty()) return {};
  }
}

// Where users have folders of their own they may mount something over them, which may not answer.
enum class Mounts { entered, passed_by };

// Each entry of a folder gets the mode that is asked for it, and no link is followed.
Result<> set_rights(const std::string& path, Mounts mounts, const auto& mode_of) {
  const files::FileDescriptor folder(::open(path.c_str(), files::folder_flags));
  const files::Listing listing = folder.valid() ? files::list_open_folder(folder) : nullptr;
  if (!listing) return failed_errno("cannot read " + files::printable(path), errno);
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    const files::FileDescriptor found =
        mounts == Mounts::entered ? files::FileDescriptor(::openat(folder.get(), name.c_str(), flags))
                                  : files::open_below(folder, name, flags);
    struct stat status {};
    if (!found.valid() || ::fstat(found.get(), &status) != 0 || S_ISLNK(status.st_mode)) continue;
    const mode_t mode = mode_of(name, status);
    if ((status.st_mode & 07777) == mode) continue;
    const std::string held = "/proc/self/fd/" + std::to_string(found.get());
    if (::chmod(held.c_str(), mode) != 0)
      return failed_errno("cannot close " + files::printable(path + "/" + name), errno);
  }
  return {};
}

bool is_own_closed_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & 0077) == 0;
}

bool can_hold(const std::string& trial) {
  const rank::Hold hold(trial);
  const bool made = hold.make();
  hold.remove();
  return made;
}

// It takes hardly another name, or none.
bool is_full(const char* disk) {
  struct statvfs status {};
  return ::statvfs(disk, &status) == 0 && status.f_files > 0 && status.f_favail < names_of_an_attempt;
}

mode_t closed(const struct stat& status) { return S_ISDIR(status.st_mode) ? 0700 : 0600; }

}  // namespace

Result<> make_passage(const std::string& path) {
  if (auto made = files::make_folder(path, passage_mode); !made) return made;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return failed(files::printable(path) + " is not this agent's folder");
  if (::chmod(path.c_str(), passage_mode) != 0)
    return failed_errno("cannot let ranks through " + files::printable(path), errno);
  return {};
}

Result<> IsolationRules::check_places(const std::string& folder, const std::string& checkpoints) {
  for (const std::string& path : {folder, checkpoints}) {
    if (rank::is_below_private_place(path))
      return invalid(files::printable(path) +
                     " lies where each job has a place of its own (--isolation user)")
          .remedy(
              "name one that is not below /tmp, /var/tmp or /dev/shm, such as `--data /var/lib/tutti-agent`");
  }
  return check_way_to(folder);
}

Result<> IsolationRules::begin(const std::string& trial) {
  if (auto fine = check_places(options_.folder, options_.checkpoints); !fine) return fine;
  if (auto read = accounts_.read_again(); !read) return std::move(read).error().within("--users");
  if (auto done = close_folder(); !done) return done;
  memory_prefix_ = "tutti-" + rank::folder_place(options_.folder) + "-";
  std::replace(memory_prefix_.begin(), memory_prefix_.end(), ':', '.');
  find_memory_folder();
  has_mounts_ = rank::can_have_private_mounts();
  if (!has_mounts_)
    lacks_.push_back(
        "ranks share /tmp, /var/tmp, /dev/shm and the memory of System V with all others, and see their "
        "processes: this agent may make no namespaces");
  filters_devices_ = rank::can_filter_devices(trial);
  if (!filters_devices_)
    lacks_.push_back(
        "ranks may open every device that their account may, GPUs of others too: this agent may make no "
        "cgroups that keep devices from them");
  if (!can_hold(trial))
    lacks_.push_back(
        "processes of ranks may live on when these have ended: this agent may make no cgroups that hold "
        "them");
  if (!rank::can_forbid_calls())
    lacks_.push_back(
        "ranks may ask the kernel for what no training needs, its keys and ciphers above all: it filters no "
        "calls");
  return {};
}

std::string IsolationRules::lacks_in_a_line() const {
  std::string line;
  for (const std::string& lack : lacks_) line += (line.empty() ? "" : "; ") + lack;
  return line;
}

// What earlier agents, which were not so careful, have left open.
Result<> IsolationRules::close_folder() const {
  if (auto made = make_passage(options_.folder); !made) return made;
  for (const std::string_view name : passages_of_all)
    if (auto made = make_passage(options_.folder + "/" + std::string(name)); !made) return made;
  const auto in_the_folder = [](const std::string& name, const struct stat& status) {
    const bool is_passage = std::find(passages.begin(), passages.end(), name) != passages.end();
    return is_passage && S_ISDIR(status.st_mode) ? passage_mode : closed(status);
  };
  if (auto done = set_rights(options_.folder, Mounts::entered, in_the_folder); !done) return done;
  // Ranks that run as somebody have a folder of their own there, and pass through theirs to it.
  const auto in_ranks = [&](const std::string& name, const struct stat& status) {
    const std::string folder = options_.folder + "/ranks/" + name;
    return S_ISDIR(status.st_mode) && rank::has_said_folder(folder) ? passage_mode : closed(status);
  };
  if (auto done = set_rights(options_.folder + "/ranks", Mounts::entered, in_ranks); !done) return done;
  const auto in_work = [](const std::string&, const struct stat& status) { return closed(status); };
  if (auto done = set_rights(options_.folder + "/work", Mounts::passed_by, in_work); !done) return done;
  return files::make_folder(options_.folder + "/" + places_name, 0700);
}

// Everybody may write where it is. So it has a name that nobody can foretell and lay something in its place;
// in it nobody else can.
void IsolationRules::find_memory_folder() {
  const files::FileDescriptor disk(::open(memory_disk, files::folder_flags));
  const files::Listing listing = disk.valid() ? files::list_open_folder(disk) : nullptr;
  const std::lock_guard lock(memory_mutex_);
  // Everybody may lay millions of names there: none is kept.
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    const std::string path = std::string(memory_disk) + "/" + entry->d_name;
    const bool is_named_so = name.starts_with(memory_prefix_) &&
                             name.size() == memory_prefix_.size() + any_letters.size() &&
                             name.find('.', memory_prefix_.size()) == std::string_view::npos;
    if (is_named_so && is_own_closed_folder(path)) memory_folder_ = path;
  }
}

Result<> IsolationRules::make_memory_folder() {
  const std::lock_guard lock(memory_mutex_);
  if (!memory_folder_.empty() && is_own_closed_folder(memory_folder_)) return {};
  std::string path = std::string(memory_disk) + "/" + memory_prefix_ + std::string(any_letters);
  if (::mkdtemp(path.data()) == nullptr)
    return failed_errno(std::string("cannot make a folder in ") + memory_disk, errno);
  memory_folder_ = path;
  return {};
}

std::string IsolationRules::memory_folder() const {
  const std::lock_guard lock(memory_mutex_);
  return memory_folder_;
}

Result<rank::PrivatePlaces> IsolationRules::places(const std::string& attempt) {
  if (auto made = make_memory_folder(); !made) return std::move(made).error();
  return rank::PrivatePlaces{.folder = options_.folder + "/" + places_name + "/" + attempt,
                             .memory = memory_folder() + "/" + attempt};
}

IsolationRules::Prepared IsolationRules::prepare(const std::string& user, const std::string& attempt,
                                                 Accounts::Clock::time_point asked_at) {
  Prepared prepared;
  if (auto read = accounts_.read_again(); !read)
    prepared.warning = "the file of --users holds as it was before: " + read.error().text();
  auto account = accounts_.account_of(user, asked_at);
  if (!account) {
    prepared.why = std::move(account).error();
    return prepared;
  }
  if (!*account) {
    // Others may know it. Nothing is wrong with this node, and the job has no other way to run here.
    prepared.why = failed("there is no account " + accounts_.name_of(user) +
                          " on the node, which the ranks of " + files::printable(user) +
                          " run as; its operator can make it, or map the name (`tutti agent --users`)");
    prepared.hindrance = keeper::Hindrance::job;
    return prepared;
  }
  rank::Isolation isolation{
      .account = **std::move(account), .places = {}, .filters_devices = filters_devices_, .gpus = {}};
  if (has_mounts_) {
    auto own = places(attempt);
    const auto made = own ? rank::make_private_places(*own) : Result<>(own.error());
    if (!made) {
      prepared.why = made.error();
      // A job has filled it, and its end makes room.
      if (is_full(memory_disk)) prepared.hindrance = keeper::Hindrance::passing;
      return prepared;
    }
    isolation.places = *std::move(own);
  }
  prepared.isolation = std::make_shared<const rank::Isolation>(std::move(isolation));
  return prepared;
}

std::vector<std::string> IsolationRules::places_of(const std::string& attempt) const {
  std::vector<std::string> paths{options_.folder + "/" + places_name + "/" + attempt};
  if (const std::string memory = memory_folder(); !memory.empty()) paths.push_back(memory + "/" + attempt);
  return paths;
}

std::vector<std::string> IsolationRules::all_places() const {
  std::vector<std::string> attempts;
  const auto look = [&](const std::string& folder) {
    const auto names = files::list_folder(folder);
    if (names && *names) attempts.insert(attempts.end(), (*names)->begin(), (*names)->end());
  };
  look(options_.folder + "/" + places_name);
  if (const std::string memory = memory_folder(); !memory.empty()) look(memory);
  std::sort(attempts.begin(), attempts.end());
  attempts.erase(std::unique(attempts.begin(), attempts.end()), attempts.end());
  return attempts;
}

}  // namespace tutti::agent
