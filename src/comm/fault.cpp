#include "comm/fault.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/check.hpp"

namespace tutti::comm {

Fault::Fault() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TUTTI_CHECK(event_ >= 0, "out of file descriptors");
}

Fault::~Fault() { close(event_); }

bool Fault::raise(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    text_ = std::move(text);
    raised_.store(true, std::memory_order_release);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event_, &one, sizeof one);
  return true;
}

Error Fault::error() const {
  const std::lock_guard lock(mutex_);
  return failed(text_);
}

}  // namespace tutti::comm
