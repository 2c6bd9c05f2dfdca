// GPT-2's alphabet, in which a tokenizer.json writes bytes: each of the 256 has a printable letter, such as Ġ
// for the blank. Pure functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::tokenizer {

std::string to_letters(std::string_view bytes);

// Nothing if a letter is not of the alphabet.
std::optional<std::string> from_letters(std::string_view letters);

}  // namespace tutti::tokenizer
