// A model in parts, one for each of several ranks: a part has some of the heads with their keys and values,
// of the inner width of the feed-forward parts and of the vocabulary that the head tells; all else it has
// whole. A part is a model of smaller sizes whose tensors are cut out of the whole one's. Values, any thread.
//
//            queries, keys, values │ output           gate, up │ down             head
//   rank 0   ▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀ │ ▌      ─▶ sum     ▀▀▀▀▀▀▀▀ │ ▌      ─▶ sum     ▀▀▀▀ ─▶ gather
//   rank 1   ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄ │ ▐      ─▶         ▄▄▄▄▄▄▄▄ │ ▐      ─▶         ▄▄▄▄ ─▶
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "learn/safetensors/types.hpp"

namespace tutti::serve {

struct Part {
  int rank = 0;
  int count = 1;
};

// Whether so many ranks can share such a model; what cannot be cut is named.
Result<> check_split(const model::Shape& shape, int ranks);

// The sizes of a part. Vocabulary and hidden size are the whole model's. What check_split() refuses is not to
// be asked.
model::Shape shape_of_part(const model::Shape& shape, const Part& part);

// Where the part of a rank begins in the whole model. Ranks whose heads share a head of keys and values have
// it each.
struct PartBegin {
  std::int64_t head = 0;
  std::int64_t kv_head = 0;
  std::int64_t intermediate = 0;
  std::int64_t expert_intermediate = 0;
};
PartBegin begin_of_part(const model::Shape& shape, const Part& part);

// The tokens whose logits a rank computes: a whole number of `grain`, of which the vocabulary has `count`.
struct HeadRows {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t width = 0;  // the same for all ranks
};
HeadRows head_of_part(std::int64_t vocabulary, const Part& part, std::int64_t grain);

// Rows of a tensor of the model as floats: a vector's numbers are its rows. Called by several threads at
// once.
using ReadRows = std::function<Result<>(const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                                        std::span<float> floats)>;

// The same rows as the files have them, where they have them in this type; else false, and nothing was read.
// May be null: then it is always false.
using ReadStored =
    std::function<Result<bool>(const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                               safetensors::Type type, std::span<std::byte> bytes)>;

// Reads the tensors of a part from those of the whole model. Embedding and head are read as they are. What is
// added to the sum of all parts, and not to each, is zero but on rank 0.
ReadRows read_part(const model::Shape& shape, const Part& part, ReadRows whole);
ReadStored read_stored_part(const model::Shape& shape, const Part& part, ReadStored whole);

}  // namespace tutti::serve
