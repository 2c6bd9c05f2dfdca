#include "comm/allocate.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

namespace tutti::comm {
namespace {

struct Registered {
  std::uint64_t id = 0;
  std::int32_t descriptor = -1;
  std::size_t bytes = 0;
};

// Which memory of this process is shared: collectives are called with plain pointers, and must find out.
struct Registry {
  std::shared_mutex mutex;
  std::map<const std::byte*, Registered> buffers;
  std::uint64_t last_id = 0;
};

Registry& registry() {
  static Registry the_one;
  return the_one;
}

void forget(const std::byte* data) {
  if (data == nullptr) return;
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.buffers.erase(data);
}

}  // namespace

SharedBuffer& SharedBuffer::operator=(SharedBuffer&& other) noexcept {
  if (this == &other) return *this;
  forget(data());
  segment_ = std::move(other.segment_);
  size_ = other.size_;
  return *this;
}

SharedBuffer::~SharedBuffer() { forget(data()); }

Result<SharedBuffer> allocate(std::size_t bytes) {
  auto segment = Segment::create("tutti-buffer", std::max<std::size_t>(bytes, 1));
  if (!segment) return std::move(segment).error();
  SharedBuffer buffer;
  buffer.segment_ = std::make_unique<Segment>(std::move(*segment));
  buffer.size_ = bytes;
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.buffers[buffer.data()] = {++all.last_id, buffer.segment_->descriptor(), buffer.segment_->size()};
  return buffer;
}

std::optional<SharedPlace> find_shared(std::span<const std::byte> piece) {
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  auto after = all.buffers.upper_bound(piece.data());
  if (after == all.buffers.begin()) return std::nullopt;
  const auto& [data, buffer] = *std::prev(after);
  const auto offset = static_cast<std::size_t>(piece.data() - data);
  if (offset > buffer.bytes || buffer.bytes - offset < piece.size()) return std::nullopt;
  return SharedPlace{
      .id = buffer.id, .descriptor = buffer.descriptor, .buffer_bytes = buffer.bytes, .offset = offset};
}

Result<std::byte*> SharedMappings::reach(pid_t pid, const SharedPlace& place, std::size_t bytes) {
  if (place.offset > place.buffer_bytes || place.buffer_bytes - place.offset < bytes) {
    return failed("a peer named a piece outside its shared buffer");
  }
  const std::pair key(pid, place.id);
  auto found = mappings_.find(key);
  if (found == mappings_.end()) {
    auto segment = Segment::open(pid, place.descriptor, place.buffer_bytes);
    if (!segment) return std::move(segment).error();
    if (mappings_.size() >= mappings_max) {
      mappings_.erase(std::min_element(mappings_.begin(), mappings_.end(), [](const auto& a, const auto& b) {
        return a.second.used < b.second.used;
      }));
    }
    found = mappings_.emplace(key, Mapping{std::move(*segment)}).first;
  }
  if (found->second.segment.size() < place.offset + bytes) return failed("a peer's shared buffer has shrunk");
  found->second.used = ++uses_;
  return found->second.segment.data() + place.offset;
}

}  // namespace tutti::comm
