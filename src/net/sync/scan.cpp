#include "net/sync/scan.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/ignore.hpp"

namespace tutti::sync {
namespace {

constexpr std::string_view ignore_file = ".tuttiignore";
constexpr Bytes ignore_file_bytes_max = mib(1);
constexpr std::size_t warnings_max = 100;
// A folder above the limit is walked on, to say where most of it lies, but not for ever.
constexpr std::size_t walked_times_limit_max = 10;

constexpr std::string_view ignore_advice = "list what the job does not need in .tuttiignore";

// What tells that a file is still the one that was listed.
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;
  timespec modified{};
  timespec changed{};

  friend bool operator==(const FileState& a, const FileState& b) {
    const auto same = [](const timespec& x, const timespec& y) {
      return x.tv_sec == y.tv_sec && x.tv_nsec == y.tv_nsec;
    };
    return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes && same(a.modified, b.modified) &&
           same(a.changed, b.changed);
  }
};

FileState state_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = status.st_size,
          .modified = status.st_mtim,
          .changed = status.st_ctim};
}

struct Found {
  Entry entry;
  FileState state;
};

// How much lies below a folder. Sparse files can claim more bytes than a number holds.
struct Amount {
  std::size_t entries = 0;
  Bytes bytes;

  void add(const Amount& other) {
    constexpr Bytes most(std::numeric_limits<std::int64_t>::max());
    entries += other.entries;
    bytes = other.bytes > most - bytes ? most : bytes + other.bytes;
  }
};

struct FolderAmount {
  std::string path;
  Amount amount;
};

Error vanished(const std::string& path) {
  return failed(files::shown(path) + " vanished while the folder was read")
      .remedy("try again when nothing writes to the folder, or list the file in .tuttiignore");
}

Error changed(const std::string& path) {
  return failed(files::shown(path) + " changed while the folder was read")
      .remedy("try again when nothing writes to the file, or list it in .tuttiignore");
}

Error unreadable(const std::string& path, int error_number) {
  return failed_errno("cannot read " + files::shown(path), error_number)
      .remedy("make it readable, or list it in .tuttiignore");
}

// Lists what is in a folder, by the rules, without reading a file.
class Walk {
 public:
  Walk(const std::string& root, const IgnoreRules& rules, const Limits& limits)
      : root_(root), rules_(rules), limits_(limits) {}

  Result<> run() {
    auto amount = enter("");
    if (!amount) return std::move(amount).error();
    return {};
  }

  const Amount& total() const { return total_; }
  const std::vector<FolderAmount>& folders() const { return folders_; }
  std::vector<Found> take_found() { return std::move(found_); }

  std::vector<std::string> take_warnings() {
    if (left_out_ > warnings_.size()) {
      warnings_.push_back("and " + std::to_string(left_out_ - warnings_.size()) + " more");
    }
    return std::move(warnings_);
  }

 private:
  std::string absolute(const std::string& path) const { return path.empty() ? root_ : root_ + '/' + path; }

  bool exhausted() const { return total_.entries / walked_times_limit_max > limits_.entries_max; }

  Result<Amount> enter(const std::string& folder) {
    auto names = files::list_folder(absolute(folder));
    if (!names) return std::move(names).error().remedy("make it readable, or list it in .tuttiignore");
    if (!*names) return vanished(folder);
    Amount amount;
    for (const auto& name : **names) {
      if (exhausted()) break;
      if (name == ".git") continue;
      auto below = visit(folder.empty() ? name : folder + '/' + name);
      if (!below) return below;
      amount.add(*below);
    }
    return amount;
  }

  Result<Amount> visit(const std::string& path) {
    struct stat status {};
    if (lstat(absolute(path).c_str(), &status) != 0) {
      return errno == ENOENT ? vanished(path) : unreadable(path, errno);
    }
    if (rules_.ignores(path, S_ISDIR(status.st_mode))) return Amount{};
    if (S_ISDIR(status.st_mode)) return visit_folder(path);
    if (S_ISREG(status.st_mode)) return visit_file(path, status);
    if (S_ISLNK(status.st_mode)) return visit_link(path);
    leave_out(path, "it is no file, folder or link");
    return Amount{};
  }

  Result<Amount> visit_folder(const std::string& path) {
    auto amount = keep({.entry = {.path = path, .kind = Entry::Kind::folder}});
    auto below = enter(path);
    if (!below) return below;
    amount.add(*below);
    folders_.push_back({.path = path, .amount = amount});
    return amount;
  }

  Result<Amount> visit_file(const std::string& path, const struct stat& status) {
    return keep({.entry = {.path = path,
                           .kind = Entry::Kind::file,
                           .bytes = Bytes(status.st_size),
                           .executable = (status.st_mode & S_IXUSR) != 0},
                 .state = state_of(status)});
  }

  Result<Amount> visit_link(const std::string& path) {
    std::array<char, PATH_MAX> buffer;
    const ssize_t count = readlink(absolute(path).c_str(), buffer.data(), buffer.size());
    if (count < 0) return errno == ENOENT ? vanished(path) : unreadable(path, errno);
    std::string target(buffer.data(), static_cast<std::size_t>(count));
    if (!link_stays_inside(path, target)) {
      leave_out(path, "the link leads to " + files::shown(target) + ", out of the folder");
      return Amount{};
    }
    return keep({.entry = {.path = path, .kind = Entry::Kind::link, .link_target = std::move(target)}});
  }

  Amount keep(Found found) {
    const Amount amount{.entries = 1, .bytes = found.entry.bytes};
    total_.add(amount);
    if (total_.entries <= limits_.entries_max) found_.push_back(std::move(found));
    return amount;
  }

  void leave_out(const std::string& path, const std::string& reason) {
    ++left_out_;
    if (warnings_.size() < warnings_max) warnings_.push_back(files::shown(path) + " is left out: " + reason);
  }

  const std::string& root_;
  const IgnoreRules& rules_;
  const Limits& limits_;
  std::vector<Found> found_;
  std::vector<FolderAmount> folders_;
  Amount total_;
  std::vector<std::string> warnings_;
  std::size_t left_out_ = 0;
};

// The folder worth leaving out: the deepest one that holds more than half of it all, or else the largest.
template <class AmountOf>
const FolderAmount* heaviest_of(const std::vector<FolderAmount>& folders, const Amount& total,
                                AmountOf amount_of) {
  const auto holds_most = [&](const FolderAmount& folder) {
    return amount_of(folder.amount) > amount_of(total) - amount_of(folder.amount);
  };
  const auto is_lighter = [&](const FolderAmount& a, const FolderAmount& b) {
    // Two folders that each hold most lie inside one another.
    if (holds_most(a) && holds_most(b)) return a.path.size() < b.path.size();
    return amount_of(a.amount) < amount_of(b.amount);
  };
  const auto heaviest = std::max_element(folders.begin(), folders.end(), is_lighter);
  return heaviest == folders.end() ? nullptr : &*heaviest;
}

Error too_large(std::string message, const FolderAmount* largest, const std::string& largest_amount) {
  if (largest == nullptr) return invalid(std::move(message)).remedy(ignore_advice);
  return invalid(message + "; the largest folder is " + files::shown(largest->path) + " with " +
                 largest_amount)
      .remedy(std::string(ignore_advice) + ", such as " + files::shown('/' + largest->path + '/'));
}

Result<> check_limits(const Walk& walk, const Limits& limits) {
  const auto& total = walk.total();
  if (total.entries > limits.entries_max) {
    const auto entries_of = [](const Amount& amount) { return amount.entries; };
    const auto* largest = heaviest_of(walk.folders(), total, entries_of);
    return too_large("the folder has more than " + std::to_string(limits.entries_max) +
                         " files, folders and links, the most that is sent",
                     largest, largest ? std::to_string(largest->amount.entries) : "");
  }
  if (total.bytes > limits.bytes_max) {
    const auto bytes_of = [](const Amount& amount) { return amount.bytes; };
    const auto* largest = heaviest_of(walk.folders(), total, bytes_of);
    return too_large("the folder holds " + format_bytes(total.bytes) + ", and at most " +
                         format_bytes(limits.bytes_max) + " are sent",
                     largest, largest ? format_bytes(largest->amount.bytes) : "");
  }
  return {};
}

// Reads the file that was listed. The state is compared after the last byte, so a change at any time shows.
Result<std::vector<std::string>> hash_found(const std::string& root, const Found& found) {
  const auto& path = found.entry.path;
  const files::FileDescriptor file(
      open((root + '/' + path).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() && (errno == ENOENT || errno == ENOTDIR)) return vanished(path);
  if (!file.valid() && errno == ELOOP) return changed(path);
  if (!file.valid()) return unreadable(path, errno);
  std::vector<std::string> chunks;
  for (std::size_t at = 0; at < chunk_count(found.entry.bytes); ++at) {
    auto hash = hash_descriptor(file.get(), path, chunk_size(found.entry.bytes, at));
    if (!hash) return std::move(hash).error();
    chunks.push_back(std::move(*hash));
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return unreadable(path, errno);
  if (state_of(status) != found.state) return changed(path);
  return chunks;
}

Result<IgnoreRules> read_rules(const std::string& root) {
  const std::string path = root + '/' + std::string(ignore_file);
  const auto text = files::read_file(path, static_cast<std::size_t>(ignore_file_bytes_max.count()));
  if (!text) return text.error();
  return IgnoreRules(*text ? **text : "");
}

Result<ScanResult> scan_root(const std::string& root, const ScanOptions& options) {
  struct stat status {};
  if (stat(root.c_str(), &status) != 0) return failed_errno("cannot read the folder", errno);
  if (!S_ISDIR(status.st_mode)) return invalid("it is not a folder");
  const auto rules = read_rules(root);
  if (!rules) return rules.error();

  Walk walk(root, *rules, options.limits);
  if (auto walked = walk.run(); !walked) return std::move(walked).error();
  if (auto fits = check_limits(walk, options.limits); !fits) return std::move(fits).error();

  ScanResult result{.warnings = walk.take_warnings(), .bytes = walk.total().bytes};
  for (auto& found : walk.take_found()) {
    if (found.entry.kind == Entry::Kind::file) {
      if (options.on_file) options.on_file(found.entry.path);
      auto chunks = hash_found(root, found);
      if (!chunks) return std::move(chunks).error();
      found.entry.chunks = std::move(*chunks);
    }
    result.manifest.entries.push_back(std::move(found.entry));
  }
  std::ranges::sort(result.manifest.entries, {}, &Entry::path);
  if (Bytes(std::ssize(encode(result.manifest))) > options.limits.encoded_bytes_max) {
    return invalid("the names in the folder take more than " + format_bytes(options.limits.encoded_bytes_max))
        .remedy(ignore_advice);
  }
  return result;
}

}  // namespace

Result<ScanResult> scan(const std::string& folder, const ScanOptions& options) {
  auto result = scan_root(folder, options);
  if (!result) return std::move(result).error().within("folder " + files::shown(folder));
  return result;
}

}  // namespace tutti::sync
