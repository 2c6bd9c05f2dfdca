// What a program takes and gives: the names, types and shapes of its tensors. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/value.hpp"
#include "base/result.hpp"
#include "serve/tensor/tensor.hpp"

namespace tutti::serve {

inline constexpr std::int64_t any_size = -1;  // of a dimension, as the Open Inference Protocol writes it

struct TensorSpec {
  std::string name;
  std::optional<DataType> type;     // nothing: not known, and not looked at
  std::optional<Dimensions> shape;  // the same; a dimension may be any_size

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

struct Signature {
  std::vector<TensorSpec> inputs;   // in the order in which the program takes them
  std::vector<TensorSpec> outputs;  // in the order in which it gives them

  friend bool operator==(const Signature&, const Signature&) = default;
};

// {"inputs":[{"name":"x","datatype":"FP32","shape":[-1,784]}],"outputs":[…]}; both lists, and each type and
// shape, may be missing. Other members of the object are not looked at.
Result<Signature> read_signature(const json::Value& object);
json::Value write_signature(const Signature& signature);

// Whether the tensor is one of these.
Result<> check(const Tensor& tensor, const TensorSpec& spec);

}  // namespace tutti::serve
