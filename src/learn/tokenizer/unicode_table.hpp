// Which code points are letters and numbers. Constants.
#pragma once

#include <span>

namespace tutti::tokenizer {

struct CodeRange {
  char32_t first;
  char32_t last;
};

// Sorted, without overlaps.
extern const std::span<const CodeRange> letters;  // \p{L}
extern const std::span<const CodeRange> numbers;  // \p{N}

}  // namespace tutti::tokenizer
