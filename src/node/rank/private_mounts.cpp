#include "node/rank/private_mounts.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "node/rank/private_memory.hpp"

namespace tutti::rank {
namespace {

// As /tmp is: everybody writes there, and removes what is his own.
constexpr mode_t shared_place = 01777;

struct Place {
  std::string_view name;  // in the folder of the attempt
  const char* target;
  bool in_memory = false;
  bool stays_empty = false;
};
// In the last one the managers of users listen, which start processes elsewhere than in a rank's cgroup.
constexpr std::array places_of_an_attempt{Place{"tmp", "/tmp"}, Place{"var-tmp", "/var/tmp"},
                                          Place{.name = "shm", .target = "/dev/shm", .in_memory = true},
                                          Place{.name = "run", .target = "/run/user", .stays_empty = true}};
constexpr const char* message_queues = "/dev/mqueue";
// As linux/magic.h has them.
constexpr std::uint64_t tmpfs_kind = 0x01021994;
constexpr std::uint64_t ramfs_kind = 0x858458f6;

std::string source_of(const PrivatePlaces& places, const Place& place) {
  return (place.in_memory ? places.memory : places.folder) + "/" + std::string(place.name);
}

Result<> make_closed_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return {};
  const int why = errno;
  struct stat status {};
  if (why != EEXIST || lstat(path.c_str(), &status) != 0) return failed_errno("cannot make " + path, why);
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 0077) != 0)
    return failed("cannot make " + path + ": something else is in its place").remedy("remove it");
  return {};
}

bool is_folder(const char* path) {
  struct stat status {};
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

// Slaves, not private: what the host unmounts goes here, too, and a disk is not kept busy by a rank.
bool leave_the_hosts_mounts() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0;
}

// The names of its queues, where the host has those of its own.
bool show_own_queues() {
  constexpr unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  return !is_folder(message_queues) || mount("mqueue", message_queues, "mqueue", flags, nullptr) == 0 ||
         errno == ENODEV;
}

// An instance of its own: options of the host's would hold for everybody.
bool hide_processes_of_others() {
  return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") == 0;
}

}  // namespace

bool is_below_private_place(const std::string& path) {
  for (const Place& place : places_of_an_attempt) {
    const std::string_view target = place.target;
    if (path == target || path.starts_with(std::string(target) + "/")) return true;
  }
  return false;
}

bool is_in_memory(const char* path) {
  struct statfs status {};
  if (statfs(path, &status) != 0) return false;
  const auto kind = static_cast<std::uint64_t>(status.f_type) & 0xFFFFFFFF;
  return kind == tmpfs_kind || kind == ramfs_kind;
}

bool can_have_private_mounts() {
  const pid_t child = fork();
  // Between here and its end it does nothing that a process of many threads may not do behind a fork.
  if (child == 0)
    _exit(leave_the_hosts_mounts() && leave_the_hosts_memory() && hide_processes_of_others() ? 0 : 1);
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Result<> make_private_places(const PrivatePlaces& places) {
  for (const std::string& folder : {places.folder, places.memory})
    if (auto made = make_closed_folder(folder); !made) return made;
  for (const Place& place : places_of_an_attempt) {
    const std::string path = source_of(places, place);
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed_errno("cannot make " + path, errno);
    // Nobody but this user reaches it by this path, so that it is what was made.
    if (chmod(path.c_str(), shared_place) != 0) return failed_errno("cannot make " + path, errno);
  }
  return {};
}

int enter_private_places(const PrivatePlaces& places) {
  if (!leave_the_hosts_mounts()) return errno;
  if (const int why = enter_memory_of(places.folder); why != 0) return why;
  for (const Place& place : places_of_an_attempt) {
    if (!is_folder(place.target)) continue;
    const std::string source = source_of(places, place);
    if (mount(source.c_str(), place.target, nullptr, MS_BIND, nullptr) != 0) return errno;
    constexpr unsigned long closed = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV;
    const unsigned long flags = place.stays_empty ? closed | MS_NOEXEC | MS_RDONLY : closed;
    if (mount(nullptr, place.target, nullptr, flags, nullptr) != 0) return errno;
  }
  if (!show_own_queues()) return errno;
  return hide_processes_of_others() ? 0 : errno;
}

}  // namespace tutti::rank
