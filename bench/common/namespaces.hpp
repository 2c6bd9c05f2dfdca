// Two network namespaces joined by a veth pair, for as long as the object lives: two hosts and the cable
// between them, without touching the network of this one. One thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/measure.hpp"

namespace tutti::bench {

class VethPair {
 public:
  // Fails with what is missing: the packages, or the rights of root.
  static Result<std::unique_ptr<VethPair>> make();
  VethPair(const VethPair&) = delete;
  VethPair& operator=(const VethPair&) = delete;
  ~VethPair();

  static std::string address(int end) { return "10.77.0." + std::to_string(end + 1); }

  // From here on neither end sends faster than this, such as "1gbit".
  Result<> limit_rate(const std::string& rate) const;

  // Runs rank 0 at one end and rank 1 at the other: what rank 0 printed.
  using WordsOfRank = std::function<std::vector<std::string>(int rank)>;
  Result<std::string> run(const WordsOfRank& words_of_rank, Duration timeout) const;

 private:
  VethPair();
  Result<> join() const;
  std::vector<std::string> inside(int end, const std::vector<std::string>& words) const;

  std::array<std::string, 2> names_;
};

}  // namespace tutti::bench
