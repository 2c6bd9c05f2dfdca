#include "learn/safetensors/types.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.hpp"

namespace tutti::safetensors {
namespace {

struct Row {
  Type type;
  std::string_view name;
  std::size_t size;
};

// In the order of the enumeration.
constexpr std::array<Row, 10> rows{{{Type::f64, "F64", 8},
                                    {Type::f32, "F32", 4},
                                    {Type::f16, "F16", 2},
                                    {Type::bf16, "BF16", 2},
                                    {Type::i64, "I64", 8},
                                    {Type::i32, "I32", 4},
                                    {Type::i16, "I16", 2},
                                    {Type::i8, "I8", 1},
                                    {Type::u8, "U8", 1},
                                    {Type::boolean, "BOOL", 1}}};

const Row& row_of(Type type) { return rows.at(static_cast<std::size_t>(type)); }

constexpr std::uint32_t sign_mask = 0x80000000U;
constexpr std::uint32_t infinity_bits = 0x7f800000U;

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t bf16_from_float(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  // A NaN stays one even if only its low bits say so: they are cut off, so a high one is set.
  if ((bits & ~sign_mask) > infinity_bits) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  const std::uint32_t to_even = 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>((bits + to_even) >> 16);
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {
    // Zero and the subnormal numbers: multiples of 2^-24, which a float holds exactly.
    const auto magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F);
    return std::bit_cast<float>(sign | magnitude);
  }
  if (exponent == 0x1f) return std::bit_cast<float>(sign | infinity_bits | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t f16_from_float(float number) {
  constexpr std::uint32_t first_infinite = 0x477ff000U;  // 65520, half way between the largest and 2^16
  constexpr std::uint32_t first_normal = 0x38800000U;    // 2^-14
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t sign = (bits & sign_mask) >> 16;
  const std::uint32_t magnitude = bits & ~sign_mask;
  std::uint32_t half = 0;
  if (magnitude > infinity_bits) {
    half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= first_infinite) {
    half = 0x7c00U;
  } else if (magnitude >= first_normal) {
    const std::uint32_t to_even = 0xfffU + ((magnitude >> 13) & 1U);
    half = (magnitude - (112U << 23) + to_even) >> 13;
  } else {
    // The float's own addition rounds to multiples of 2^-24, the subnormal steps: they are the last bits of
    // 0.5.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  }
  return static_cast<std::uint16_t>(sign | half);
}

// The bytes of a file lie at any address.
template <float (*convert)(std::uint16_t)>
void widen(std::span<const std::byte> bytes, std::span<float> floats) {
  for (std::size_t at = 0; at < floats.size(); ++at) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + at * sizeof bits, sizeof bits);
    floats[at] = convert(bits);
  }
}

template <std::uint16_t (*convert)(float)>
void narrow(std::span<const float> floats, std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < floats.size(); ++at) {
    const std::uint16_t bits = convert(floats[at]);
    std::memcpy(bytes.data() + at * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace

std::size_t size_of(Type type) { return row_of(type).size; }
std::string_view name_of(Type type) { return row_of(type).name; }

Result<Type> parse_type(std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return row.type;
  }
  return invalid("there is no type of this name");
}

std::optional<std::uint64_t> bytes_of(Type type, std::span<const std::int64_t> shape) {
  std::uint64_t bytes = size_of(type);
  bool overflow = false;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    overflow = overflow || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes);
  }
  if (empty) return 0;
  if (overflow) return std::nullopt;
  return bytes;
}

bool is_weight(Type type) { return type == Type::f32 || type == Type::f16 || type == Type::bf16; }

void to_floats(Type type, std::span<const std::byte> bytes, std::span<float> floats) {
  TUTTI_CHECK(is_weight(type) && bytes.size() == floats.size() * size_of(type));
  if (type == Type::bf16) return widen<bf16_to_float>(bytes, floats);
  if (type == Type::f16) return widen<f16_to_float>(bytes, floats);
  std::ranges::copy(bytes, std::as_writable_bytes(floats).begin());
}

void from_floats(std::span<const float> floats, Type type, std::span<std::byte> bytes) {
  TUTTI_CHECK(is_weight(type) && bytes.size() == floats.size() * size_of(type));
  if (type == Type::bf16) return narrow<bf16_from_float>(floats, bytes);
  if (type == Type::f16) return narrow<f16_from_float>(floats, bytes);
  std::ranges::copy(std::as_bytes(floats), bytes.begin());
}

}  // namespace tutti::safetensors
