#include "node/agent/mount_table.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/files/files.hpp"
#include "base/text.hpp"

namespace tutti::agent {
namespace {

constexpr std::size_t table_bytes_max = std::size_t{16} << 20;
constexpr std::size_t point_at = 4;
constexpr std::size_t options_end = 6;  // the optional fields begin here, and end with a "-"
// Several machines cannot have one of these mounted at the same time.
constexpr std::array local_kinds{"btrfs",   "ext2",  "ext3",  "ext4",   "f2fs", "jfs",
                                 "overlay", "ramfs", "tmpfs", "rootfs", "xfs",  "zfs"};

// The kernel writes blanks and the like as three octal digits behind a backslash.
std::string unescaped(std::string_view text) {
  const auto is_octal = [](char letter) { return letter >= '0' && letter <= '7'; };
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view digits = text.substr(std::min(at + 1, text.size()), 3);
    if (text[at] != '\\' || digits.size() < 3 || !std::all_of(digits.begin(), digits.end(), is_octal)) {
      plain += text[at];
      continue;
    }
    plain += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
    at += digits.size();
  }
  return plain;
}

bool is_within(std::string_view folder, std::string_view point) {
  if (point == "/") return folder.starts_with('/');
  return folder.starts_with(point) && (folder.size() == point.size() || folder[point.size()] == '/');
}

}  // namespace

std::optional<Mount> mount_of(std::string_view table, std::string_view folder) {
  std::optional<Mount> found;
  for (const std::string_view line : split(table, '\n')) {
    const std::vector<std::string_view> fields = split(line, ' ');
    if (fields.size() <= options_end) continue;
    const auto dash = std::find(fields.begin() + options_end, fields.end(), "-");
    if (dash == fields.end() || dash + 1 == fields.end()) continue;
    Mount mount{unescaped(fields[point_at]), std::string(*(dash + 1))};
    // Of two in one place the later one hides the other.
    if (is_within(folder, mount.point) && (!found || mount.point.size() >= found->point.size()))
      found = std::move(mount);
  }
  return found;
}

std::string not_shared(std::string_view table, const std::string& folder) {
  const auto mount = mount_of(table, folder);
  if (!mount || std::find(local_kinds.begin(), local_kinds.end(), mount->kind) == local_kinds.end())
    return "";
  return "--checkpoints " + folder + " is on a disk of this machine alone (" + mount->kind + ", mounted at " +
         mount->point +
         "), as far as its path tells: what jobs save there is not seen by other nodes; is the disk that all "
         "nodes share mounted? If there is none, say --local-checkpoints";
}

std::string mount_table() {
  auto table = files::read_existing_file("/proc/self/mountinfo", table_bytes_max);
  return table ? std::move(*table) : "";
}

}  // namespace tutti::agent
