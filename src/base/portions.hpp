// How those who ask share what is bounded for all of them together. Nobody may come to hold more than three
// times what is left: one alone gets three quarters of it, and whoever comes later finds room, however much
// the first one wants. Values.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace tutti {

inline constexpr std::size_t times_what_is_left = 3;

// Who holds how much of something.
class Holdings {
 public:
  void add(const std::string& who, std::size_t count);
  void remove(const std::string& who, std::size_t count);

  std::size_t all() const { return all_; }
  std::size_t of(const std::string& who) const;
  const std::map<std::string, std::size_t>& holders() const { return holders_; }

  friend bool operator==(const Holdings&, const Holdings&) = default;

 private:
  std::map<std::string, std::size_t> holders_;  // who hold something
  std::size_t all_ = 0;
};

class Portions {
 public:
  explicit Portions(std::size_t most) : most_(most) {}

  // False: there is no room, or none for him. Who holds nothing may take all that is left.
  bool take(const std::string& who, std::size_t count = 1);
  void give_back(const std::string& who, std::size_t count = 1) { held_.remove(who, count); }

  std::size_t all() const { return held_.all(); }
  std::size_t of(const std::string& who) const { return held_.of(who); }

 private:
  std::size_t most_;
  Holdings held_;
};

}  // namespace tutti
