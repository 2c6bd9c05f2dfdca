#include "learn/gguf/format.hpp"

#include <bit>
#include <cstring>

namespace tutti::gguf {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is, and numbers are copied as they are");

constexpr std::string_view magic = "GGUF";
constexpr std::uint32_t version = 3;

// The types of fields, by their numbers in the format.
constexpr std::uint32_t u32_field = 4;
constexpr std::uint32_t i32_field = 5;
constexpr std::uint32_t f32_field = 6;
constexpr std::uint32_t flag_field = 7;
constexpr std::uint32_t text_field = 8;
constexpr std::uint32_t list_field = 9;

template <class Number>
void put(std::string& bytes, Number number) {
  char copy[sizeof number];
  std::memcpy(copy, &number, sizeof number);
  bytes.append(copy, sizeof copy);
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<std::uint64_t>(text.size()));
  bytes += text;
}

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
}

}  // namespace

void Fields::begin(std::string_view name, std::uint32_t type) {
  ++count_;
  put_text(bytes_, name);
  put(bytes_, type);
}

void Fields::begin_list(std::string_view name, std::uint32_t type, std::size_t size) {
  begin(name, list_field);
  put(bytes_, type);
  put(bytes_, static_cast<std::uint64_t>(size));
}

void Fields::add(std::string_view name, std::uint32_t number) {
  begin(name, u32_field);
  put(bytes_, number);
}

void Fields::add(std::string_view name, float number) {
  begin(name, f32_field);
  put(bytes_, number);
}

void Fields::add(std::string_view name, bool flag) {
  begin(name, flag_field);
  bytes_ += static_cast<char>(flag ? 1 : 0);
}

void Fields::add(std::string_view name, std::string_view text) {
  begin(name, text_field);
  put_text(bytes_, text);
}

void Fields::add(std::string_view name, std::span<const std::string> texts) {
  begin_list(name, text_field, texts.size());
  for (const std::string& text : texts) put_text(bytes_, text);
}

void Fields::add(std::string_view name, std::span<const std::int32_t> numbers) {
  begin_list(name, i32_field, numbers.size());
  for (const std::int32_t number : numbers) put(bytes_, number);
}

void Fields::add(std::string_view name, std::span<const float> numbers) {
  begin_list(name, f32_field, numbers.size());
  for (const float number : numbers) put(bytes_, number);
}

std::int64_t Tensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::uint64_t Tensor::bytes() const {
  const auto count = static_cast<std::uint64_t>(elements());
  if (type == Type::q8_0) return count / q8_0_numbers * q8_0_bytes;
  return count * (type == Type::f32 ? 4 : 2);
}

Layout lay_out(const Fields& fields, std::span<const Tensor> tensors) {
  Layout layout;
  layout.head = magic;
  put(layout.head, version);
  put(layout.head, static_cast<std::uint64_t>(tensors.size()));
  put(layout.head, fields.count());
  layout.head += fields.bytes();
  std::uint64_t behind = 0;  // counted from the first tensor
  for (const Tensor& tensor : tensors) {
    put_text(layout.head, tensor.name);
    put(layout.head, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t at = tensor.shape.size(); at-- > 0;)
      put(layout.head, static_cast<std::uint64_t>(tensor.shape[at]));
    put(layout.head, static_cast<std::uint32_t>(tensor.type));
    put(layout.head, behind);
    layout.begins.push_back(behind);
    behind = aligned(behind + tensor.bytes());
  }
  layout.head.resize(aligned(layout.head.size()), '\0');
  for (std::uint64_t& begin : layout.begins) begin += layout.head.size();
  layout.file_bytes = layout.head.size() + behind;
  return layout;
}

}  // namespace tutti::gguf
