// Numbers in a row-major box, as they travel between a client, tutti and the program that computes with them.
// Values, no shared state: any thread. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::serve {

// What libtorch computes with, by the names of the Open Inference Protocol.
enum class DataType : std::uint8_t { boolean, uint8, int8, int16, int32, int64, fp16, bf16, fp32, fp64 };
inline constexpr std::size_t data_types = 10;

std::string_view name_of(DataType type);  // "FP32"
std::optional<DataType> parse_data_type(std::string_view name);
std::size_t bytes_of(DataType type);

inline constexpr std::size_t dimensions_max = 16;
inline constexpr std::size_t tensors_max = 64;  // of a request, and of an answer
inline constexpr std::size_t tensor_name_bytes_max = 256;
inline constexpr std::uint64_t tensor_bytes_max = std::uint64_t{256} << 20;

using Dimensions = std::vector<std::int64_t>;

struct Tensor {
  std::string name;
  DataType type = DataType::fp32;
  Dimensions shape;
  std::string bytes;  // little-endian, the last dimension next to one another

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// "[2,3]"
std::string text_of(const Dimensions& shape);
// The bytes of such a tensor. Refused are negative dimensions, too many of them and too large ones, so that
// nobody has to fear the product.
Result<std::uint64_t> bytes_of(DataType type, const Dimensions& shape);

// Of tensors whose first dimension counts the rows of one request: how many. Refused where they differ, where
// a tensor has no first dimension, and where there is no row.
Result<std::int64_t> rows_of(const std::vector<Tensor>& tensors);
// Whatever is equal here can be computed together: types, and all dimensions but the first.
std::string kind_of(const std::vector<Tensor>& tensors);

// Requests of one kind, one behind the other.
std::vector<Tensor> join_rows(const std::vector<const std::vector<Tensor>*>& requests);
// A failure where some tensor has not a row for each row.
Result<> check_rows(const std::vector<Tensor>& outputs, std::int64_t rows);
// Their answers. The same failure.
Result<std::vector<std::vector<Tensor>>> split_rows(const std::vector<Tensor>& joined,
                                                    const std::vector<std::int64_t>& rows);

}  // namespace tutti::serve
