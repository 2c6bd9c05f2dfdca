// What bounds a piece of a collective on this rank, and how it ended. Values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "comm/signal.hpp"

namespace tutti::comm {

struct Limits {
  Clock::time_point deadline;
  const Fault* fault = nullptr;
  // A fingerprint of the operation, the same on every member; those that differ are told apart by it.
  std::uint32_t descriptor = 0;
};

struct Outcome {
  enum class Kind {
    done,
    late,      // `member` did not come in time
    mismatch,  // `member` is in another operation
    closed,    // the connection to `member` has ended, or could not be made: then `text` says why
    fault,     // the world's fault says why
    failed,    // `text` says why
  };
  Kind kind = Kind::done;
  int member = -1;  // index in the group
  std::string text{};

  bool ok() const { return kind == Kind::done; }

  static Outcome late(int member) { return {Kind::late, member}; }
  static Outcome mismatch(int member) { return {Kind::mismatch, member}; }
  static Outcome closed(int member, std::string why = {}) { return {Kind::closed, member, std::move(why)}; }
  static Outcome fault() { return {Kind::fault}; }
  static Outcome failed(std::string text) { return {Kind::failed, -1, std::move(text)}; }
};

}  // namespace tutti::comm
