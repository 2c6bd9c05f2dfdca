#include "serve/lora/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/check.hpp"
#include "base/files/files.hpp"
#include "learn/checkpoint/foreign.hpp"
#include "learn/model/names.hpp"
#include "serve/lora/adapter_config.hpp"

namespace tutti::serve::lora {
namespace {

constexpr std::string_view config_name = "adapter_config.json";
constexpr std::string_view weights_name = "adapter_model.safetensors";
constexpr std::string_view prefix = "base_model.model.";
constexpr std::string_view shrink_ending = ".lora_A.weight";
constexpr std::string_view expand_ending = ".lora_B.weight";
constexpr std::string_view weight_ending = ".weight";
constexpr std::size_t shown_name_max = 256;

std::string named(std::string_view tensor) {
  return "tensor '" + std::string(tensor.substr(0, shown_name_max)) + "'";
}

std::string shown(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : " × ") + std::to_string(size);
  return text;
}

Result<> check_finite(std::span<const float> floats, const std::string& name, const std::string& folder) {
  if (std::ranges::all_of(floats, [](float number) { return std::isfinite(number); })) return {};
  return invalid("it has numbers that are none, or infinite").within(named(name)).within(folder);
}

// A matrix of ours that can be adapted.
struct Place {
  std::int64_t layer = 0;
  Part part = Part::queries;
};

std::map<std::string, Place> places_of(const model::Shape& shape) {
  std::map<std::string, Place> places;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const model::LayerNames names = model::names_of_layer(shape, layer);
    const auto put = [&](const std::string& name, Part part) {
      places.emplace(model::weight_of(name), Place{layer, part});
    };
    put(names.queries, Part::queries);
    put(names.keys, Part::keys);
    put(names.values, Part::values);
    put(names.output, Part::output);
    if (shape.has_experts(layer)) continue;
    if (shape.gated) put(names.feed_forward.gate, Part::gate);
    put(names.feed_forward.up, Part::up);
    put(names.feed_forward.down, Part::down);
  }
  return places;
}

}  // namespace

PartSize size_of(const model::Shape& shape, Part part) {
  const std::int64_t queries = shape.heads * shape.head_size;
  switch (part) {
    case Part::queries:
      return {queries, shape.hidden};
    case Part::keys:
    case Part::values:
      return {shape.kv_heads * shape.head_size, shape.hidden};
    case Part::output:
      return {shape.hidden, queries};
    case Part::gate:
    case Part::up:
      return {shape.intermediate, shape.hidden};
    case Part::down:
      return {shape.hidden, shape.intermediate};
  }
  return {};
}

std::span<const Part> parts_of(Product product) {
  static constexpr std::array qkv{Part::queries, Part::keys, Part::values};
  static constexpr std::array output{Part::output};
  static constexpr std::array up{Part::gate, Part::up};
  static constexpr std::array down{Part::down};
  switch (product) {
    case Product::qkv:
      return qkv;
    case Product::output:
      return output;
    case Product::up:
      return up;
    case Product::down:
      return down;
  }
  return {};
}

// Matches the tensors of the file with the matrices of the model.
class Adapter::Finder {
 public:
  Finder(Adapter& adapter, const model::Shape& shape, const AdapterConfig& config)
      : adapter_(adapter), shape_(shape), config_(config) {
    adapter_.sites_.resize(static_cast<std::size_t>(shape.layers));
  }

  Result<> run() {
    for (const model::ForeignTensor& tensor : model::foreign_tensors(shape_)) {
      if (tensor.shape.size() == 2 && tensor.name.ends_with(weight_ending))
        modules_.emplace(tensor.name.substr(0, tensor.name.size() - weight_ending.size()), tensor);
    }
    for (const safetensors::Entry& entry : adapter_.file_->header().entries) {
      if (auto taken = take(entry); !taken) return std::move(taken).error().within(named(entry.name));
    }
    for (const auto& [module, pair] : pairs_) {
      if (pair.shrink == nullptr || pair.expand == nullptr)
        return invalid("of its two matrices one is missing").within(named(module));
      put(module, pair);
    }
    if (pairs_.empty()) return invalid("it has no tensors");
    for (const std::string& target : config_.targets) {
      if (!met_.contains(target))
        return invalid("'target_modules' names " + target.substr(0, shown_name_max) +
                       ", and there are no tensors of it");
    }
    return {};
  }

 private:
  struct Pair {
    const safetensors::Entry* shrink = nullptr;
    const safetensors::Entry* expand = nullptr;
  };

  Result<> take(const safetensors::Entry& entry) {
    std::string_view module = entry.name;
    const bool is_shrink = module.ends_with(shrink_ending);
    if (!module.starts_with(prefix) || (!is_shrink && !module.ends_with(expand_ending)))
      return invalid("it is no matrix of an adapter that is computed here: base_model.model.….lora_A.weight");
    module.remove_prefix(prefix.size());
    module.remove_suffix(is_shrink ? shrink_ending.size() : expand_ending.size());
    const std::string_view shorter = checkpoint::gpt2_prefix;
    if (shape_.model_type == "gpt2" && module.starts_with(shorter)) module.remove_prefix(shorter.size());
    const auto found = modules_.find(module);
    if (found == modules_.end()) return invalid("the model has no such module");
    const model::ForeignTensor& theirs = found->second;
    if (!std::ranges::all_of(theirs.parts, [&](const auto& part) { return places_.contains(part); }))
      return invalid("only what attention and the layers' feed-forward parts multiply with can be adapted");
    if (!is_target(module)) return invalid("'target_modules' does not name it");
    if (!safetensors::is_weight(entry.type))
      return invalid("it is of " + std::string(safetensors::name_of(entry.type)) +
                     ", and F32, F16 or BF16 is known");
    // Theirs may be the other way round; an adapter's never are.
    const std::int64_t rows = theirs.shape[theirs.transposed ? 1 : 0];
    const std::int64_t columns = theirs.shape[theirs.transposed ? 0 : 1];
    const std::vector<std::int64_t> wanted =
        is_shrink ? std::vector{config_.rank, columns} : std::vector{rows, config_.rank};
    if (entry.shape != wanted)
      return invalid("it is " + shown(entry.shape) + ", and the model and the rank ask for " + shown(wanted));
    Pair& pair = pairs_[found->first];
    const safetensors::Entry*& place = is_shrink ? pair.shrink : pair.expand;
    if (place != nullptr) return invalid("it is there twice");
    place = &entry;
    return {};
  }

  bool is_target(std::string_view module) {
    if (config_.targets.empty()) return true;
    bool is_one = false;
    for (const std::string& target : config_.targets) {
      const bool is_it =
          module == target || (module.ends_with(target) && module[module.size() - target.size() - 1] == '.');
      if (is_it) met_.insert(target);
      is_one = is_one || is_it;
    }
    return is_one;
  }

  void put(const std::string& module, const Pair& pair) {
    std::int64_t first_row = 0;
    for (const std::string& part : modules_.find(module)->second.parts) {
      const Place& place = places_.at(part);
      auto& sites = adapter_.sites_[static_cast<std::size_t>(place.layer)];
      sites[static_cast<std::size_t>(place.part)] = {
          .shrink = pair.shrink, .expand = pair.expand, .first_row = first_row};
      first_row += size_of(shape_, place.part).rows;
    }
  }

  Adapter& adapter_;
  const model::Shape& shape_;
  const AdapterConfig& config_;
  const std::map<std::string, Place> places_ = places_of(shape_);
  std::map<std::string, model::ForeignTensor, std::less<>> modules_;
  std::map<std::string, Pair> pairs_;  // by module
  std::set<std::string> met_;          // of the targets
};

Result<Adapter> Adapter::open(const std::string& folder, const model::Shape& shape) {
  const std::string config_path = folder + "/" + std::string(config_name);
  const auto text = files::read_file(config_path, config_bytes_max);
  if (!text) return text.error();
  if (!*text)
    return invalid("there is no " + std::string(config_name))
        .within(folder)
        .remedy("an adapter is a folder as PEFT's save_pretrained() writes it");
  const auto config = parse_adapter_config(**text);
  if (!config) return Error(config.error()).within(config_path);
  auto file = safetensors::File::open(folder + "/" + std::string(weights_name));
  if (!file)
    return std::move(file)
        .error()
        .as(ErrorCode::invalid)
        .remedy("an adapter is a folder as PEFT's save_pretrained() writes it, with safetensors");
  Adapter adapter;
  adapter.folder_ = folder;
  adapter.file_ = std::make_shared<const safetensors::File>(std::move(*file));
  adapter.rank_ = config->rank;
  adapter.scale_ = config->scale;
  if (auto found = Finder(adapter, shape, *config).run(); !found)
    return std::move(found).error().within(folder);
  return adapter;
}

Adapter Adapter::of_part(const model::Shape& whole, const serve::Part& part) const {
  const PartBegin begin = begin_of_part(whole, part);
  Adapter own = *this;
  for (auto& sites : own.sites_) {
    const auto of = [&](Part which) -> Site& { return sites[static_cast<std::size_t>(which)]; };
    of(Part::queries).first_row += begin.head * whole.head_size;
    of(Part::keys).first_row += begin.kv_head * whole.head_size;
    of(Part::values).first_row += begin.kv_head * whole.head_size;
    of(Part::output).first_column += begin.head * whole.head_size;
    of(Part::gate).first_row += begin.intermediate;
    of(Part::up).first_row += begin.intermediate;
    of(Part::down).first_column += begin.intermediate;
  }
  return own;
}

Result<> Adapter::read(const safetensors::Entry& entry, std::int64_t first_row,
                       std::span<float> floats) const {
  const std::size_t size = safetensors::size_of(entry.type);
  std::vector<std::byte> bytes(floats.size() * size);
  const auto row_bytes = static_cast<std::uint64_t>(entry.shape[1]) * size;
  const std::uint64_t begin = entry.begin + static_cast<std::uint64_t>(first_row) * row_bytes;
  TUTTI_CHECK(begin + bytes.size() <= entry.end);
  if (auto done = file_->read(begin, bytes); !done) return done;
  safetensors::to_floats(entry.type, bytes, floats);
  return {};
}

Result<> Adapter::read_shrink(std::int64_t layer, Part part, std::span<float> floats) const {
  const Site& from = site(layer, part);
  const auto whole = static_cast<std::size_t>(from.shrink->shape[1]);
  const std::size_t columns = floats.size() / static_cast<std::size_t>(rank_);
  const auto first = static_cast<std::size_t>(from.first_column);
  TUTTI_CHECK(first + columns <= whole);
  if (columns == whole) {
    if (auto done = read(*from.shrink, 0, floats); !done) return done;
  } else {
    std::vector<float> wide(static_cast<std::size_t>(rank_) * whole);
    if (auto done = read(*from.shrink, 0, wide); !done) return done;
    for (std::size_t row = 0; row < static_cast<std::size_t>(rank_); ++row)
      std::ranges::copy(std::span(wide).subspan(row * whole + first, columns),
                        floats.subspan(row * columns, columns).begin());
  }
  return check_finite(floats, from.shrink->name, folder_);
}

Result<> Adapter::read_expand(std::int64_t layer, Part part, std::span<float> floats) const {
  const Site& from = site(layer, part);
  if (auto done = read(*from.expand, from.first_row, floats); !done) return done;
  for (float& number : floats) number = static_cast<float>(static_cast<double>(number) * scale_);
  return check_finite(floats, from.expand->name, folder_);
}

std::int64_t largest_rank(std::span<const Adapter> adapters) {
  std::int64_t largest = 0;
  for (const Adapter& adapter : adapters) largest = std::max(largest, adapter.rank());
  return largest;
}

}  // namespace tutti::serve::lora
