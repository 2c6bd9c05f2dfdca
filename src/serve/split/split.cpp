#include "serve/split/split.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "learn/model/names.hpp"

namespace tutti::serve {
namespace {

// Of a tensor: what a part has of it.
struct Cut {
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  std::int64_t whole_columns = 0;  // 0: all of them
  bool is_zero = false;
};
using Cuts = std::map<std::string, Cut>;

Error not_divisible(std::int64_t size, const std::string& what, int ranks) {
  return invalid("its " + std::to_string(size) + " " + what + " cannot be shared by " +
                 std::to_string(ranks) + " ranks")
      .remedy("take a number of ranks that divides it");
}

class Cutter {
 public:
  Cutter(const model::Shape& shape, const Part& part)
      : shape_(shape), begin_(begin_of_part(shape, part)), part_(part) {}

  Cuts run() {
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const model::LayerNames names = model::names_of_layer(shape_, layer);
      rows(names.queries, begin_.head * shape_.head_size);
      rows(names.keys, begin_.kv_head * shape_.head_size);
      rows(names.values, begin_.kv_head * shape_.head_size);
      columns(names.output, begin_.head * shape_.head_size, shape_.heads * shape_.head_size);
      if (!shape_.has_experts(layer)) {
        feed_forward(names.feed_forward, begin_.intermediate, shape_.intermediate);
        continue;
      }
      for (std::int64_t expert = 0; expert < shape_.experts.count; ++expert)
        feed_forward(model::names_of_expert(shape_, layer, expert), begin_.expert_intermediate,
                     shape_.experts.intermediate);
    }
    return std::move(cuts_);
  }

 private:
  void feed_forward(const model::FeedForwardNames& names, std::int64_t first, std::int64_t whole_width) {
    rows(names.gate, first);
    rows(names.up, first);
    columns(names.down, first, whole_width);
  }

  void rows(const std::string& part, std::int64_t first) {
    cuts_[model::weight_of(part)] = {.first_row = first};
    cuts_[model::bias_of(part)] = {.first_row = first};
  }
  void columns(const std::string& part, std::int64_t first, std::int64_t whole) {
    cuts_[model::weight_of(part)] = {.first_column = first, .whole_columns = whole};
    cuts_[model::bias_of(part)] = {.is_zero = part_.rank > 0};
  }

  const model::Shape& shape_;
  PartBegin begin_;
  Part part_;
  Cuts cuts_;
};

// Of each row of `wide` as many elements as `narrow` has of it; both count in elements of `size` bytes.
void cut_columns(std::span<const std::byte> wide, const Cut& cut, std::int64_t rows, std::size_t size,
                 std::span<std::byte> narrow) {
  const std::size_t bytes = narrow.size() / static_cast<std::size_t>(rows);
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const std::size_t first =
        row * static_cast<std::size_t>(cut.whole_columns) + static_cast<std::size_t>(cut.first_column);
    std::ranges::copy(wide.subspan(first * size, bytes),
                      narrow.begin() + static_cast<std::ptrdiff_t>(row * bytes));
  }
}

Result<> read_columns(const ReadRows& whole, const std::string& tensor, std::int64_t first_row,
                      std::int64_t rows, const Cut& cut, std::span<float> floats) {
  std::vector<float> wide(static_cast<std::size_t>(rows * cut.whole_columns));
  if (auto done = whole(tensor, first_row, rows, wide); !done) return done;
  cut_columns(std::as_bytes(std::span(wide)), cut, rows, sizeof(float), std::as_writable_bytes(floats));
  return {};
}

Result<bool> read_stored_columns(const ReadStored& whole, const std::string& tensor, std::int64_t first_row,
                                 std::int64_t rows, safetensors::Type type, const Cut& cut,
                                 std::span<std::byte> bytes) {
  const std::size_t size = safetensors::size_of(type);
  std::vector<std::byte> wide(static_cast<std::size_t>(rows * cut.whole_columns) * size);
  auto done = whole(tensor, first_row, rows, type, wide);
  if (done && *done) cut_columns(wide, cut, rows, size, bytes);
  return done;
}

}  // namespace

Result<> check_split(const model::Shape& shape, int ranks) {
  if (ranks < 1) return invalid("a model has at least one rank");
  if (shape.heads % ranks != 0) return not_divisible(shape.heads, "heads", ranks);
  // A head of keys and values goes to one rank or to several whole ones.
  if (shape.kv_heads % ranks != 0 && ranks % shape.kv_heads != 0)
    return not_divisible(shape.kv_heads, "heads of keys and values", ranks);
  if (shape.intermediate % ranks != 0)
    return not_divisible(shape.intermediate, "numbers of the inner width", ranks);
  if (shape.experts.count > 0 && shape.experts.intermediate % ranks != 0)
    return not_divisible(shape.experts.intermediate, "numbers of the experts' inner width", ranks);
  return {};
}

model::Shape shape_of_part(const model::Shape& shape, const Part& part) {
  model::Shape own = shape;
  own.heads /= part.count;
  own.kv_heads = std::max<std::int64_t>(1, shape.kv_heads / part.count);
  own.intermediate /= part.count;
  own.experts.intermediate /= part.count;
  return own;
}

PartBegin begin_of_part(const model::Shape& shape, const Part& part) {
  const model::Shape own = shape_of_part(shape, part);
  return {.head = part.rank * own.heads,
          .kv_head = part.rank * shape.kv_heads / part.count,
          .intermediate = part.rank * own.intermediate,
          .expert_intermediate = part.rank * own.experts.intermediate};
}

HeadRows head_of_part(std::int64_t vocabulary, const Part& part, std::int64_t grain) {
  const std::int64_t together = grain * part.count;
  const std::int64_t width = (vocabulary + together - 1) / together * grain;
  const std::int64_t first = part.rank * width;
  return {first, std::clamp<std::int64_t>(vocabulary - first, 0, width), width};
}

ReadRows read_part(const model::Shape& shape, const Part& part, ReadRows whole) {
  if (part.count == 1) return whole;
  const auto cuts = std::make_shared<const Cuts>(Cutter(shape, part).run());
  return [cuts, whole = std::move(whole)](const std::string& tensor, std::int64_t first_row,
                                          std::int64_t rows, std::span<float> floats) -> Result<> {
    const auto found = cuts->find(tensor);
    if (found == cuts->end()) return whole(tensor, first_row, rows, floats);
    const Cut& cut = found->second;
    if (cut.is_zero) {
      std::ranges::fill(floats, 0.0F);
      return {};
    }
    if (cut.whole_columns == 0) return whole(tensor, first_row + cut.first_row, rows, floats);
    return read_columns(whole, tensor, first_row, rows, cut, floats);
  };
}

ReadStored read_stored_part(const model::Shape& shape, const Part& part, ReadStored whole) {
  if (part.count == 1 || !whole) return whole;
  const auto cuts = std::make_shared<const Cuts>(Cutter(shape, part).run());
  return
      [cuts, whole = std::move(whole)](const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                                       safetensors::Type type, std::span<std::byte> bytes) -> Result<bool> {
        const auto found = cuts->find(tensor);
        if (found == cuts->end()) return whole(tensor, first_row, rows, type, bytes);
        const Cut& cut = found->second;
        if (cut.is_zero) {
          std::ranges::fill(bytes, std::byte{});  // a zero of every type
          return true;
        }
        if (cut.whole_columns == 0) return whole(tensor, first_row + cut.first_row, rows, type, bytes);
        return read_stored_columns(whole, tensor, first_row, rows, type, cut, bytes);
      };
}

}  // namespace tutti::serve
