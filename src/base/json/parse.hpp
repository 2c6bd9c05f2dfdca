// JSON text from outside into a value. Strict, as RFC 8259 has it, and bounded: whatever the bytes are, the
// answer is a value or an error that says at which byte and why. Pure.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "base/json/value.hpp"
#include "base/result.hpp"

namespace tutti::json {

inline constexpr std::size_t text_bytes_max = std::size_t{1} << 30;
inline constexpr std::size_t depth_max = 64;  // lists and objects inside one another

// The message of an object in which readers might see either of two members.
inline constexpr std::string_view key_is_there_twice = "a key is there twice";

// That of a text that scan() has found too much in.
inline constexpr std::string_view has_too_many_values = "it has more values than are taken here";

// All of the text is one value, with nothing but white space around it. Whole numbers beyond 64 bits are read
// as the nearest double.
Result<Value> parse(std::string_view text);

// What parse() would say of the text, and that it has at most so many values, those inside others counted
// too. Nothing is kept of it, and no more of it is read than decides. Members with one of the keys `booleans`
// are true, false or null.
Result<> scan(std::string_view text, std::size_t values_max, const std::set<std::string>& booleans = {});

}  // namespace tutti::json
