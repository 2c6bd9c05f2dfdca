#include "base/bytes.hpp"

#include <charconv>

namespace tutti {

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    hex += digits[std::to_integer<std::size_t>(byte >> 4)];
    hex += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return hex;
}

Result<std::vector<std::byte>> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return invalid("hexadecimal text has an odd number of digits");
  std::vector<std::byte> bytes(hex.size() / 2);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    unsigned char value = 0;
    const char* pair = hex.data() + 2 * at;
    if (std::from_chars(pair, pair + 2, value, 16).ptr != pair + 2) {
      return invalid("not a hexadecimal digit at position " + std::to_string(2 * at));
    }
    bytes[at] = std::byte{value};
  }
  return bytes;
}

}  // namespace tutti
