// What travels and what is done with it: the closed sets that every part of comm switches over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.hpp"

namespace tutti::comm {

enum class DataType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8 };

enum class Reduction : std::uint8_t { sum, average, min, max, product };

enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send,
  recv,
  barrier,
};

// The last of each set: whoever reads one from others compares.
inline constexpr DataType last_data_type = DataType::u8;
inline constexpr Reduction last_reduction = Reduction::product;
inline constexpr Operation last_operation = Operation::barrier;

constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::f64:
    case DataType::i64:
      return 8;
    case DataType::f32:
    case DataType::i32:
      return 4;
    case DataType::f16:
    case DataType::bf16:
      return 2;
    case DataType::u8:
      return 1;
  }
  return 0;
}

std::string_view name_of(DataType type);
std::string_view name_of(Reduction reduction);
std::string_view name_of(Operation operation);

Result<DataType> parse_data_type(std::string_view word);
Result<Operation> parse_operation(std::string_view word);

}  // namespace tutti::comm
