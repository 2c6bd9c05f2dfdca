#include "lab/sim/trace.hpp"

#include <array>
#include <cstdio>

#include "base/bytes.hpp"
#include "base/hash/hash.hpp"

namespace tutti::sim {
namespace {

constexpr std::size_t last_lines = 30;

}  // namespace

void Trace::add(Duration at, const std::string& what) {
  std::array<char, 32> time{};
  std::snprintf(time.data(), time.size(), "%11.6f ", std::chrono::duration<double>(at).count());
  lines_.push_back(time.data() + what);
  // Each line is hashed with the digest so far: the order counts.
  digest_ = hash64(as_bytes(lines_.back()), digest_);
  ++count_;
  if (!keep_all_ && lines_.size() > last_lines) lines_.pop_front();
}

}  // namespace tutti::sim
