// Regular expressions as grammars: the subset that has a finite machine and no surprises. Letters are those
// of UTF-8.
//
// Known: letters, `.`, classes with ranges, \d \w \s and their opposites, \n \r \t \f \v \0 \xHH \uHHHH,
// groups, `|`,
// `*` `+` `?` `{m}` `{m,}` `{m,n}` (a `?` behind them changes nothing), `^` at the very beginning and `$` at
// the very end. Refused by name: back-references, looking ahead and behind, other anchors, and what is too
// large. Pure.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.hpp"
#include "serve/constrain/effort.hpp"
#include "serve/constrain/grammar.hpp"

namespace tutti::serve {

inline constexpr std::size_t pattern_bytes_max = 4'096;
inline constexpr std::size_t pattern_states_max = 5'000;  // of its own machine
inline constexpr int pattern_repeats_max = 1'000;
inline constexpr int pattern_depth_max = 64;  // groups inside one another

struct PatternStyle {
  bool in_json_string = false;  // quotes, backslashes, tabs and ends of lines have a backslash, other control
                                // letters are left out
  bool finds = false;           // without ^ and $ it may stand anywhere in the text, as JSON schemas have it
};

// From a node of a grammar to where the pattern has been read.
Result<NodeId> add_pattern(Grammar& grammar, NodeId from, std::string_view pattern, PatternStyle style,
                           Effort& effort);

}  // namespace tutti::serve
