// Where the buffers of all members of a host lie, so that each can read and write them directly. One thread
// at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "comm/allocate.hpp"
#include "comm/outcome.hpp"
#include "comm/reduce.hpp"
#include "comm/slots.hpp"

namespace tutti::comm {

// What a member has for an operation. What is needed and lies in no shared buffer closes the direct way.
struct Offer {
  std::span<const std::byte> in{};
  bool needs_in = false;
  std::span<std::byte> out{};
  bool needs_out = false;
  Store staging = Store::cached;  // the first member's counts for all
};

struct Places {
  bool direct = false;  // the same answer on every member
  Store staging = Store::cached;
  // By member, if it is direct; null for what is not needed.
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
};

class PlaceExchange {
 public:
  explicit PlaceExchange(std::vector<pid_t> pids) : pids_(std::move(pids)) {}

  // Shows what this member has and learns it of all others.
  Outcome run(Slots& slots, const Offer& offer, const Limits& limits, Places& places);

 private:
  struct Header;  // what a member shows

  Outcome reach_all(const Offer& offer, std::span<const Header> headers, int me, Places& places);
  Result<std::byte*> reach(std::size_t member, const SharedPlace& place);

  std::vector<pid_t> pids_;
  SharedMappings mappings_;
};

}  // namespace tutti::comm
