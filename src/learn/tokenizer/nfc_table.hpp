// How code points are taken apart and put together; Hangul is arithmetic and not in here. Constants.
#pragma once

#include <span>

namespace tutti::tokenizer {

struct CombiningRange {
  char32_t first;
  char32_t last;
  unsigned combining_class;  // marks of different classes may change places
};

struct Replacement {
  char32_t code;
  char32_t by;
};

struct Composition {
  char32_t code;
  char32_t first;
  char32_t second;
};

// Each sorted by its first number.
extern const std::span<const CombiningRange> combining_ranges;
extern const std::span<const Replacement> replacements;
extern const std::span<const Composition> compositions;
extern const std::span<const char32_t>
    never_composed;  // of the compositions, those that are only taken apart

}  // namespace tutti::tokenizer
