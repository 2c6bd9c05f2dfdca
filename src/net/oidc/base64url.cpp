#include "net/oidc/base64url.hpp"

#include <cstdint>

namespace tutti::oidc {
namespace {

constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::uint32_t letter_bits = 6;
constexpr std::uint32_t byte_bits = 8;

}  // namespace

std::string to_base64url(std::string_view bytes) {
  std::string text;
  std::uint32_t held = 0;
  std::uint32_t bits = 0;
  for (const char byte : bytes) {
    held = held << byte_bits | static_cast<unsigned char>(byte);
    for (bits += byte_bits; bits >= letter_bits;) {
      bits -= letter_bits;
      text += letters[held >> bits & 63U];
    }
  }
  if (bits > 0) text += letters[held << (letter_bits - bits) & 63U];
  return text;
}

std::optional<std::string> from_base64url(std::string_view text) {
  std::string bytes;
  std::uint32_t held = 0;
  std::uint32_t bits = 0;
  for (const char letter : text) {
    const std::size_t value = letters.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    held = held << letter_bits | static_cast<std::uint32_t>(value);
    bits += letter_bits;
    if (bits < byte_bits) continue;
    bits -= byte_bits;
    bytes += static_cast<char>(held >> bits & 255U);
  }
  // A letter that gives no byte, or bits that no byte has: another text stands for the same.
  if (bits >= letter_bits || (held & ((1U << bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

}  // namespace tutti::oidc
