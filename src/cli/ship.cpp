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
  auto missing = cluster.send_until_answered("POST", "blobs/missing", asked.dump(), "shipping " + folder);
  if (!missing) return std::move(missing).error();
  for (const auto& hash : *missing) {
    const std::string name = hash.get<std::string>();
    const auto source = sources.find(name);
    if (source == sources.end()) return failed("the controller asks for what was not offered");
    auto content = sync::read_chunk(source->second.path, source->second.place);
    if (!content) return std::move(content).error().within("--sync");
    const std::string what = "shipping " + source->second.path;
    if (auto put = cluster.send_until_answered("PUT", "blobs/" + name, *content, what); !put)
      return std::move(put).error().within(what);
  }
  auto put = cluster.send_until_answered("PUT", "blobs/" + manifest_hash, manifest, "shipping " + folder);
  if (!put) return std::move(put).error().within("shipping " + folder);
  return manifest_hash;
}

}  // namespace tutti::cli
