#include "node/agent/membership.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/id.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "control/wire/messages.hpp"
#include "node/agent/rank_names.hpp"

namespace tutti::agent {
namespace {

constexpr std::size_t identity_bytes = 16;
constexpr std::size_t small_file_bytes_max = 4096;
constexpr std::size_t devices_file_bytes_max = 65'536;
constexpr int aside_folders_max = 10'000;
constexpr std::string_view aside_prefix = "other-cluster-";

// 0 if the text is none.
std::uint64_t job_number(std::string_view text) {
  const auto number = parse_id_number(text);
  return number && *number <= wire::jobs_seen_max ? *number : 0;
}

}  // namespace

Result<std::string> folder_identity(const std::string& folder) {
  const std::string path = folder + "/identity";
  auto content = files::read_file(path, small_file_bytes_max);
  if (!content) return std::move(content).error();
  if (*content) {
    std::string known(trim(**content));
    if (!known.empty() && wire::is_cluster_id(known)) return known;
  }
  std::array<std::byte, identity_bytes> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return failed_errno("the system gives no random bytes", errno);
  std::string identity = to_hex(random);
  if (auto written = files::replace_file(path, identity + "\n", {.durable = true}); !written)
    return std::move(written).error();
  return identity;
}

std::string place_of(const std::string& folder) {
  std::array<char, HOST_NAME_MAX + 1> host{"?"};
  ::gethostname(host.data(), HOST_NAME_MAX);
  // Files of /proc have no size that could be asked beforehand.
  std::array<char, 64> boot{};
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re"); file != nullptr) {
    if (std::fgets(boot.data(), static_cast<int>(boot.size()), file) == nullptr) boot[0] = '\0';
    std::fclose(file);
  }
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) found = {};
  const std::string place = std::string(host.data()) + " " + std::string(trim(boot.data())) + " " +
                            std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
  return place.substr(0, wire::machine_bytes_max);
}

Result<keeper::Membership> read_membership(const std::string& folder) {
  const std::string path = folder + "/cluster";
  auto content = files::read_file(path, small_file_bytes_max);
  if (!content) return std::move(content).error();
  if (!*content) return keeper::Membership();
  keeper::Membership membership{std::string(trim(**content)), 0};
  if (membership.cluster.empty() || !wire::is_cluster_id(membership.cluster)) {
    return failed("it is damaged, so that it is not known whose ranks these are")
        .within(path)
        .remedy("move " + folder + " away when no rank of it runs any more");
  }
  // The note may be behind after a power cut; the folders of ranks tell as well.
  if (auto noted = files::read_file(folder + "/jobs-seen", small_file_bytes_max); noted && *noted)
    membership.jobs_seen = job_number(trim(**noted));
  if (auto ranks = files::list_folder(folder + "/ranks"); ranks && *ranks) {
    for (const std::string& name : **ranks)
      membership.jobs_seen = std::max(membership.jobs_seen, job_number(name.substr(0, name.find('.'))));
  }
  return membership;
}

// First what was counted in the old cluster: its numbers would be wrong in the new one.
Result<> MembershipNotes::write_cluster(const std::string& cluster) {
  const std::lock_guard lock(mutex_);
  if (cluster == cluster_) return {};
  if (auto written = write_jobs_seen(0); !written) return written;
  if (auto written = files::replace_file(folder_ + "/cluster", cluster + "\n", {.durable = true}); !written)
    return written;
  cluster_ = cluster;
  return {};
}

Result<> MembershipNotes::write(const keeper::Membership& membership) {
  if (auto written = write_cluster(membership.cluster); !written) return written;
  const std::lock_guard lock(mutex_);
  return write_jobs_seen(membership.jobs_seen);
}

Result<> MembershipNotes::write_jobs_seen(std::uint64_t jobs_seen) {
  if (jobs_seen == jobs_seen_) return {};
  auto written = files::replace_file(folder_ + "/jobs-seen", std::to_string(jobs_seen) + "\n");
  if (written) jobs_seen_ = jobs_seen;
  return written;
}

std::vector<cluster::Device> read_devices(const std::string& folder) {
  std::vector<cluster::Device> devices;
  const auto content = files::read_file(folder + "/devices", devices_file_bytes_max);
  if (!content || !*content) return devices;
  // One that has never answered is an empty line.
  for (const std::string_view uuid : split(**content, '\n'))
    devices.push_back({"unknown", Bytes(), std::string(uuid), -1, true});
  devices.pop_back();  // behind the last line
  return devices;
}

Result<> write_devices(const std::string& folder, const std::vector<cluster::Device>& devices) {
  std::string text;
  for (const cluster::Device& device : devices) text += device.uuid + "\n";
  return files::replace_file(folder + "/devices", text);
}

Result<std::string> put_ranks_aside(const std::string& folder, const std::string& cluster) {
  const std::string base = folder + "/" + std::string(aside_prefix) + cluster;
  std::string target = base;
  // It may have been of that cluster before, and put aside what it had then.
  for (int number = 2; ::access(target.c_str(), F_OK) == 0 && number < aside_folders_max; ++number)
    target = base + "." + std::to_string(number);
  if (auto made = files::make_folder(target, 0700); !made) return std::move(made).error();
  std::error_code failure;
  std::filesystem::rename(folder + "/ranks", target + "/ranks", failure);
  if (failure) return failed(failure.message()).within("cannot move " + folder + "/ranks to " + target);
  if (auto made = files::make_folder(folder + "/ranks", 0755); !made) return std::move(made).error();
  return target;
}

Aside find_aside(const std::string& folder) {
  Aside aside;
  const auto names = files::list_folder(folder);
  if (!names) {
    log::warning("{}", names.error().text());
    return aside;
  }
  for (const std::string& name : *names ? **names : std::vector<std::string>()) {
    if (!name.starts_with(aside_prefix)) continue;
    const std::string cluster = folder + "/" + name;
    const auto entries = rank_entries(cluster + "/ranks");
    if (!entries) {
      log::warning("{}", entries.error().text());
      continue;
    }
    bool is_empty = true;
    for (const RankEntry& entry : *entries) {
      if (!entry.is_folder) continue;
      aside.ranks.push_back(entry.path);
      is_empty = false;
    }
    if (is_empty) aside.empty.push_back(cluster);
  }
  return aside;
}

void forget_aside(const std::string& folder, const std::string& rank) {
  const auto ranks = std::filesystem::path(rank).parent_path();
  const auto cluster = ranks.parent_path();
  if (cluster.parent_path() != folder || !cluster.filename().string().starts_with(aside_prefix)) return;
  if (::rmdir(ranks.c_str()) == 0) ::rmdir(cluster.c_str());
}

}  // namespace tutti::agent
