// What happened, as lines of text: the last ones for people, and one number over all of them that tells two
// histories apart. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/time.hpp"

namespace tutti::sim {

class Trace {
 public:
  // With `keep_all` every line is kept, else only the last ones.
  explicit Trace(bool keep_all) : keep_all_(keep_all) {}

  void add(Duration at, const std::string& what);

  std::uint64_t digest() const { return digest_; }
  std::uint64_t count() const { return count_; }
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  bool keep_all_;
  std::uint64_t digest_ = 0;
  std::uint64_t count_ = 0;
  std::deque<std::string> lines_;
};

}  // namespace tutti::sim
