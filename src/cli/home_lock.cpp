#include "cli/home_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/files/files.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

constexpr auto lock_look_every = std::chrono::milliseconds(20);

// On a disk that can only be read what runs is to be ended all the same, and a lock writes nothing.
files::FileDescriptor open_lock(const std::string& path) {
  files::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.valid() || errno != EROFS) return file;
  files::FileDescriptor readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!readable.valid()) errno = EROFS;
  return readable;
}

}  // namespace

// The processes that the command starts do not inherit it: they live longer than the command.
Result<HomeLock> HomeLock::take(const std::string& home, Duration patience) {
  if (auto made = files::make_folders(home); !made) return std::move(made).error();
  const std::string path = home + "/lock";
  files::FileDescriptor file = open_lock(path);
  if (!file.valid()) return failed_errno("cannot open " + path, errno);
  const auto give_up_at = std::chrono::steady_clock::now() + patience;
  for (bool told = false; ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; told = true) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed_errno("cannot lock " + path, errno);
    if (std::chrono::steady_clock::now() > give_up_at)
      return failed("another command starts or ends the local cluster, and does not come to its end")
          .within(home)
          .remedy("end that command, or keep another cluster apart with TUTTI_HOME");
    if (!told) print_note("waits for another command that starts or ends the local cluster in " + home);
    std::this_thread::sleep_for(lock_look_every);
  }
  return HomeLock(std::move(file));
}

}  // namespace tutti::cli
