#include "learn/checkpoint/export.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "learn/checkpoint/files.hpp"
#include "learn/checkpoint/foreign.hpp"
#include "learn/model/shape.hpp"
#include "learn/safetensors/header.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::size_t number_digits = 5;  // of a file among several

const char* torch_name(safetensors::Type type) {
  if (type == safetensors::Type::bf16) return "bfloat16";
  return type == safetensors::Type::f16 ? "float16" : "float32";
}

// One file of the export, before it is written.
struct PlannedFile {
  std::string name;
  std::vector<model::ForeignTensor> tensors;
};

class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path) {
    files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.valid()) return failed_errno("cannot write " + path, errno);
    return OutputFile(path, std::move(file));
  }

  Result<> write(std::uint64_t begin, std::span<const std::byte> bytes) const {
    return files::write_at(file_.get(), begin, bytes, path_);
  }

  Result<> sync() const { return files::sync_file(file_.get(), path_); }

 private:
  OutputFile(std::string path, files::FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  files::FileDescriptor file_;
};

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const model::Shape& shape, const ExportOptions& options)
      : checkpoint_(checkpoint), shape_(shape), options_(options) {}

  // Whether the checkpoint has all of the model, before anything is written.
  Result<> check() {
    for (const auto& [name, shape] : shapes_of(shape_)) {
      if (auto fine = check(name, shape); !fine)
        return std::move(fine).error().within("tensor '" + name + "'");
      elements_ += static_cast<std::uint64_t>(whole(shape).elements());
    }
    return {};
  }

  Result<> write(const std::string& folder) {
    const auto files = plan();
    for (const PlannedFile& file : files) {
      if (auto written = write_weights(folder, file); !written) return written;
    }
    if (files.size() > 1) {
      if (auto written = replace_durably(folder + "/" + index_name, index(files)); !written) return written;
    }
    if (!options_.tokenizer.empty()) {
      auto written = replace_durably(folder + "/tokenizer.json", options_.tokenizer);
      if (!written) return written;
    }
    if (!options_.chat_template.empty()) {
      auto written = replace_durably(folder + "/chat_template.jinja", options_.chat_template);
      if (!written) return written;
    }
    return replace_durably(folder + "/config.json", config());
  }

 private:
  Result<> check(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const auto found = checkpoint_.tensors().find(model_prefix + name);
    if (found == checkpoint_.tensors().end()) return failed("the checkpoint has none");
    if (found->second.type != safetensors::Type::f32) return failed("it is not of 32-bit floats");
    if (found->second.shape != shape) return failed("its shape is not the one that config.json asks for");
    return {};
  }

  std::uint64_t bytes_of(const model::ForeignTensor& tensor) const {
    return *safetensors::bytes_of(options_.type, tensor.shape);
  }

  // In the model's order, as many tensors into a file as its limit allows.
  std::vector<PlannedFile> plan() const {
    std::vector<PlannedFile> files(1);
    std::uint64_t bytes = 0;
    for (auto& tensor : model::foreign_tensors(shape_)) {
      if (bytes > 0 && bytes + bytes_of(tensor) > options_.file_bytes_max) {
        files.emplace_back();
        bytes = 0;
      }
      bytes += bytes_of(tensor);
      files.back().tensors.push_back(std::move(tensor));
    }
    files.front().name = weights_name;
    const auto count = static_cast<std::int64_t>(files.size());
    for (std::int64_t at = 0; count > 1 && at < count; ++at) {
      files[static_cast<std::size_t>(at)].name =
          "model-" + padded(at + 1, number_digits) + "-of-" + padded(count, number_digits) + ".safetensors";
    }
    return files;
  }

  // A head of its own stands beside the transformer there, and then each name says whose it is.
  std::string foreign_name(const std::string& name) const {
    const bool prefixed = shape_.model_type == "gpt2" && !shape_.tied && name != head_name;
    return (prefixed ? gpt2_prefix : "") + name;
  }

  std::string index(const std::vector<PlannedFile>& files) const {
    std::vector<json::Member> weight_map;
    for (const PlannedFile& file : files) {
      for (const auto& tensor : file.tensors) weight_map.push_back({foreign_name(tensor.name), file.name});
    }
    const std::uint64_t bytes = elements_ * safetensors::size_of(options_.type);
    const json::Object index{{"metadata", json::Object{{"total_size", bytes}}},
                             {"weight_map", json::Object(std::move(weight_map))}};
    return json::write(index, {.indent = 2}) + "\n";
  }

  std::string config() const {
    auto config = json::parse(checkpoint_.state().model_config);
    TUTTI_CHECK(config && config->object() != nullptr, "the shape was read from it");
    (*config)["torch_dtype"] = torch_name(options_.type);
    return json::write(*config, {.indent = 2}) + "\n";
  }

  Result<> write_weights(const std::string& folder, const PlannedFile& planned) {
    std::vector<safetensors::Entry> entries;
    for (const auto& tensor : planned.tensors) {
      entries.push_back({foreign_name(tensor.name), options_.type, tensor.shape});
    }
    const auto layout = safetensors::lay_out(std::move(entries), {{"format", "pt"}});
    const auto file = OutputFile::create(folder + "/" + planned.name);
    if (!file) return file.error();
    if (auto written = file->write(0, as_bytes(layout.header)); !written) return written;
    for (std::size_t at = 0; at < planned.tensors.size(); ++at) {
      auto written = write_tensor(*file, layout.entries[at].begin, planned.tensors[at]);
      if (!written) return std::move(written).error().within("tensor '" + planned.tensors[at].name + "'");
    }
    return file->sync();
  }

  // Part below part, and of each as many rows at a time as fit into memory.
  Result<> write_tensor(const OutputFile& file, std::uint64_t begin, const model::ForeignTensor& tensor) {
    std::int64_t row = 0;
    for (const std::string& part : tensor.parts) {
      const auto& shape = checkpoint_.tensors().at(model_prefix + part).shape;
      const std::int64_t columns = shape.size() == 2 ? shape[1] : 1;
      const std::int64_t rows_max = std::max<std::int64_t>(options_.floats_at_a_time / columns, 1);
      for (std::int64_t first = 0; first < shape[0]; first += rows_max) {
        const std::int64_t rows = std::min(rows_max, shape[0] - first);
        Box box = whole(shape);
        box.offset[0] = first;
        box.extent[0] = rows;
        if (auto read = read_rows(part, box); !read) return read;
        auto written = tensor.transposed ? write_columns(file, begin, row, rows, tensor.shape)
                                         : write_numbers(file, begin, row * columns, floats_);
        if (!written) return written;
        row += rows;
      }
    }
    return {};
  }

  Result<> read_rows(const std::string& part, const Box& box) {
    floats_.resize(static_cast<std::size_t>(box.elements()));
    auto read = checkpoint_.read(model_prefix + part, box, std::as_writable_bytes(std::span(floats_)));
    if (!read) return read;
    done_ += floats_.size();
    if (options_.progress(done_ * sizeof(float), elements_ * sizeof(float))) return {};
    return failed("interrupted");
  }

  // The rows at hand are a band of columns there, `rows` wide.
  Result<> write_columns(const OutputFile& file, std::uint64_t begin, std::int64_t row, std::int64_t rows,
                         const std::vector<std::int64_t>& shape) {
    turned_.resize(floats_.size());
    transpose(floats_, rows, shape[0], turned_);
    if (rows == shape[1]) return write_numbers(file, begin, 0, turned_);
    const auto width = static_cast<std::size_t>(rows);
    for (std::int64_t line = 0; line < shape[0]; ++line) {
      const auto band =
          std::span<const float>(turned_).subspan(static_cast<std::size_t>(line) * width, width);
      if (auto written = write_numbers(file, begin, line * shape[1] + row, band); !written) return written;
    }
    return {};
  }

  // `element` counts from the tensor's first.
  Result<> write_numbers(const OutputFile& file, std::uint64_t begin, std::int64_t element,
                         std::span<const float> numbers) {
    const std::size_t size = safetensors::size_of(options_.type);
    bytes_.resize(numbers.size() * size);
    safetensors::from_floats(numbers, options_.type, bytes_);
    return file.write(begin + static_cast<std::uint64_t>(element) * size, bytes_);
  }

  const Checkpoint& checkpoint_;
  const model::Shape& shape_;
  const ExportOptions& options_;
  std::uint64_t elements_ = 0;  // in all
  std::uint64_t done_ = 0;
  std::vector<float> floats_;
  std::vector<float> turned_;
  std::vector<std::byte> bytes_;
};

Result<> check_free(const std::string& folder) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  if (names->empty()) return {};
  return invalid(folder + " is not empty").remedy("name a folder that is not there yet");
}

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

}  // namespace

Result<> export_hf(const Checkpoint& checkpoint, const std::string& folder, const ExportOptions& options) {
  TUTTI_CHECK(safetensors::is_weight(options.type));
  auto shape = model::parse_config(checkpoint.state().model_config);
  if (!shape) return std::move(shape).error().within(checkpoint.path());
  Exporter exporter(checkpoint, *shape, options);
  if (auto fine = exporter.check(); !fine) return std::move(fine).error().within(checkpoint.path());
  if (auto free = check_free(folder); !free) return free;
  const std::string part = without_slash(folder) + ".part";
  if (auto removed = files::remove_folder(part); !removed) return removed;
  if (auto made = files::make_folders(part); !made) return made;
  auto done = exporter.write(part);
  if (done) done = rename_file(part, folder);
  if (!done) static_cast<void>(files::remove_folder(part));
  return done;
}

}  // namespace tutti::checkpoint
