// Buffers that live in shared memory, so that the ranks of one host reduce straight from and into them:
// gradients that are kept in one need no copy. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "base/result.hpp"
#include "comm/segment.hpp"

namespace tutti::comm {

// Owns its memory: zeroed, aligned to a page.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(SharedBuffer&&) noexcept = default;
  SharedBuffer& operator=(SharedBuffer&& other) noexcept;
  ~SharedBuffer();

  std::byte* data() const { return segment_ ? segment_->data() : nullptr; }
  std::size_t size() const { return size_; }

 private:
  friend Result<SharedBuffer> allocate(std::size_t bytes);
  std::unique_ptr<Segment> segment_;
  std::size_t size_ = 0;
};

Result<SharedBuffer> allocate(std::size_t bytes);

// How another process of this host finds a piece of a shared buffer.
struct SharedPlace {
  std::uint64_t id = 0;  // of the buffer, unique in its process for ever; 0 is none
  std::int32_t descriptor = -1;
  std::uint32_t unused = 0;
  std::uint64_t buffer_bytes = 0;
  std::uint64_t offset = 0;
};

// Nothing if the piece is not inside one shared buffer of this process.
std::optional<SharedPlace> find_shared(std::span<const std::byte> piece);

// The buffers of other processes that this one has mapped so far. One owner, no locks.
class SharedMappings {
 public:
  // The piece of `bytes` at the place. Valid until `mappings_max` others were asked for.
  Result<std::byte*> reach(pid_t pid, const SharedPlace& place, std::size_t bytes);

 private:
  static constexpr std::size_t mappings_max = 1024;

  struct Mapping {
    Segment segment;
    std::uint64_t used = 0;
  };
  std::map<std::pair<pid_t, std::uint64_t>, Mapping> mappings_;
  std::uint64_t uses_ = 0;
};

}  // namespace tutti::comm
