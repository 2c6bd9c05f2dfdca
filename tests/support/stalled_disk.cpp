#include "support/stalled_disk.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tutti::support {
namespace {

constexpr std::size_t request_bytes_max = std::size_t{1} << 20;

template <class Body>
void reply(int device, std::uint64_t request, const Body& body) {
  struct {
    fuse_out_header head{};
    Body body;
  } message{.body = body};
  message.head = {.len = sizeof message, .error = 0, .unique = request};
  [[maybe_unused]] const ssize_t written = ::write(device, &message, sizeof message);
}

void refuse(int device, std::uint64_t request, int error_number) {
  const fuse_out_header head{.len = sizeof head, .error = -error_number, .unique = request};
  [[maybe_unused]] const ssize_t written = ::write(device, &head, sizeof head);
}

}  // namespace

StalledDisk::StalledDisk(std::string path) : path_(std::move(path)) {
  std::filesystem::create_directories(path_);
  device_ = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device_ < 0) return;
  const std::string options = "fd=" + std::to_string(device_) + ",rootmode=40000,user_id=0,group_id=0";
  mounted_ = ::mount("tutti-test", path_.c_str(), "fuse", 0, options.c_str()) == 0;
}

StalledDisk::~StalledDisk() {
  fail();
  if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
}

// Without its server the disk fails, and who waits goes on.
void StalledDisk::fail() {
  if (device_ >= 0) ::close(std::exchange(device_, -1));
}

HungFile::HungFile(std::string path, Answers answers)
    : path_(std::move(path)),
      answers_(answers),
      device_(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC)),
      over_(::eventfd(0, EFD_CLOEXEC)) {
  if (!device_.valid()) return;
  const std::string options =
      "fd=" + std::to_string(device_.get()) + ",rootmode=100644,user_id=0,group_id=0,allow_other";
  mounted_ = ::mount("tutti-test", path_.c_str(), "fuse", 0, options.c_str()) == 0;
  if (mounted_) server_ = std::thread([this] { serve(); });
}

HungFile::~HungFile() {
  if (!mounted_) return;
  ::eventfd_write(over_.get(), 1);
  server_.join();
  device_.reset();
  ::umount2(path_.c_str(), MNT_DETACH);
}

void HungFile::serve() const {
  std::string buffer(request_bytes_max, '\0');
  for (;;) {
    pollfd events[] = {{.fd = over_.get(), .events = POLLIN, .revents = 0},
                       {.fd = device_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(events, std::size(events), -1) < 0 && errno != EINTR) return;
    if (events[0].revents != 0) return;
    const ssize_t count = ::read(device_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == ENODEV) return;
    if (count >= static_cast<ssize_t>(sizeof(fuse_in_header)))
      answer(buffer.substr(0, static_cast<std::size_t>(count)));
  }
}

void HungFile::answer(const std::string& request) const {
  fuse_in_header head{};
  std::memcpy(&head, request.data(), sizeof head);
  if (head.opcode == FUSE_INIT) {
    fuse_init_out init{};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = FUSE_KERNEL_MINOR_VERSION;
    init.max_write = 65'536;
    return reply(device_.get(), head.unique, init);
  }
  if (answers_ == Answers::nothing || head.opcode == FUSE_WRITE) return;
  if (head.opcode == FUSE_OPEN) return reply(device_.get(), head.unique, fuse_open_out{});
  if (head.opcode == FUSE_GETATTR) {
    fuse_attr_out attributes{};
    attributes.attr_valid = 3'600;
    attributes.attr.ino = head.nodeid;
    attributes.attr.mode = S_IFREG | 0644;
    attributes.attr.nlink = 1;
    return reply(device_.get(), head.unique, attributes);
  }
  refuse(device_.get(), head.unique, ENOSYS);
}

}  // namespace tutti::support
