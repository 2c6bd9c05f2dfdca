// A folder of Hugging Face for tests: a small Llama of weights that are made of their names, removed with its
// object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "learn/safetensors/header.hpp"
#include "serve/cpu/families_test.hpp"
#include "serve/cpu/reference_test.hpp"

namespace tutti::serve::cpu {

class TinyFolder {
 public:
  TinyFolder(std::int64_t vocabulary, std::int64_t context, const std::string& tokenizer_json)
      : TinyFolder(tiny_shape(vocabulary, context), tokenizer_json) {}
  // Any Llama, for those who want a larger one.
  TinyFolder(const model::Shape& shape, const std::string& tokenizer_json) {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-tiny-XXXXXX").string();
    path_ = mkdtemp(path.data());
    write("config.json", model::config_json(shape));
    write("tokenizer.json", tokenizer_json);
    write_tensors(shape);
  }
  TinyFolder(const TinyFolder&) = delete;
  TinyFolder& operator=(const TinyFolder&) = delete;
  ~TinyFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }

 private:
  static model::Shape tiny_shape(std::int64_t vocabulary, std::int64_t context) {
    model::Shape shape = small_llama();
    shape.vocabulary = vocabulary;
    shape.context = context;
    return shape;
  }

  void write_tensors(const model::Shape& shape) const {
    const MadeTensors made = made_tensors(shape);
    std::vector<safetensors::Entry> entries;
    for (const model::ForeignTensor& theirs : model::foreign_tensors(shape))
      entries.push_back({theirs.name, safetensors::Type::f32, theirs.shape});
    std::string bytes = safetensors::lay_out(entries, {}).header;
    for (const model::ForeignTensor& theirs : model::foreign_tensors(shape)) {
      for (const std::string& part : theirs.parts) {
        const auto values = std::as_bytes(std::span(made.at(part).values));
        bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
      }
    }
    write("model.safetensors", bytes);
  }

  std::string path_;
};

}  // namespace tutti::serve::cpu
