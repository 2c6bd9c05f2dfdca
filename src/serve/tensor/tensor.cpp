#include "serve/tensor/tensor.hpp"

#include <array>
#include <numeric>
#include <utility>

#include "base/check.hpp"

namespace tutti::serve {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t bytes;
};
// In the order of DataType.
constexpr std::array<TypeRow, data_types> type_rows{{{"BOOL", 1},
                                                     {"UINT8", 1},
                                                     {"INT8", 1},
                                                     {"INT16", 2},
                                                     {"INT32", 4},
                                                     {"INT64", 8},
                                                     {"FP16", 2},
                                                     {"BF16", 2},
                                                     {"FP32", 4},
                                                     {"FP64", 8}}};

}  // namespace

std::string_view name_of(DataType type) { return type_rows.at(static_cast<std::size_t>(type)).name; }

std::size_t bytes_of(DataType type) { return type_rows.at(static_cast<std::size_t>(type)).bytes; }

std::optional<DataType> parse_data_type(std::string_view name) {
  for (std::size_t at = 0; at < type_rows.size(); ++at) {
    if (type_rows.at(at).name == name) return static_cast<DataType>(at);
  }
  return std::nullopt;
}

std::string text_of(const Dimensions& shape) {
  std::string text = "[";
  for (const std::int64_t& each : shape) text += (&each == shape.data() ? "" : ",") + std::to_string(each);
  return text + "]";
}

Result<std::uint64_t> bytes_of(DataType type, const Dimensions& shape) {
  if (shape.size() > dimensions_max)
    return invalid("has more than " + std::to_string(dimensions_max) + " dimensions");
  bool has_none = false;
  for (const std::int64_t each : shape) {
    if (each < 0) return invalid("has a negative dimension: " + text_of(shape));
    has_none = has_none || each == 0;
  }
  std::uint64_t bytes = bytes_of(type);
  for (const std::int64_t each : shape) {
    const auto factor = static_cast<std::uint64_t>(each);
    // A box without a number in it has no size, whatever its other sides are; but those go to a program, too.
    if (factor > tensor_bytes_max || (!has_none && factor > tensor_bytes_max / bytes))
      return invalid("is too large: " + text_of(shape));
    bytes = has_none ? bytes : bytes * factor;
  }
  return has_none ? 0 : bytes;
}

Result<std::int64_t> rows_of(const std::vector<Tensor>& tensors) {
  std::optional<std::int64_t> rows;
  for (const Tensor& tensor : tensors) {
    if (tensor.shape.empty())
      return invalid("has no first dimension, which counts the rows here").within(tensor.name);
    if (!rows) rows = tensor.shape.front();
    if (*rows != tensor.shape.front())
      return invalid("has " + std::to_string(tensor.shape.front()) + " rows, and '" + tensors.front().name +
                     "' has " + std::to_string(*rows))
          .within(tensor.name);
  }
  if (rows.value_or(0) < 1) return invalid("there is no row in it");
  return *rows;
}

std::string kind_of(const std::vector<Tensor>& tensors) {
  std::string kind;
  for (const Tensor& tensor : tensors) {
    kind += name_of(tensor.type);
    for (std::size_t at = 1; at < tensor.shape.size(); ++at) kind += ',' + std::to_string(tensor.shape[at]);
    kind += ';';
  }
  return kind;
}

std::vector<Tensor> join_rows(const std::vector<const std::vector<Tensor>*>& requests) {
  TUTTI_CHECK(!requests.empty());
  std::vector<Tensor> joined;
  joined.reserve(requests.front()->size());
  for (std::size_t nth = 0; nth < requests.front()->size(); ++nth) {
    const Tensor& first = (*requests.front())[nth];
    Tensor whole{first.name, first.type, first.shape, {}};
    whole.shape.front() = 0;
    std::size_t bytes = 0;
    for (const auto* request : requests) bytes += (*request)[nth].bytes.size();
    whole.bytes.reserve(bytes);
    for (const auto* request : requests) {
      whole.shape.front() += (*request)[nth].shape.front();
      whole.bytes += (*request)[nth].bytes;
    }
    joined.push_back(std::move(whole));
  }
  return joined;
}

Result<> check_rows(const std::vector<Tensor>& outputs, std::int64_t rows) {
  for (const Tensor& tensor : outputs) {
    if (tensor.shape.empty() || tensor.shape.front() != rows)
      return failed("the output '" + tensor.name + "' has the shape " + text_of(tensor.shape) +
                    ", which is not a row for each of " + std::to_string(rows) + " rows")
          .remedy("start it with --max-batch 1");
  }
  return {};
}

Result<std::vector<std::vector<Tensor>>> split_rows(const std::vector<Tensor>& joined,
                                                    const std::vector<std::int64_t>& rows) {
  const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  if (auto fits = check_rows(joined, all); !fits) return std::move(fits).error();
  std::vector<std::vector<Tensor>> parts(rows.size());
  for (const Tensor& tensor : joined) {
    const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(all);
    std::size_t begin = 0;
    for (std::size_t nth = 0; nth < rows.size(); ++nth) {
      const std::size_t bytes = row_bytes * static_cast<std::size_t>(rows[nth]);
      Tensor part{tensor.name, tensor.type, tensor.shape, tensor.bytes.substr(begin, bytes)};
      part.shape.front() = rows[nth];
      parts[nth].push_back(std::move(part));
      begin += bytes;
    }
  }
  return parts;
}

}  // namespace tutti::serve
