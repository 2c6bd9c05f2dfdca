#include "serve/infer/answer.hpp"

#include <algorithm>

#include "base/json/write.hpp"
#include "base/visible.hpp"
#include "serve/infer/numbers.hpp"

namespace tutti::serve::infer {
namespace {

json::Array specs(const std::vector<TensorSpec>& from) {
  json::Array list;
  for (const TensorSpec& spec : from) {
    list.emplace_back(json::Object{{"name", spec.name},
                                   {"datatype", spec.type ? name_of(*spec.type) : "ANY"},
                                   {"shape", json::array_of(spec.shape.value_or(Dimensions{any_size}))}});
  }
  return list;
}

struct Chosen {
  const Tensor* tensor = nullptr;
  bool is_binary = false;
};

Result<std::vector<Chosen>> choose(const std::vector<Wanted>& wanted, bool all_binary,
                                   const std::vector<Tensor>& outputs) {
  std::vector<Chosen> chosen;
  if (wanted.empty()) {
    for (const Tensor& tensor : outputs) chosen.push_back({&tensor, all_binary});
    return chosen;
  }
  for (const Wanted& each : wanted) {
    const auto found = std::find_if(outputs.begin(), outputs.end(),
                                    [&](const Tensor& tensor) { return tensor.name == each.name; });
    if (found == outputs.end())
      return invalid("the model has no output '" + visible_line(each.name) + "'").within("outputs");
    chosen.push_back({&*found, each.is_binary});
  }
  return chosen;
}

std::string quoted(std::string_view text) { return json::write(json::Value(text)); }

}  // namespace

std::string server_text(std::string_view version) {
  return json::write(json::Object{
             {"name", "tutti"}, {"version", version}, {"extensions", json::Array{"binary_tensor_data"}}}) +
         "\n";
}

std::string model_text(const Card& card) {
  return json::write(json::Object{{"name", card.name},
                                  {"versions", json::Array{model_version}},
                                  {"platform", "pytorch_torchscript"},
                                  {"inputs", specs(card.signature.inputs)},
                                  {"outputs", specs(card.signature.outputs)}}) +
         "\n";
}

Result<Written> write_answer(const std::string& model, const std::string& id,
                             const std::vector<Wanted>& wanted, bool all_binary,
                             const std::vector<Tensor>& outputs) {
  const auto chosen = choose(wanted, all_binary, outputs);
  if (!chosen) return chosen.error();
  std::size_t numbers = 0;
  std::size_t binary_bytes = 0;
  for (const Chosen& each : *chosen) {
    const std::size_t bytes = each.tensor->bytes.size();
    (each.is_binary ? binary_bytes : numbers) += each.is_binary ? bytes : bytes / bytes_of(each.tensor->type);
  }
  if (numbers > json_numbers_max)
    return invalid("the answer has " + std::to_string(numbers) + " numbers, which is too much for JSON")
        .within("outputs")
        .remedy("the parameter binary_data_output asks for binary data");
  Written written;
  std::string& out = written.bytes;
  out = "{\"model_name\":" + quoted(model) + ",\"model_version\":" + quoted(model_version);
  if (!id.empty()) out += ",\"id\":" + quoted(id);
  out += ",\"outputs\":[";
  for (const Chosen& each : *chosen) {
    const Tensor& tensor = *each.tensor;
    if (&each != chosen->data()) out += ',';
    out += "{\"name\":" + quoted(tensor.name) + ",\"datatype\":" + quoted(name_of(tensor.type)) +
           ",\"shape\":" + text_of(tensor.shape);
    if (each.is_binary) {
      out += ",\"parameters\":{\"binary_data_size\":" + std::to_string(tensor.bytes.size()) + "}}";
    } else {
      out += ",\"data\":";
      write_numbers(tensor, out);
      out += '}';
    }
  }
  out += "]}";
  written.json_bytes = out.size();
  out.reserve(out.size() + binary_bytes);
  for (const Chosen& each : *chosen) {
    if (each.is_binary) out += each.tensor->bytes;
  }
  return written;
}

std::string error_text(const Error& error) {
  std::string message = error.context().empty() ? "" : error.context() + ": ";
  message += error.message();
  if (!error.remedy().empty()) message += "; " + error.remedy();
  return json::write(json::Object{{"error", message}}) + "\n";
}

}  // namespace tutti::serve::infer
