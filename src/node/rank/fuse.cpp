#include "node/rank/fuse.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"

namespace tutti::rank {
namespace {

constexpr std::size_t number_bytes_max = 64;

bool is_waited_for(const std::string& disk) {
  const auto waiting = files::read_file(disk + "/waiting", number_bytes_max);
  return waiting && *waiting && trim(**waiting) != "0";
}

bool abort_disk(const std::string& disk) {
  const files::FileDescriptor file(open((disk + "/abort").c_str(), O_WRONLY | O_CLOEXEC));
  return file.valid() && write(file.get(), "1", 1) == 1;
}

}  // namespace

std::size_t abort_waiting_disks_of(uid_t user, const std::string& listing) {
  const auto disks = files::list_folder(listing);
  std::size_t aborted = 0;
  for (const std::string& name : disks&&* disks ? **disks : std::vector<std::string>()) {
    const std::string disk = listing + "/" + name;
    struct stat status {};
    if (stat(disk.c_str(), &status) != 0 || status.st_uid != user || !is_waited_for(disk)) continue;
    if (abort_disk(disk)) ++aborted;
  }
  return aborted;
}

}  // namespace tutti::rank
