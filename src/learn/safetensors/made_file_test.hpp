// Safetensors files put together by hand, byte by byte, and not by the code under test.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::safetensors {

inline std::string made_length(std::uint64_t length) {
  std::string bytes;
  for (int at = 0; at < 8; ++at) bytes += static_cast<char>(length >> (8 * at) & 0xffU);
  return bytes;
}

inline std::string made_file(const std::string& json, const std::string& data) {
  return made_length(json.size()) + json + data;
}

}  // namespace tutti::safetensors
