// The kinds of numbers in a safetensors file, and how those that models are made of become floats and back.
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.hpp"

namespace tutti::safetensors {

enum class Type { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

std::size_t size_of(Type type);       // bytes of one element
std::string_view name_of(Type type);  // as a header spells it: "F32", "BOOL"
Result<Type> parse_type(std::string_view name);

// What a tensor of this shape takes; nothing if a size is negative or the product is no number of bytes.
std::optional<std::uint64_t> bytes_of(Type type, std::span<const std::int64_t> shape);

// F32, F16 and BF16: the types that the two functions below take.
bool is_weight(Type type);
// Each number exactly. As many floats as the bytes hold.
void to_floats(Type type, std::span<const std::byte> bytes, std::span<float> floats);
// Each number to the nearest one of the type, a tie to the even one; what is too large becomes infinite.
void from_floats(std::span<const float> floats, Type type, std::span<std::byte> bytes);

}  // namespace tutti::safetensors
