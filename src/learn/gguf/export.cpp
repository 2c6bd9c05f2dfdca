#include "learn/gguf/export.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "learn/checkpoint/files.hpp"
#include "learn/checkpoint/foreign.hpp"
#include "learn/gguf/architecture.hpp"
#include "learn/gguf/vocabulary.hpp"
#include "learn/model/shape.hpp"

namespace tutti::gguf {
namespace {

namespace weights = safetensors;

Type type_of(weights::Type type) {
  if (type == weights::Type::f32) return Type::f32;
  return type == weights::Type::f16 ? Type::f16 : Type::bf16;
}

// What most of the tensors are of, by its number in the format.
std::uint32_t file_type(weights::Type type) {
  if (type == weights::Type::f32) return 0;
  return type == weights::Type::f16 ? 1 : 32;
}

// Rows of a head from halves apart to neighbours: those of pair p become rows 2p and 2p + 1.
void pair_rows(std::span<const float> from, std::int64_t head_rows, std::int64_t columns,
               std::span<float> to) {
  const std::int64_t rows = static_cast<std::int64_t>(from.size()) / columns;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t in_head = row % head_rows;
    const std::int64_t source = row - in_head + in_head / 2 + in_head % 2 * (head_rows / 2);
    std::copy_n(from.begin() + source * columns, columns, to.begin() + row * columns);
  }
}

class Writer {
 public:
  Writer(const checkpoint::Checkpoint& checkpoint, const checkpoint::ExportOptions& options, std::string path,
         int file)
      : checkpoint_(checkpoint), options_(options), path_(std::move(path)), file_(file) {}

  Result<> write(const Architecture& architecture, const Fields& fields) {
    std::vector<Tensor> tensors;
    for (const Planned& planned : architecture.tensors)
      tensors.push_back({planned.name, planned.shape, type_of(written_as(planned))});
    const Layout layout = lay_out(fields, tensors);
    if (auto put = files::write_at(file_, 0, as_bytes(layout.head), path_); !put) return put;
    // The room behind the last tensor is part of the file.
    if (::ftruncate(file_, static_cast<off_t>(layout.file_bytes)) != 0)
      return failed_errno("cannot write " + path_, errno);
    for (const Tensor& tensor : tensors) bytes_in_all_ += static_cast<std::uint64_t>(tensor.elements()) * 4;
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      auto put = write_tensor(architecture.tensors[at], layout.begins[at]);
      if (!put) return std::move(put).error().within("tensor '" + tensors[at].name + "'");
    }
    return files::sync_file(file_, path_);
  }

 private:
  weights::Type written_as(const Planned& planned) const {
    return planned.always_f32 ? weights::Type::f32 : options_.type;
  }

  Result<> write_tensor(const Planned& planned, std::uint64_t begin) {
    const weights::Type type = written_as(planned);
    if (planned.parts.empty()) return write_numbers(planned.numbers, type, begin);
    for (const std::string& part : planned.parts) {
      if (auto written = write_part(planned, part, type, begin); !written) return written;
    }
    return {};
  }

  // As many rows at a time as fit into memory, and whole heads of those whose order changes.
  Result<> write_part(const Planned& planned, const std::string& part, weights::Type type,
                      std::uint64_t& begin) {
    const std::string name = checkpoint::model_prefix + part;
    const auto found = checkpoint_.tensors().find(name);
    if (found == checkpoint_.tensors().end()) return failed("the checkpoint has no " + part);
    if (found->second.type != weights::Type::f32) return failed("it is not of 32-bit floats");
    const auto& shape = found->second.shape;
    const std::int64_t columns = shape.size() == 2 ? shape[1] : 1;
    const std::int64_t unit = std::max<std::int64_t>(planned.paired_rows, 1);
    const std::int64_t rows_max =
        std::max<std::int64_t>(options_.floats_at_a_time / columns / unit, 1) * unit;
    for (std::int64_t first = 0; first < shape[0]; first += rows_max) {
      checkpoint::Box box = checkpoint::whole(shape);
      box.offset[0] = first;
      box.extent[0] = std::min(rows_max, shape[0] - first);
      floats_.resize(static_cast<std::size_t>(box.elements()));
      auto read = checkpoint_.read(name, box, std::as_writable_bytes(std::span(floats_)));
      if (!read) return read;
      if (planned.paired_rows > 0) {
        paired_.resize(floats_.size());
        pair_rows(floats_, planned.paired_rows, columns, paired_);
        floats_.swap(paired_);
      }
      if (auto written = write_numbers(floats_, type, begin); !written) return written;
      begin += floats_.size() * weights::size_of(type);
    }
    return {};
  }

  Result<> write_numbers(std::span<const float> numbers, weights::Type type, std::uint64_t begin) {
    bytes_.resize(numbers.size() * weights::size_of(type));
    weights::from_floats(numbers, type, bytes_);
    if (auto put = files::write_at(file_, begin, bytes_, path_); !put) return put;
    bytes_done_ += numbers.size_bytes();
    if (options_.progress(bytes_done_, bytes_in_all_)) return {};
    return failed("interrupted");
  }

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::ExportOptions& options_;
  std::string path_;
  int file_;
  std::uint64_t bytes_done_ = 0;  // of the model as floats
  std::uint64_t bytes_in_all_ = 0;
  std::vector<float> floats_;
  std::vector<float> paired_;
  std::vector<std::byte> bytes_;
};

}  // namespace

Result<> export_gguf(const checkpoint::Checkpoint& checkpoint, const std::string& path,
                     const checkpoint::ExportOptions& options) {
  TUTTI_CHECK(weights::is_weight(options.type));
  auto shape = model::parse_config(checkpoint.state().model_config);
  if (!shape) return std::move(shape).error().within(checkpoint.path());
  auto architecture = architecture_of(*shape);
  if (!architecture) return std::move(architecture).error().within(checkpoint.path());
  architecture->fields.add("general.file_type", file_type(options.type));
  architecture->fields.add("general.alignment", static_cast<std::uint32_t>(alignment_bytes));
  if (auto added = add_vocabulary(options.tokenizer, shape->vocabulary, architecture->fields); !added)
    return added;
  if (!options.chat_template.empty())
    architecture->fields.add("tokenizer.chat_template", std::string_view(options.chat_template));
  if (::access(path.c_str(), F_OK) == 0)
    return invalid(path + " is there already").remedy("name a file that is not there yet");
  const std::string part = path + ".part";
  ::unlink(part.c_str());
  const files::FileDescriptor file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return failed_errno("cannot write " + part, errno);
  auto done = Writer(checkpoint, options, part, file.get()).write(*architecture, architecture->fields);
  if (done) done = checkpoint::rename_file(part, path);
  if (!done) ::unlink(part.c_str());
  return done;
}

}  // namespace tutti::gguf
