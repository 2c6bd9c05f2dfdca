#include "serve/load/script.hpp"

#include <filesystem>

#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t signature_bytes_max = std::size_t{1} << 20;

std::optional<std::int64_t> whole_between(const json::Value& object, const char* key, std::int64_t low,
                                          std::int64_t high) {
  const json::Value* const value = object.find(key);
  const auto whole = value == nullptr ? std::nullopt : value->whole();
  return whole && *whole >= low && *whole <= high ? whole : std::nullopt;
}

}  // namespace

std::string write_script_options(const ScriptOptions& options) {
  return json::write(json::Object{{"device", options.device},
                                  {"instances", options.instances},
                                  {"rows_max", options.rows_max},
                                  {"signature", write_signature(options.signature)}});
}

Result<ScriptOptions> read_script_options(std::string_view text) {
  const auto root = json::parse(text);
  if (!root) return Error(root.error()).within("options of a script");
  const json::Value* const device = root->find("device");
  const auto instances = whole_between(*root, "instances", 1, instances_max);
  const auto rows_max = whole_between(*root, "rows_max", 1, rows_max_limit);
  const json::Value* const signature = root->find("signature");
  if (device == nullptr || device->text() == nullptr ||
      (*device->text() != "cpu" && *device->text() != "cuda") || !instances || !rows_max ||
      signature == nullptr)
    return invalid("these are no options of a script")
        .remedy("tutti and tutti-worker must be of one version");
  auto read = read_signature(*signature);
  if (!read) return std::move(read).error();
  return ScriptOptions{*device->text(), static_cast<int>(*instances), *rows_max, std::move(*read)};
}

Result<Signature> read_script_signature(const std::string& path) {
  const std::string beside = std::filesystem::path(path).replace_extension(".json").string();
  if (beside == path) return Signature{};
  const auto text = files::read_file(beside, signature_bytes_max);
  if (!text) return text.error();
  if (!*text) return Signature{};
  const auto root = json::parse(**text);
  if (!root) return Error(root.error()).within(beside);
  auto signature = read_signature(*root);
  if (!signature) return std::move(signature).error().within(beside);
  return signature;
}

std::string script_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).stem().string();
  return name.empty() ? "model" : name;
}

}  // namespace tutti::serve
