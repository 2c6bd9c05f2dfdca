#include "serve/infer/numbers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

namespace tutti::serve::infer {
namespace {

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T at(const std::string& bytes, std::size_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

template <class Whole>
bool append_whole(const json::Value& value, std::string& bytes) {
  const auto whole = value.whole();
  if (!whole || *whole < std::numeric_limits<Whole>::min() || *whole > std::numeric_limits<Whole>::max())
    return false;
  append(bytes, static_cast<Whole>(*whole));
  return true;
}

// A number that becomes infinite is none that the type has.
template <class Convert>
bool append_real(const json::Value& value, std::string& bytes, const Convert& convert, double most) {
  const auto number = value.number();
  if (!number || std::abs(*number) > most) return false;
  append(bytes, convert(*number));
  return true;
}

bool append_number(const json::Value& value, DataType type, std::string& bytes) {
  constexpr double half_most = 65'504;
  constexpr double bfloat_most = 3.3895313892515355e38;
  constexpr double float_most = std::numeric_limits<float>::max();
  switch (type) {
    case DataType::boolean: {
      const auto whole = value.whole();
      const auto boolean =
          whole && (*whole == 0 || *whole == 1) ? std::optional(*whole == 1) : value.boolean();
      if (boolean) append(bytes, static_cast<std::uint8_t>(*boolean ? 1 : 0));
      return boolean.has_value();
    }
    case DataType::uint8:
      return append_whole<std::uint8_t>(value, bytes);
    case DataType::int8:
      return append_whole<std::int8_t>(value, bytes);
    case DataType::int16:
      return append_whole<std::int16_t>(value, bytes);
    case DataType::int32:
      return append_whole<std::int32_t>(value, bytes);
    case DataType::int64:
      return append_whole<std::int64_t>(value, bytes);
    case DataType::fp16:
      return append_real(
          value, bytes, [](double number) { return half_of(static_cast<float>(number)); }, half_most);
    case DataType::bf16:
      return append_real(
          value, bytes, [](double number) { return bfloat_of(static_cast<float>(number)); }, bfloat_most);
    case DataType::fp32:
      return append_real(
          value, bytes, [](double number) { return static_cast<float>(number); }, float_most);
    case DataType::fp64:
      return append_real(
          value, bytes, [](double number) { return number; }, std::numeric_limits<double>::max());
  }
  return false;
}

class NumberReader {
 public:
  NumberReader(DataType type, const Dimensions& shape, std::size_t bytes) : type_(type), shape_(shape) {
    bytes_.reserve(bytes);
  }

  Result<> nested(const json::Value& value, std::size_t level) {
    if (level == shape_.size()) return number(value);
    const json::Array* const list = value.list();
    if (list == nullptr || list->size() != static_cast<std::size_t>(shape_[level]))
      return invalid("data does not have the shape " + text_of(shape_));
    for (const json::Value& each : *list) {
      if (auto read = nested(each, level + 1); !read) return read;
    }
    return {};
  }
  Result<> number(const json::Value& value) {
    if (append_number(value, type_, bytes_)) return {};
    return invalid("data has what is no " + std::string(name_of(type_)))
        .remedy(value.is_null() ? "a NaN or an infinity travels as binary data" : "");
  }
  std::string take() { return std::move(bytes_); }

 private:
  const DataType type_;
  const Dimensions& shape_;
  std::string bytes_;
};

template <class T>
void write_one(T number, std::string& out) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(number)) {
      out += "null";
      return;
    }
  }
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

void write_number(const Tensor& tensor, std::size_t index, std::string& out) {
  switch (tensor.type) {
    case DataType::boolean:
      out += tensor.bytes[index] != 0 ? "true" : "false";
      return;
    case DataType::uint8:
      return write_one<int>(at<std::uint8_t>(tensor.bytes, index), out);
    case DataType::int8:
      return write_one<int>(at<std::int8_t>(tensor.bytes, index), out);
    case DataType::int16:
      return write_one(at<std::int16_t>(tensor.bytes, index), out);
    case DataType::int32:
      return write_one(at<std::int32_t>(tensor.bytes, index), out);
    case DataType::int64:
      return write_one(at<std::int64_t>(tensor.bytes, index), out);
    case DataType::fp16:
      return write_one(from_half(at<std::uint16_t>(tensor.bytes, index)), out);
    case DataType::bf16:
      return write_one(from_bfloat(at<std::uint16_t>(tensor.bytes, index)), out);
    case DataType::fp32:
      return write_one(at<float>(tensor.bytes, index), out);
    case DataType::fp64:
      return write_one(at<double>(tensor.bytes, index), out);
  }
}

}  // namespace

std::uint16_t half_of(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const auto sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
  const std::uint32_t size = bits & 0x7FFFFFFFU;
  if (size > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);   // no number
  if (size >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 65,536 and more
  if (size < 0x38800000U) {
    // Below 2^-14 a step is 2^-24: an addition lets the machine round to it.
    const float steps = std::bit_cast<float>(size) * 16'777'216.0F;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyint(steps)));
  }
  const std::uint32_t odd = size >> 13U & 1U;
  return static_cast<std::uint16_t>(sign | ((size - 0x38000000U + 0xFFFU + odd) >> 13U));
}

float from_half(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = bits >> 10U & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1FU) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
  const float size = static_cast<float>(fraction) / 16'777'216.0F;
  return sign != 0 ? -size : size;
}

std::uint16_t bfloat_of(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

float from_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

Result<std::string> read_numbers(const json::Value& data, DataType type, const Dimensions& shape) {
  const auto bytes = bytes_of(type, shape);
  if (!bytes) return bytes.error();
  const json::Array* const list = data.list();
  if (list == nullptr) return invalid("data must be a list of numbers");
  const std::size_t count = *bytes / bytes_of(type);
  // What is reserved is never more than what was sent.
  NumberReader reader(type, shape, std::min<std::size_t>(*bytes, list->size() * sizeof(json::Value)));
  const bool is_flat = list->empty() || list->front().list() == nullptr;
  if (is_flat && list->size() != count)
    return invalid("data has " + std::to_string(list->size()) + " numbers, and the shape " + text_of(shape) +
                   " has " + std::to_string(count));
  if (is_flat) {
    for (const json::Value& each : *list) {
      if (auto read = reader.number(each); !read) return std::move(read).error();
    }
  } else if (auto read = reader.nested(data, 0); !read) {
    return std::move(read).error();
  }
  return reader.take();
}

void write_numbers(const Tensor& tensor, std::string& out) {
  const std::size_t count = tensor.bytes.size() / bytes_of(tensor.type);
  out += '[';
  for (std::size_t index = 0; index < count; ++index) {
    if (index > 0) out += ',';
    write_number(tensor, index, out);
  }
  out += ']';
}

}  // namespace tutti::serve::infer
