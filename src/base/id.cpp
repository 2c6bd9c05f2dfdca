#include "base/id.hpp"

#include <charconv>

namespace tutti {

Result<std::uint64_t> parse_id_number(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  const bool leading_zero = text.size() > 1 && text.front() == '0';
  if (parsed.ec != std::errc() || parsed.ptr != end || leading_zero) {
    return invalid("'" + std::string(text.substr(0, 64)) + "' is not an id")
        .remedy("an id is a whole number, such as 42");
  }
  return number;
}

}  // namespace tutti
