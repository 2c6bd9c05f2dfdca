#include "serve/tensor/signature.hpp"

#include <algorithm>

#include "base/visible.hpp"

namespace tutti::serve {
namespace {

Result<Dimensions> read_shape(const json::Value& value) {
  const json::Array* const list = value.list();
  if (list == nullptr || list->size() > dimensions_max)
    return invalid("must be a list of at most " + std::to_string(dimensions_max) + " sizes").within("shape");
  Dimensions shape;
  shape.reserve(list->size());
  for (const json::Value& each : *list) {
    const auto size = each.whole();
    if (!size || *size < any_size || *size > static_cast<std::int64_t>(tensor_bytes_max))
      return invalid("has sizes that are none; -1 stands for any").within("shape");
    shape.push_back(*size);
  }
  return shape;
}

Result<TensorSpec> read_spec(const json::Value& value) {
  const json::Value* const name = value.find("name");
  if (name == nullptr || name->text() == nullptr || name->text()->empty() ||
      name->text()->size() > tensor_name_bytes_max || !is_visible_line(*name->text()))
    return invalid("must be a text of at most " + std::to_string(tensor_name_bytes_max) + " letters")
        .within("name");
  TensorSpec spec{.name = *name->text()};
  if (const json::Value* const type = value.find("datatype")) {
    spec.type = type->text() == nullptr ? std::nullopt : parse_data_type(*type->text());
    if (!spec.type)
      return invalid("must be BOOL, UINT8, INT8, INT16, INT32, INT64, FP16, BF16, FP32 or FP64")
          .within("datatype")
          .within(spec.name);
  }
  if (const json::Value* const shape = value.find("shape")) {
    auto read = read_shape(*shape);
    if (!read) return std::move(read).error().within(spec.name);
    spec.shape = std::move(*read);
  }
  return spec;
}

Result<std::vector<TensorSpec>> read_specs(const json::Value& object, const char* key) {
  std::vector<TensorSpec> specs;
  const json::Value* const value = object.find(key);
  if (value == nullptr) return specs;
  const json::Array* const list = value->list();
  if (list == nullptr || list->size() > tensors_max)
    return invalid("must be a list of at most " + std::to_string(tensors_max) + " tensors").within(key);
  for (const json::Value& each : *list) {
    auto spec = read_spec(each);
    if (!spec) return std::move(spec).error().within(key);
    const bool is_there = std::any_of(specs.begin(), specs.end(),
                                      [&](const TensorSpec& other) { return other.name == spec->name; });
    if (is_there) return invalid("'" + spec->name + "' is there twice").within(key);
    specs.push_back(std::move(*spec));
  }
  return specs;
}

json::Value write_specs(const std::vector<TensorSpec>& specs) {
  json::Array list;
  for (const TensorSpec& spec : specs) {
    json::Object written{{"name", spec.name}};
    if (spec.type) written["datatype"] = name_of(*spec.type);
    if (spec.shape) written["shape"] = json::array_of(*spec.shape);
    list.emplace_back(std::move(written));
  }
  return list;
}

}  // namespace

Result<Signature> read_signature(const json::Value& object) {
  if (object.object() == nullptr) return invalid("must be an object with inputs and outputs");
  auto inputs = read_specs(object, "inputs");
  if (!inputs) return std::move(inputs).error();
  auto outputs = read_specs(object, "outputs");
  if (!outputs) return std::move(outputs).error();
  return Signature{std::move(*inputs), std::move(*outputs)};
}

json::Value write_signature(const Signature& signature) {
  return json::Object{{"inputs", write_specs(signature.inputs)}, {"outputs", write_specs(signature.outputs)}};
}

Result<> check(const Tensor& tensor, const TensorSpec& spec) {
  if (spec.type && *spec.type != tensor.type)
    return invalid("is " + std::string(name_of(tensor.type)) + ", and must be " +
                   std::string(name_of(*spec.type)))
        .within(spec.name);
  if (!spec.shape) return {};
  bool fits = spec.shape->size() == tensor.shape.size();
  for (std::size_t at = 0; fits && at < tensor.shape.size(); ++at)
    fits = (*spec.shape)[at] == any_size || (*spec.shape)[at] == tensor.shape[at];
  if (fits) return {};
  return invalid("has the shape " + text_of(tensor.shape) + ", and must have " + text_of(*spec.shape))
      .within(spec.name);
}

}  // namespace tutti::serve
