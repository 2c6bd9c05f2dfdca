// Numbers that name things, one type per kind of thing: a JobId cannot be passed where a NodeId is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti {

// Declared where the thing is: `using JobId = Id<struct JobTag>;`
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::uint64_t number) : number_(number) {}

  constexpr std::uint64_t number() const { return number_; }
  std::string text() const { return std::to_string(number_); }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::uint64_t number_ = 0;
};

// Decimal digits only: no sign, no blank, no leading zero, nothing behind it.
Result<std::uint64_t> parse_id_number(std::string_view text);

template <class Tag>
Result<Id<Tag>> parse_id(std::string_view text) {
  auto number = parse_id_number(text);
  if (!number) return std::move(number).error();
  return Id<Tag>(*number);
}

}  // namespace tutti

template <class Tag>
struct std::hash<tutti::Id<Tag>> {
  std::size_t operator()(tutti::Id<Tag> id) const noexcept { return std::hash<std::uint64_t>()(id.number()); }
};
