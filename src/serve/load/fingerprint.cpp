#include "serve/load/fingerprint.hpp"

#include <sys/stat.h>

#include <string_view>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/hash/hash.hpp"

namespace tutti::serve {
namespace {

bool decides(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
         name == "config.json" || name == "adapter_config.json";
}

std::string hashed(std::string_view text) { return hash128(as_bytes(text)).hex(); }

}  // namespace

std::string stamp_of_folder(const std::string& folder) {
  std::string stamp;
  const auto names = files::list_folder(folder);
  if (!names || !*names) return stamp;
  for (const std::string& name : **names) {
    struct stat status {};
    if (!decides(name) || stat((folder + "/" + name).c_str(), &status) != 0) continue;
    stamp += name + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
             std::to_string(status.st_mtim.tv_nsec) + "\n";
  }
  return hashed(stamp);
}

std::string fingerprint_of(const Source& source, std::span<const NamedAdapter> adapters) {
  std::string all = source.fingerprint;
  for (const NamedAdapter& adapter : adapters) all += " " + stamp_of_folder(adapter.folder);
  return hashed(all);
}

Result<> check_unchanged(const Source& source, std::span<const NamedAdapter> adapters,
                         const std::string& fingerprint) {
  const bool is_same = source.folder.empty() || stamp_of_folder(source.folder) == source.fingerprint;
  if (is_same && fingerprint_of(source, adapters) == fingerprint) return {};
  return failed("its files were changed while they were read")
      .remedy("start it again when nobody writes into them");
}

}  // namespace tutti::serve
