#include "serve/script/tensors.hpp"

#include <cstring>
#include <optional>
#include <utility>

namespace tutti::serve {
namespace {

c10::ScalarType torch_type(DataType type) {
  switch (type) {
    case DataType::boolean:
      return c10::kBool;
    case DataType::uint8:
      return c10::kByte;
    case DataType::int8:
      return c10::kChar;
    case DataType::int16:
      return c10::kShort;
    case DataType::int32:
      return c10::kInt;
    case DataType::int64:
      return c10::kLong;
    case DataType::fp16:
      return c10::kHalf;
    case DataType::bf16:
      return c10::kBFloat16;
    case DataType::fp32:
      return c10::kFloat;
    case DataType::fp64:
      return c10::kDouble;
  }
  return c10::kFloat;
}

std::optional<DataType> own_type(c10::ScalarType type) {
  for (std::size_t at = 0; at < data_types; ++at) {
    if (torch_type(static_cast<DataType>(at)) == type) return static_cast<DataType>(at);
  }
  return std::nullopt;
}

using Named = std::vector<std::pair<std::string, at::Tensor>>;

Error no_tensors(const c10::IValue& value) {
  return failed("the model gives a value of the type " + value.type()->str() +
                ": tensors, tuples and lists of them and dictionaries of them can be served");
}

Result<Named> tensors_of(const c10::IValue& value) {
  Named named;
  if (value.isTensor()) {
    named.emplace_back("output_0", value.toTensor());
  } else if (value.isTuple()) {
    const auto tuple = value.toTuple();
    const auto schema = tuple->type<c10::TupleType>()->schema();  // of one whose fields have names
    for (std::size_t at = 0; at < tuple->elements().size(); ++at) {
      const c10::IValue& element = tuple->elements()[at];
      if (!element.isTensor()) return no_tensors(value);
      named.emplace_back(schema ? schema->arguments()[at].name() : "output_" + std::to_string(at),
                         element.toTensor());
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector())
      named.emplace_back("output_" + std::to_string(named.size()), each);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      if (!entry.key().isString() || !entry.value().isTensor()) return no_tensors(value);
      named.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
    }
  } else {
    return no_tensors(value);
  }
  return named;
}

}  // namespace

at::Tensor to_torch(const Tensor& tensor, const c10::Device& device) {
  const auto view =
      torch::from_blob(const_cast<char*>(tensor.bytes.data()), tensor.shape, torch_type(tensor.type));
  return view.to(device, view.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

Result<Tensor> from_torch(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided)
    return failed("the output '" + name + "' is sparse, and only dense tensors travel")
        .remedy("make it dense in forward(), by to_dense()");
  const auto type = own_type(tensor.scalar_type());
  if (!type)
    return failed("the output '" + name + "' is of the type " +
                  std::string(c10::toString(tensor.scalar_type())) + ", which does not travel");
  Tensor made{name, *type, tensor.sizes().vec(), {}};
  const auto bytes = bytes_of(*type, made.shape);
  if (!bytes) return failed("the output '" + name + "' " + bytes.error().message());
  const at::Tensor here = tensor.detach().to(c10::kCPU).contiguous();
  made.bytes.resize(*bytes);
  if (*bytes > 0) std::memcpy(made.bytes.data(), here.data_ptr(), *bytes);
  return made;
}

Result<std::vector<Tensor>> from_value(const c10::IValue& value, const std::vector<std::string>& names) {
  const auto named = tensors_of(value);
  if (!named) return named.error();
  if (named->size() > tensors_max) return failed("the model gives too many tensors");
  if (!names.empty() && names.size() != named->size())
    return failed("the model gives " + std::to_string(named->size()) + " tensors, and its signature names " +
                  std::to_string(names.size()));
  std::vector<Tensor> tensors;
  for (std::size_t at = 0; at < named->size(); ++at) {
    auto made = from_torch(names.empty() ? (*named)[at].first : names[at], (*named)[at].second);
    if (!made) return std::move(made).error();
    tensors.push_back(std::move(*made));
  }
  return tensors;
}

}  // namespace tutti::serve
