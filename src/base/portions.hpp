// How those who ask share what is bounded for all of them together. Nobody may come to hold more than three
// times what is left: one alone gets three quarters of it, and whoever comes later finds room, however much
// the first one wants. A value.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace tutti {

class Portions {
 public:
  explicit Portions(std::size_t most) : most_(most) {}

  // False: there is no room, or none for him. Who holds nothing may take all that is left.
  bool take(const std::string& who, std::size_t count = 1);
  void give_back(const std::string& who, std::size_t count = 1);

  std::size_t all() const { return all_; }
  std::size_t of(const std::string& who) const;

 private:
  std::size_t most_;
  std::size_t all_ = 0;
  std::map<std::string, std::size_t> held_;
};

}  // namespace tutti
