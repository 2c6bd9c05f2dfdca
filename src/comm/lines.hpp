// Cache lines: data is cut at them, so that no two ranks write to the same one.
#pragma once

#include <cstddef>

namespace tutti::comm {

inline constexpr std::size_t line_bytes = 64;

constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

// Parts of one length, in whole lines; the last may be shorter.
constexpr std::size_t part_bytes(std::size_t bytes, std::size_t parts) {
  return whole_lines((bytes + parts - 1) / parts);
}

}  // namespace tutti::comm
