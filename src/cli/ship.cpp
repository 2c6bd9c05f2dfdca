#include "cli/ship.hpp"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/units.hpp"
#include "sync/digest.hpp"
#include "sync/manifest.hpp"
#include "sync/scan.hpp"

namespace tutti::cli {
namespace {

Result<std::string> read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return failed_errno("cannot be read", errno).within(path);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

}  // namespace

Result<std::string> ship(Cluster& cluster, const std::string& folder) {
  auto scanned = sync::scan(folder);
  if (!scanned) return std::move(scanned).error().within("--sync");
  for (const auto& warning : scanned->warnings) std::fprintf(stderr, "tutti: %s\n", warning.c_str());
  std::map<std::string, std::string> paths;  // by hash
  for (const auto& entry : scanned->manifest.entries) {
    if (!entry.hash.empty()) paths[entry.hash] = folder + "/" + entry.path;
  }
  const std::string manifest = sync::encode(scanned->manifest);
  const std::string manifest_hash = sync::hash_bytes(as_bytes(manifest));
  auto asked = nlohmann::json::array();
  for (const auto& [hash, path] : paths) asked.push_back(hash);
  auto missing = cluster.post("blobs/missing", asked.dump());
  if (!missing) return std::move(missing).error();
  for (const auto& hash : *missing) {
    const std::string name = hash.get<std::string>();
    const auto path = paths.find(name);
    if (path == paths.end()) return failed("the controller asks for what was not offered");
    auto content = read_all(path->second);
    if (!content) return std::move(content).error();
    if (auto put = cluster.put("blobs/" + name, *content); !put)
      return std::move(put).error().within("shipping " + path->second);
  }
  if (auto put = cluster.put("blobs/" + manifest_hash, manifest); !put) return std::move(put).error();
  return manifest_hash;
}

}  // namespace tutti::cli
