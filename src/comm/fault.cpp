#include "comm/fault.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/check.hpp"

namespace tutti::comm {

Fault::Fault(std::string file) : file_(std::move(file)), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TUTTI_CHECK(event_ >= 0, "out of file descriptors");
}

Fault::~Fault() { close(event_); }

bool Fault::raise(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    text_ = std::move(text);
    raised_.store(true, std::memory_order_release);
    write_file(text_);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event_, &one, sizeof one);
  return true;
}

void Fault::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!raised_.load(std::memory_order_relaxed)) write_file(text);
}

// Readers see the old text or the new one. A rank that cannot write it still fails with it.
void Fault::write_file(const std::string& text) const {
  if (file_.empty()) return;
  const std::string next = file_ + ".next";
  const int file = open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return;
  [[maybe_unused]] const auto written = write(file, text.data(), std::min(text.size(), file_bytes_max));
  close(file);
  [[maybe_unused]] const auto renamed = rename(next.c_str(), file_.c_str());
}

Error Fault::error() const {
  const std::lock_guard lock(mutex_);
  return failed(text_);
}

}  // namespace tutti::comm
