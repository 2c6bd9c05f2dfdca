// A folder of PEFT for tests, of numbers that are made of their names, removed with its object; and what it
// adds to the matrices of a model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files/files.hpp"
#include "learn/model/names.hpp"
#include "learn/model/shape.hpp"
#include "learn/safetensors/header.hpp"

namespace tutti::serve::lora {

class MadeAdapter {
 public:
  struct Written {
    std::string name;
    safetensors::Type type = safetensors::Type::f32;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };
  struct Wanted {
    std::int64_t rank = 4;
    double alpha = 8;
    std::uint64_t seed = 1;
    bool by_root = false;
    // The ends of modules' names; empty: all matrices of the layers that are no expert's.
    std::vector<std::string> targets;
  };

  MadeAdapter(const model::Shape& shape, const Wanted& wanted) : wanted_(wanted) {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-adapter-XXXXXX").string();
    path_ = mkdtemp(path.data());
    for (const model::ForeignTensor& theirs : model::foreign_tensors(shape)) {
      if (is_adapted(shape, theirs)) add(shape, theirs);
    }
    write_config();
    write_tensors();
  }
  MadeAdapter(const MadeAdapter&) = delete;
  MadeAdapter& operator=(const MadeAdapter&) = delete;
  ~MadeAdapter() {
    // Not by std::filesystem: a check makes adapters beside libtorch, which brings another one along.
    if (auto done = files::remove_folder(path_); !done) std::abort();
  }

  const std::string& path() const { return path_; }
  double scale() const {
    const auto rank = static_cast<double>(wanted_.rank);
    return wanted_.alpha / (wanted_.by_root ? std::sqrt(rank) : rank);
  }
  // scale·B·A by the names of our tensors.
  const std::map<std::string, std::vector<double>>& changes() const { return changes_; }

  // For tests that bend them, and write them again.
  std::vector<Written> tensors;

  std::string config() const {
    std::string targets;
    for (const std::string& target : targets_) targets += (targets.empty() ? "\"" : ",\"") + target + "\"";
    return R"({"peft_type":"LORA","task_type":"CAUSAL_LM","base_model_name_or_path":"some/where",)"
           R"("bias":"none","fan_in_fan_out":false,"inference_mode":true,"init_lora_weights":true,)"
           R"("lora_dropout":0.1,"megatron_core":"megatron.core","modules_to_save":null,"use_dora":false,)"
           R"("rank_pattern":{},"alpha_pattern":{},"loftq_config":{},"qalora_group_size":16,)"
           R"("use_rslora":)" +
           std::string(wanted_.by_root ? "true" : "false") + R"(,"r":)" + std::to_string(wanted_.rank) +
           R"(,"lora_alpha":)" + std::to_string(wanted_.alpha) + R"(,"target_modules":[)" + targets + "]}";
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  void write_config() const { write("adapter_config.json", config()); }
  void write_tensors() const {
    std::vector<safetensors::Entry> entries;
    for (const Written& tensor : tensors) entries.push_back({tensor.name, tensor.type, tensor.shape});
    std::string bytes = safetensors::lay_out(entries, {{"format", "pt"}}).header;
    for (const Written& tensor : tensors) {
      std::vector<std::byte> values(*safetensors::bytes_of(tensor.type, tensor.shape));
      if (safetensors::is_weight(tensor.type)) safetensors::from_floats(tensor.values, tensor.type, values);
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
    }
    write("adapter_model.safetensors", bytes);
  }

 private:
  bool is_adapted(const model::Shape& shape, const model::ForeignTensor& theirs) {
    const bool is_of_layer = theirs.shape.size() == 2 && (theirs.name.find("layers.") != std::string::npos ||
                                                          theirs.name.starts_with("h."));
    if (!is_of_layer || theirs.name.find(".experts.") != std::string::npos) return false;
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      const bool is_router = theirs.name == model::weight_of(model::names_of_layer(shape, layer).router);
      if (is_router && shape.has_experts(layer)) return false;
    }
    const std::string module = module_of(theirs);
    const std::string end = module.substr(module.rfind('.') + 1);
    if (!wanted_.targets.empty() && std::ranges::find(wanted_.targets, end) == wanted_.targets.end())
      return false;
    if (std::ranges::find(targets_, end) == targets_.end()) targets_.push_back(end);
    return true;
  }
  static std::string module_of(const model::ForeignTensor& theirs) {
    return theirs.name.substr(0, theirs.name.size() - std::string(".weight").size());
  }

  std::vector<float> numbers(std::int64_t count, double size) {
    std::vector<float> made;
    for (std::int64_t at = 0; at < count; ++at) {
      state_ += 0x9e3779b97f4a7c15U;
      std::uint64_t seed = state_ ^ wanted_.seed << 40U;
      seed = (seed ^ (seed >> 30U)) * 0xbf58476d1ce4e5b9U;
      seed = (seed ^ (seed >> 27U)) * 0x94d049bb133111ebU;
      seed ^= seed >> 31U;
      made.push_back(static_cast<float>((static_cast<double>(seed >> 11U) * 0x1p-52 - 1) * size));
    }
    return made;
  }

  void add(const model::Shape& shape, const model::ForeignTensor& theirs) {
    const std::int64_t rows = theirs.shape[theirs.transposed ? 1 : 0];
    const std::int64_t columns = theirs.shape[theirs.transposed ? 0 : 1];
    const std::int64_t rank = wanted_.rank;
    // Together about half as large as the matrix that they are added to.
    const auto a = numbers(rank * columns, std::sqrt(3.0 / static_cast<double>(columns)));
    const auto b = numbers(rows * rank, std::sqrt(0.75 / static_cast<double>(rank)) / scale());
    const std::string in_front =
        "base_model.model." + std::string(shape.model_type == "gpt2" ? "transformer." : "");
    const std::string module = in_front + module_of(theirs);
    tensors.push_back({module + ".lora_A.weight", safetensors::Type::f32, {rank, columns}, a});
    tensors.push_back({module + ".lora_B.weight", safetensors::Type::f32, {rows, rank}, b});
    std::int64_t row = 0;
    for (const std::string& part : theirs.parts) {
      auto& change = changes_[part];
      for (const std::int64_t end = row + rows_of(shape, part); row < end; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          double sum = 0;
          for (std::int64_t at = 0; at < rank; ++at)
            sum += static_cast<double>(b[static_cast<std::size_t>(row * rank + at)]) *
                   static_cast<double>(a[static_cast<std::size_t>(at * columns + column)]);
          change.push_back(sum * scale());
        }
      }
    }
  }
  static std::int64_t rows_of(const model::Shape& shape, const std::string& tensor) {
    for (const model::Unit& unit : model::units(shape))
      for (const model::Tensor& each : unit.tensors)
        if (each.name == tensor) return each.shape.front();
    return 0;
  }

  Wanted wanted_;
  std::string path_;
  std::vector<std::string> targets_;
  std::map<std::string, std::vector<double>> changes_;
  std::uint64_t state_ = 0;
};

}  // namespace tutti::serve::lora
