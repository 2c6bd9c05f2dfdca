#include "cli/ship.hpp"

#include <cstdio>
#include <map>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "cli/terminal.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/manifest.hpp"
#include "net/sync/scan.hpp"

namespace tutti::cli {
namespace {

// Where the content of a hash can be read.
struct Source {
  std::string path;
  sync::ChunkPlace place;
};

std::map<std::string, Source> sources_of(const sync::Manifest& manifest, const std::string& folder) {
  std::map<std::string, Source> sources;
  for (const auto& entry : manifest.entries) {
    for (std::size_t at = 0; at < entry.chunks.size(); ++at) {
      const std::string& hash = entry.chunks[at];
      sources.try_emplace(hash, Source{folder + "/" + entry.path, {entry.bytes, at, hash}});
    }
  }
  return sources;
}

}  // namespace

Result<std::string> ship(Cluster& cluster, const std::string& folder) {
  auto scanned = sync::scan(folder);
  if (!scanned) return std::move(scanned).error().within("--sync");
  for (const auto& warning : scanned->warnings) print_note(warning);
  const auto sources = sources_of(scanned->manifest, folder);
  const std::string manifest = sync::encode(scanned->manifest);
  const std::string manifest_hash = sync::hash_bytes(as_bytes(manifest));
  auto asked = nlohmann::json::array();
  for (const auto& [hash, source] : sources) asked.push_back(hash);
  auto missing = cluster.post("blobs/missing", asked.dump());
  if (!missing) return std::move(missing).error();
  for (const auto& hash : *missing) {
    const std::string name = hash.get<std::string>();
    const auto source = sources.find(name);
    if (source == sources.end()) return failed("the controller asks for what was not offered");
    auto content = sync::read_chunk(source->second.path, source->second.place);
    if (!content) return std::move(content).error().within("--sync");
    if (auto put = cluster.put("blobs/" + name, *content); !put)
      return std::move(put).error().within("shipping " + source->second.path);
  }
  if (auto put = cluster.put("blobs/" + manifest_hash, manifest); !put) return std::move(put).error();
  return manifest_hash;
}

}  // namespace tutti::cli
