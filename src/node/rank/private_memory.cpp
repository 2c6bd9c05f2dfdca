#include "node/rank/private_memory.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <sstream>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

constexpr const char* note_name = "memory";
constexpr std::size_t note_bytes_max = 64;

// The namespace of a process that is in it; invalid if that has gone.
files::FileDescriptor memory_of(const std::string& note) {
  std::istringstream words(note);
  pid_t pid = 0;
  std::uint64_t start_time = 0;
  if (!(words >> pid >> start_time) || pid <= 0) return {};
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/ipc";
  files::FileDescriptor memory(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // Looked at when it is open: so it is not that of a later process with the same number.
  const auto process = read_process(pid);
  if (!process || process->start_time != start_time) return {};
  return memory;
}

}  // namespace

bool leave_the_hosts_memory() { return unshare(CLONE_NEWIPC) == 0; }

// They start together: the first one makes it, and the others find that one.
int enter_memory_of(const std::string& folder) {
  const std::string path = folder + "/" + note_name;
  const files::FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() || flock(file.get(), LOCK_EX) != 0) return errno;
  const auto noted = files::read_plain_file(path, note_bytes_max);
  const files::FileDescriptor memory = noted && *noted ? memory_of(**noted) : files::FileDescriptor();
  if (memory.valid()) return setns(memory.get(), CLONE_NEWIPC) == 0 ? 0 : errno;
  if (!leave_the_hosts_memory()) return errno;
  const auto own = read_process(getpid());
  if (!own || ftruncate(file.get(), 0) != 0) return EIO;
  const std::string note = std::to_string(getpid()) + " " + std::to_string(own->start_time);
  if (!files::write_at(file.get(), 0, as_bytes(note), path)) return errno != 0 ? errno : EIO;
  return 0;
}

}  // namespace tutti::rank
