#include "learn/checkpoint/import.hpp"

#include <algorithm>
#include <set>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "learn/checkpoint/files.hpp"
#include "learn/checkpoint/foreign.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::size_t foreign_config_bytes_max = std::size_t{4} << 20;

constexpr std::size_t index_bytes_max = std::size_t{64} << 20;

// The names of the files that an index lists.
Result<std::set<std::string>> parse_index(std::string_view text) {
  const auto index = json::parse(text);
  const auto wrong = [] {
    return invalid("its weight_map is no map from tensors to files").within(index_name);
  };
  const json::Value* const map = index ? index->find("weight_map") : nullptr;
  if (map == nullptr || map->object() == nullptr) return wrong();
  std::set<std::string> names;
  for (const auto& [tensor, file] : *map->object()) {
    if (file.text() == nullptr || !is_file_name(*file.text())) return wrong();
    names.insert(*file.text());
  }
  return names;
}

Result<std::vector<std::string>> paths_of(const std::string& path) {
  if (!is_folder(path)) return std::vector{path};
  const auto names = names_in(path);
  if (!names) return names.error();
  if (std::ranges::binary_search(*names, weights_name)) return std::vector{path + "/" + weights_name};
  const auto index = files::read_file(path + "/" + index_name, index_bytes_max);
  if (!index) return index.error();
  if (!*index) return invalid("it has neither " + std::string(weights_name) + " nor " + index_name);
  auto files = parse_index(**index);
  if (!files) return std::move(files).error();
  std::vector<std::string> paths;
  for (const auto& file : *files) paths.push_back(path + "/" + file);
  return paths;
}

// Constants that some files carry along with the weights.
bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

// Matches the tensors of the files with those of the model.
class ForeignWeights::Finder {
 public:
  Finder(ForeignWeights& weights, const model::Shape& shape)
      : weights_(weights), shape_(shape), shapes_(shapes_of(shape)) {}

  Result<> run() {
    if (auto collected = collect(); !collected) return collected;
    for (const auto& tensor : model::foreign_tensors(shape_)) {
      if (auto found = find(tensor); !found) {
        return std::move(found).error().within("tensor '" + tensor.name + "'");
      }
    }
    for (const auto& [name, place] : left_) {
      const bool tied_head = shape_.tied && name == head_name;
      if (!tied_head && !is_buffer(name))
        return invalid("this model has no such tensor").within("tensor '" + name + "'");
    }
    return {};
  }

 private:
  // The name that a whole model has for it. GPT-2's are known without their prefix; the others may lack
  // theirs, where only what comes before the head was saved, as models of embeddings are.
  std::string name_of(const std::string& name) const {
    if (shape_.model_type == "gpt2")
      return name.starts_with(gpt2_prefix) ? name.substr(std::string_view(gpt2_prefix).size()) : name;
    const bool is_bare =
        name.starts_with("embed_tokens.") || name.starts_with("layers.") || name.starts_with("norm.");
    return is_bare ? "model." + name : name;
  }

  Result<> collect() {
    for (std::size_t file = 0; file < weights_.files_.size(); ++file) {
      for (const auto& entry : weights_.files_[file].header().entries) {
        const std::string name = name_of(entry.name);
        if (!left_.try_emplace(name, file, entry).second) {
          return invalid("it is there twice").within("tensor '" + name + "'");
        }
      }
    }
    return {};
  }

  Result<> find(const model::ForeignTensor& tensor) {
    const auto found = left_.find(tensor.name);
    if (found == left_.end()) return invalid("it is missing");
    const auto& [file, entry] = found->second;
    if (entry.shape != tensor.shape) {
      return invalid("it is " + whole(entry.shape).text() + ", and the model asks for " +
                     whole(tensor.shape).text());
    }
    if (!safetensors::is_weight(entry.type)) {
      return invalid("it is of " + std::string(safetensors::name_of(entry.type)) +
                     ", and F32, F16 or BF16 is known");
    }
    std::int64_t row = 0;
    for (const std::string& part : tensor.parts) {
      const auto& shape = shapes_.at(part);
      weights_.sources_.emplace(part, Source{shape, file, entry, row, tensor.transposed});
      row += shape[0];
    }
    left_.erase(found);
    return {};
  }

  ForeignWeights& weights_;
  const model::Shape& shape_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::map<std::string, std::pair<std::size_t, safetensors::Entry>> left_;  // not yet asked for
};

Result<ForeignWeights> ForeignWeights::open(const std::string& path, const model::Shape& shape) {
  const auto paths = paths_of(path);
  if (!paths) return Error(paths.error()).within(path);
  ForeignWeights weights;
  weights.path_ = path;
  for (const std::string& name : *paths) {
    auto file = safetensors::File::open(name);
    if (!file) return std::move(file).error();
    weights.files_.push_back(std::move(*file));
  }
  if (auto found = Finder(weights, shape).run(); !found) return std::move(found).error().within(path);
  return weights;
}

Result<Hash128> ForeignWeights::fingerprint() const {
  constexpr std::uint64_t sample_bytes = 4096;
  std::string looked_at;
  for (const safetensors::File& file : files_) {
    for (const safetensors::Entry& entry : file.header().entries) {
      looked_at += entry.name + " " + std::string(safetensors::name_of(entry.type)) + " " +
                   whole(entry.shape).text() + "\n";
      const std::uint64_t size = entry.end - entry.begin;
      const std::uint64_t take = std::min(size, sample_bytes);
      for (const std::uint64_t begin : {entry.begin, entry.begin + (size - take) / 2, entry.end - take}) {
        std::string sample(take, '\0');
        if (auto done = file.read(begin, std::as_writable_bytes(std::span(sample))); !done)
          return std::move(done).error();
        looked_at += sample;
      }
    }
  }
  return hash128(as_bytes(looked_at));
}

Result<const ForeignWeights::Source*> ForeignWeights::find(const std::string& name) const {
  const auto found = sources_.find(name);
  if (found == sources_.end()) return invalid("there is no tensor '" + name + "'").within(path_);
  return &found->second;
}

Result<> ForeignWeights::read_bytes(const Source& source, const Box& theirs,
                                    std::span<std::byte> bytes) const {
  const std::size_t size = safetensors::size_of(source.entry.type);
  SharedRuns runs(whole(source.entry.shape), theirs);
  while (const auto run = runs.next()) {
    const auto out = bytes.subspan(static_cast<std::size_t>(run->wanted) * size,
                                   static_cast<std::size_t>(run->elements) * size);
    const std::uint64_t begin = source.entry.begin + static_cast<std::uint64_t>(run->source) * size;
    if (auto done = files_[source.file].read(begin, out); !done) return done;
  }
  return {};
}

Result<> ForeignWeights::read(const std::string& name, const Box& box, std::span<float> floats) const {
  const auto found = find(name);
  if (!found) return found.error();
  const Source& source = **found;
  if (!is_inside(box, source.shape)) {
    return invalid("tensor '" + name + "' has no " + box.text()).within(path_);
  }
  TUTTI_CHECK(static_cast<std::int64_t>(floats.size()) == box.elements());
  Box theirs = box;
  theirs.offset[0] += source.first_row;
  if (source.transposed) {
    std::ranges::reverse(theirs.offset);
    std::ranges::reverse(theirs.extent);
  }
  std::vector<std::byte> bytes(floats.size() * safetensors::size_of(source.entry.type));
  if (auto done = read_bytes(source, theirs, bytes); !done) return done;
  if (!source.transposed) {
    safetensors::to_floats(source.entry.type, bytes, floats);
    return {};
  }
  std::vector<float> turned(floats.size());
  safetensors::to_floats(source.entry.type, bytes, turned);
  transpose(turned, theirs.extent[0], theirs.extent[1], floats);
  return {};
}

Result<> ForeignWeights::read_rows(const std::string& name, std::int64_t first_row, std::int64_t rows,
                                   std::span<float> floats) const {
  const auto found = find(name);
  if (!found) return found.error();
  return read(name, rows_of((*found)->shape, first_row, rows), floats);
}

Result<bool> ForeignWeights::read_stored(const std::string& name, std::int64_t first_row, std::int64_t rows,
                                         safetensors::Type type, std::span<std::byte> bytes) const {
  const auto found = find(name);
  if (!found) return found.error();
  const Source& source = **found;
  if (source.entry.type != type || source.transposed) return false;
  Box box = rows_of(source.shape, first_row, rows);
  if (!is_inside(box, source.shape)) {
    return invalid("tensor '" + name + "' has no " + box.text()).within(path_);
  }
  TUTTI_CHECK(bytes.size() == static_cast<std::size_t>(box.elements()) * safetensors::size_of(type));
  box.offset[0] += source.first_row;
  if (auto done = read_bytes(source, box, bytes); !done) return std::move(done).error();
  return true;
}

Result<ForeignModel> open_foreign(const std::string& folder) {
  const auto config = files::read_existing_file(folder + "/config.json", foreign_config_bytes_max);
  if (!config) return config.error();
  auto shape = model::parse_config(*config);
  if (!shape) return std::move(shape).error().within(folder);
  auto weights = ForeignWeights::open(folder, *shape);
  if (!weights) return std::move(weights).error();
  return ForeignModel{std::move(*shape), std::move(*weights)};
}

}  // namespace tutti::checkpoint
