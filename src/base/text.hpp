// Small helpers for words that people typed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// How many letters must be added, removed, replaced or swapped with their neighbour to turn one into the
// other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that `word` was probably meant to be: close enough, the first one among equals.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

// "did you mean 'x'?", or nothing when no candidate is close.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// The bytes of the code point at the beginning, 0 if there is none that is valid UTF-8.
std::size_t utf8_length(std::string_view text);

// The text with every byte that is not part of valid UTF-8 replaced by U+FFFD: programs write any bytes,
// protocols take only text.
std::string valid_utf8(std::string_view text);
// So much of valid UTF-8 as fits into so many bytes: whole letters.
std::string_view cut_utf8(std::string_view text, std::size_t bytes_max);

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

}  // namespace tutti
