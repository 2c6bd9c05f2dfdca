// A GGUF file on paper, as llama.cpp publishes the format (version 3): fields with names, then what each
// tensor is and where it lies, then the tensors. Pure functions and values, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::gguf {

// Each tensor begins at a multiple of it, counted from where the first one begins.
constexpr std::uint64_t alignment_bytes = 32;

// How a tensor's numbers are written, by their numbers in the format.
enum class Type : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q8_0 = 8,  // 32 at a time: a scale in f16, then a byte each
  bf16 = 30,
};
constexpr std::int64_t q8_0_numbers = 32;
constexpr std::uint64_t q8_0_bytes = 34;

// What a file says of its model, in the order in which it was added.
class Fields {
 public:
  void add(std::string_view name, std::uint32_t number);
  void add(std::string_view name, float number);
  void add(std::string_view name, bool flag);
  void add(std::string_view name, std::string_view text);
  void add(std::string_view name, std::span<const std::string> texts);
  void add(std::string_view name, std::span<const std::int32_t> numbers);
  void add(std::string_view name, std::span<const float> numbers);

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view name, std::uint32_t type);
  void begin_list(std::string_view name, std::uint32_t type, std::size_t size);

  std::uint64_t count_ = 0;
  std::string bytes_;
};

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;  // {out, in} of a matrix; the format itself counts from the last
  Type type = Type::f32;            // q8_0 only of matrices whose rows are whole blocks of it

  std::int64_t elements() const;
  std::uint64_t bytes() const;
};

struct Layout {
  std::string head;                   // the first bytes of the file
  std::vector<std::uint64_t> begins;  // of each tensor, in the file
  std::uint64_t file_bytes = 0;
};

Layout lay_out(const Fields& fields, std::span<const Tensor> tensors);

}  // namespace tutti::gguf
