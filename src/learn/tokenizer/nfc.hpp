// Unicode's normal form C: a letter and its marks are one code point where there is one, and marks stand in
// one order. Bytes that are no UTF-8 stay as they are. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace tutti::tokenizer {

// A quick look: true for nearly all text that people write, and then to_nfc() would change nothing.
bool is_surely_nfc(std::string_view text);

std::string to_nfc(std::string_view text);

}  // namespace tutti::tokenizer
