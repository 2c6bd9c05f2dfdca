#include <algorithm>
#include <charconv>
#include <optional>

#include "base/json/parse.hpp"
#include "base/visible.hpp"
#include "serve/infer/ask.hpp"
#include "serve/infer/numbers.hpp"

namespace tutti::serve::infer {
namespace {

// What other people wrote, short enough for a message.
std::string shown(std::string_view text) { return "'" + visible_line(text.substr(0, 64)) + "'"; }

Result<std::size_t> json_bytes_of(std::string_view body, std::string_view json_length) {
  if (json_length.empty()) return body.size();
  std::size_t bytes = 0;
  const char* const end = json_length.data() + json_length.size();
  const auto read = std::from_chars(json_length.data(), end, bytes);
  if (read.ec != std::errc() || read.ptr != end || bytes > body.size())
    return invalid("must be how many bytes of the body are JSON").within("Inference-Header-Content-Length");
  return bytes;
}

Result<std::string> read_name(const json::Value& object) {
  const json::Value* const name = object.find("name");
  if (name == nullptr || name->text() == nullptr || name->text()->empty() ||
      name->text()->size() > tensor_name_bytes_max)
    return invalid("has no name, or one that is too long");
  return *name->text();
}

const json::Value* parameter(const json::Value& object, const char* key) {
  const json::Value* const parameters = object.find("parameters");
  return parameters == nullptr ? nullptr : parameters->find(key);
}

// Sets the target if the parameter is there.
Result<> read_toggle(const json::Value& object, const char* key, bool& target) {
  const json::Value* const value = parameter(object, key);
  if (value == nullptr) return {};
  if (!value->boolean()) return invalid("must be true or false").within(key);
  target = *value->boolean();
  return {};
}

Result<Dimensions> read_shape(const json::Value& object) {
  const json::Value* const shape = object.find("shape");
  const json::Array* const list = shape == nullptr ? nullptr : shape->list();
  if (list == nullptr || list->size() > dimensions_max)
    return invalid("shape must be a list of at most " + std::to_string(dimensions_max) + " sizes");
  Dimensions sizes;
  for (const json::Value& each : *list) {
    const auto size = each.whole();
    if (!size || *size < 0) return invalid("shape has what is no size");
    sizes.push_back(*size);
  }
  return sizes;
}

class AskReader {
 public:
  AskReader(const json::Value& root, std::string_view binary, const Signature& signature)
      : root_(root), binary_(binary), signature_(signature) {}

  Result<Ask> read() {
    if (root_.object() == nullptr) return invalid("a request is a JSON object");
    if (const json::Value* const id = root_.find("id"); id != nullptr && !id->is_null()) {
      if (id->text() == nullptr || id->text()->size() > id_bytes_max)
        return invalid("must be a text of at most " + std::to_string(id_bytes_max) + " letters").within("id");
      ask_.id = *id->text();
    }
    // It would change the answer: what came before belongs to it.
    for (const char* key : {"sequence_id", "sequence_start", "sequence_end"}) {
      if (parameter(root_, key) != nullptr)
        return invalid("is not done here: each request is answered by itself").within(key);
    }
    if (auto done = read_toggle(root_, "binary_data_output", ask_.all_binary); !done)
      return std::move(done).error();
    if (auto done = read_inputs(); !done) return std::move(done).error();
    if (auto done = read_outputs(); !done) return std::move(done).error();
    return std::move(ask_);
  }

 private:
  Result<> read_inputs() {
    const json::Value* const inputs = root_.find("inputs");
    const json::Array* const list = inputs == nullptr ? nullptr : inputs->list();
    if (list == nullptr || list->size() > tensors_max)
      return invalid("must be a list of at most " + std::to_string(tensors_max) + " tensors")
          .within("inputs");
    std::vector<std::optional<Tensor>> found(signature_.inputs.size());
    for (const json::Value& each : *list) {
      auto name = read_name(each);
      if (!name) return std::move(name).error().within("inputs");
      const auto spec = std::find_if(signature_.inputs.begin(), signature_.inputs.end(),
                                     [&](const TensorSpec& candidate) { return candidate.name == *name; });
      if (spec == signature_.inputs.end())
        return invalid("the model has no input " + shown(*name) + "; it has " + names()).within("inputs");
      auto& place = found[static_cast<std::size_t>(spec - signature_.inputs.begin())];
      if (place) return invalid("is there twice").within(spec->name).within("inputs");
      auto tensor = read_tensor(each, *spec);
      if (!tensor) return std::move(tensor).error().within(spec->name).within("inputs");
      if (auto fits = check(*tensor, *spec); !fits) return std::move(fits).error().within("inputs");
      place = std::move(*tensor);
    }
    for (std::size_t at = 0; at < found.size(); ++at) {
      if (!found[at]) return invalid("is missing").within(signature_.inputs[at].name).within("inputs");
      ask_.inputs.push_back(std::move(*found[at]));
    }
    if (!binary_.empty())
      return invalid(std::to_string(binary_.size()) + " bytes behind the JSON belong to no tensor")
          .remedy("binary_data_size of each input says how many are its own");
    return {};
  }

  Result<Tensor> read_tensor(const json::Value& value, const TensorSpec& spec) {
    const json::Value* const named = value.find("datatype");
    const auto type =
        named == nullptr || named->text() == nullptr ? std::nullopt : parse_data_type(*named->text());
    if (!type) {
      const bool is_text = named != nullptr && named->text() != nullptr;
      return invalid("the datatype " + (is_text ? shown(*named->text()) + " " : std::string()) +
                     "is none that this model computes with")
          .remedy("BOOL, UINT8, INT8, INT16, INT32, INT64, FP16, BF16, FP32 or FP64");
    }
    auto shape = read_shape(value);
    if (!shape) return std::move(shape).error();
    const auto bytes = bytes_of(*type, *shape);
    if (!bytes) return bytes.error();
    Tensor tensor{spec.name, *type, std::move(*shape), {}};
    const json::Value* const data = value.find("data");
    const json::Value* const size = parameter(value, "binary_data_size");
    if ((data == nullptr) == (size == nullptr))
      return invalid("has either data or the parameter binary_data_size");
    if (data != nullptr) {
      auto numbers = read_numbers(*data, tensor.type, tensor.shape);
      if (!numbers) return std::move(numbers).error();
      tensor.bytes = std::move(*numbers);
      return tensor;
    }
    if (size->count() != *bytes)
      return invalid("binary_data_size is not the " + std::to_string(*bytes) + " bytes of " +
                     std::string(name_of(tensor.type)) + text_of(tensor.shape));
    if (*bytes > binary_.size())
      return invalid("fewer bytes follow the JSON than binary_data_size says")
          .remedy("Inference-Header-Content-Length says where the JSON ends");
    tensor.bytes = binary_.substr(0, *bytes);
    binary_.remove_prefix(*bytes);
    // Only 0 and 1 are booleans: libtorch takes the others for something else at each operation.
    if (tensor.type == DataType::boolean)
      std::for_each(tensor.bytes.begin(), tensor.bytes.end(), [](char& each) { each = each != 0 ? 1 : 0; });
    return tensor;
  }

  Result<> read_outputs() {
    const json::Value* const outputs = root_.find("outputs");
    if (outputs == nullptr) return {};
    if (outputs->list() == nullptr || outputs->list()->size() > tensors_max)
      return invalid("must be a list of at most " + std::to_string(tensors_max) + " tensors")
          .within("outputs");
    for (const json::Value& each : *outputs->list()) {
      auto name = read_name(each);
      if (!name) return std::move(name).error().within("outputs");
      if (parameter(each, "classification") != nullptr)
        return invalid("classification is not done here").within("outputs");
      Wanted wanted{*name, ask_.all_binary};
      if (auto done = read_toggle(each, "binary_data", wanted.is_binary); !done)
        return std::move(done).error().within("outputs");
      const bool is_there = std::any_of(ask_.outputs.begin(), ask_.outputs.end(),
                                        [&](const Wanted& other) { return other.name == wanted.name; });
      if (is_there) return invalid(shown(*name) + " is there twice").within("outputs");
      ask_.outputs.push_back(std::move(wanted));
    }
    return {};
  }

  std::string names() const {
    std::string text;
    for (const TensorSpec& spec : signature_.inputs) text += (text.empty() ? "" : ", ") + spec.name;
    return text;
  }

  const json::Value& root_;
  std::string_view binary_;  // that no input has taken yet
  const Signature& signature_;
  Ask ask_;
};

}  // namespace

Result<Ask> read_ask(std::string_view body, std::string_view json_length, const Signature& signature) {
  const auto json_bytes = json_bytes_of(body, json_length);
  if (!json_bytes) return json_bytes.error();
  if (*json_bytes > json_bytes_max)
    return invalid("the JSON has more than " + std::to_string(json_bytes_max) + " bytes")
        .remedy("large tensors travel as binary data");
  const std::string_view text = body.substr(0, *json_bytes);
  // Before anything is kept of it: a number takes many times the room of its text.
  if (auto scanned = json::scan(text, json_values_max); !scanned)
    return std::move(scanned).error().remedy(
        text.size() > json_values_max ? "large tensors travel as binary data" : "");
  const auto root = json::parse(text);
  if (!root) return root.error();
  return AskReader(*root, body.substr(*json_bytes), signature).read();
}

}  // namespace tutti::serve::infer
