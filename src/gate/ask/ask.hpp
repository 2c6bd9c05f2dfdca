// What a gateway has to know of a request that it passes on: a few members of its JSON, found without keeping
// the rest, which whoever answers it reads and judges. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::gate {

inline constexpr std::size_t model_bytes_max = 1024;
// Prompts that begin alike are told by their marks: a hash of all up to each of these borders.
inline constexpr std::size_t mark_bytes = 512;
inline constexpr std::size_t marks_max = 256;
// About so many bytes of text make a token, and so many tokens are expected of an answer without a bound.
inline constexpr std::int64_t token_bytes = 4;
inline constexpr std::int64_t answer_tokens_expected = 256;

struct Ask {
  std::string model;  // "": it names none
  bool streams = false;
  // It streams one answer, so that another one can go on with it.
  bool may_go_on = false;
  std::int64_t prompt_tokens = 0;  // about
  std::int64_t answer_tokens = 0;  // about, all answers together
  std::vector<std::uint64_t> marks;
};

// Of the body of a request for text or embeddings. Invalid where it is no JSON object as far as it was
// looked at, or says twice what is looked at.
Result<Ask> read_ask(std::string_view body);

// What a whole answer says that it has taken, prompt and all; 0 where it does not say.
std::int64_t told_tokens(std::string_view answer);

// The same request with one member more, in front of the others. The body is one that was read.
std::string with_member(std::string_view body, std::string_view name, std::string_view json);

}  // namespace tutti::gate
