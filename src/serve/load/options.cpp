// The options of a model as JSON, from `tutti` to its worker.
#include <limits>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "serve/load/load.hpp"

namespace tutti::serve {
namespace {

// A whole number of the object between these; one that is missing is wrong.
template <class Number>
bool read_number(const json::Value& object, const char* key, Number low, Number high, Number& target) {
  const json::Value* const value = object.find(key);
  const auto whole = value == nullptr ? std::nullopt : value->whole();
  if (!whole || *whole < static_cast<std::int64_t>(low) || *whole > static_cast<std::int64_t>(high))
    return false;
  target = static_cast<Number>(*whole);
  return true;
}

json::Array list_of(const std::vector<NamedAdapter>& adapters) {
  json::Array list;
  for (const NamedAdapter& adapter : adapters)
    list.push_back(json::Object{{"name", adapter.name}, {"folder", adapter.folder}});
  return list;
}

bool read_adapters(const json::Value& object, std::vector<NamedAdapter>& target) {
  const json::Value* const value = object.find("adapters");
  if (value == nullptr || value->list() == nullptr) return false;
  for (const json::Value& each : *value->list()) {
    const json::Value* const name = each.find("name");
    const json::Value* const folder = each.find("folder");
    if (name == nullptr || name->text() == nullptr || folder == nullptr || folder->text() == nullptr)
      return false;
    target.push_back({*name->text(), *folder->text()});
  }
  return check_adapters(target, "").ok();
}

}  // namespace

std::string write_options(const LoadOptions& options) {
  return json::write(json::Object{{"device", options.device == Device::cuda ? "cuda" : "cpu"},
                                  {"weights", options.weights},
                                  {"threads", options.threads},
                                  {"context_max", options.context_max},
                                  {"cache_bytes", options.cache_bytes},
                                  {"step_tokens_max", options.step_tokens_max},
                                  {"step_rows_max", options.step_rows_max},
                                  {"ranks", options.ranks},
                                  {"rank", options.rank},
                                  {"port", options.port},
                                  {"adapters", list_of(options.adapters)}});
}

Result<LoadOptions> read_options(std::string_view text) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  constexpr auto most_rows = std::numeric_limits<std::int32_t>::max();
  const auto root = json::parse(text);
  if (!root) return Error(root.error()).within("options of a model");
  LoadOptions options;
  const json::Value* const device = root->find("device");
  const json::Value* const weights = root->find("weights");
  const auto chosen =
      device == nullptr || device->text() == nullptr ? parse_device("") : parse_device(*device->text());
  std::int64_t cache_bytes = 0;
  const bool fine =
      chosen && weights != nullptr && weights->text() != nullptr &&
      read_number<std::int64_t>(*root, "threads", 0, std::numeric_limits<int>::max(), options.threads) &&
      read_number<std::int64_t>(*root, "context_max", 0, most, options.context_max) &&
      read_number<std::int64_t>(*root, "cache_bytes", 0, most, cache_bytes) &&
      read_number(*root, "step_tokens_max", 1, most_rows, options.step_tokens_max) &&
      read_number(*root, "step_rows_max", 1, most_rows, options.step_rows_max) &&
      read_number(*root, "ranks", 1, ranks_max, options.ranks) &&
      read_number(*root, "rank", 0, options.ranks - 1, options.rank) &&
      read_number(*root, "port", 0, int{std::numeric_limits<std::uint16_t>::max()}, options.port) &&
      read_adapters(*root, options.adapters);
  if (!fine)
    return invalid("these are no options of a model").remedy("tutti and tutti-worker must be of one version");
  options.device = *chosen;
  options.weights = *weights->text();
  options.cache_bytes = static_cast<std::uint64_t>(cache_bytes);
  return options;
}

}  // namespace tutti::serve
