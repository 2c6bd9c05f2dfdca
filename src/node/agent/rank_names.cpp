#include "node/agent/rank_names.hpp"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "base/files/tree.hpp"
#include "base/id.hpp"
#include "base/text.hpp"

namespace tutti::agent {

using keeper::RankKey;

std::optional<RankKey> parse_key(const std::string& name) {
  const auto parts = split(name, '.');
  if (parts.size() != 3) return std::nullopt;
  std::array<std::uint64_t, 3> numbers{};
  for (std::size_t at = 0; at < 3; ++at) {
    const auto parsed = parse_id_number(parts[at]);
    const bool counts = at > 0;  // attempts and ranks
    if (!parsed || (counts && *parsed > std::numeric_limits<std::int32_t>::max())) return std::nullopt;
    numbers[at] = *parsed;
  }
  return RankKey{cluster::JobId(numbers[0]), static_cast<std::int32_t>(numbers[1]),
                 static_cast<std::int32_t>(numbers[2])};
}

std::string attempt_name(cluster::JobId job, std::int32_t attempt) {
  return job.text() + "." + std::to_string(attempt);
}

std::string place_name(cluster::JobId job, std::int32_t attempt, const std::string& cluster) {
  constexpr std::size_t told_apart_by = 8;  // letters of an id, which is random
  return attempt_name(job, attempt) + (cluster.empty() ? "" : "." + cluster.substr(0, told_apart_by));
}

Result<std::vector<RankEntry>> rank_entries(const std::string& ranks_folder, const std::string& prefix) {
  std::vector<RankEntry> entries;
  const files::FileDescriptor folder(::open(ranks_folder.c_str(), files::folder_flags));
  if (!folder.valid() && errno == ENOENT) return entries;
  const files::Listing listing = folder.valid() ? files::list_open_folder(folder) : nullptr;
  if (!listing) return failed_errno("cannot read " + ranks_folder, errno);
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr && errno != 0) return failed_errno("cannot read " + ranks_folder, errno);
    if (entry == nullptr) return entries;
    const std::string name = entry->d_name;
    // Most of thousands are of others than those that are looked for.
    const auto key = name.starts_with(prefix) ? parse_key(name) : std::nullopt;
    if (!key) continue;
    struct stat status {};
    const bool asked = entry->d_type == DT_UNKNOWN &&
                       ::fstatat(folder.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    entries.push_back({*key, ranks_folder + "/" + name,
                       asked ? S_ISDIR(status.st_mode) : entry->d_type == DT_DIR,
                       asked ? S_ISLNK(status.st_mode) : entry->d_type == DT_LNK});
  }
}

std::string owner_of(const RankKey& key) { return "rank " + key.text(); }
std::string owner_of(cluster::JobId job) { return "job " + job.text(); }

}  // namespace tutti::agent
