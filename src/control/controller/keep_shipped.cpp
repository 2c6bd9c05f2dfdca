#include "control/controller/keep_shipped.hpp"

#include <optional>
#include <vector>

#include "net/sync/manifest.hpp"
#include "net/sync/materialise.hpp"

namespace tutti::controller {
namespace {

// Reads it whole, which drops what is damaged; then it is as good as missing.
Result<std::optional<std::string>> read_or_drop(const sync::BlobStore& blobs, const std::string& hash) {
  auto content = blobs.get(hash);
  if (!content && content.error().code() == ErrorCode::damaged) return std::optional<std::string>();
  return content;
}

Error incomplete(std::size_t count) {
  return damaged(std::to_string(count) + " contents of the shipped folder are not here")
      .remedy("send them and submit again; `POST /blobs/missing` tells which");
}

}  // namespace

Result<> keep_shipped(sync::BlobStore& blobs, const std::string& manifest) {
  const auto encoded = read_or_drop(blobs, manifest);
  if (!encoded) return encoded.error();
  if (!*encoded) return incomplete(1);
  const auto folder = sync::decode(**encoded);
  if (!folder) return Error(folder.error()).within("the shipped folder");
  const auto lacking = sync::missing(*folder, blobs);
  for (const std::string& hash : lacking) {
    const auto content = read_or_drop(blobs, hash);
    if (!content) return content.error();
    if (*content)
      return invalid("it says another size of " + hash + " than that has").within("the shipped folder");
  }
  if (!lacking.empty()) return incomplete(lacking.size());
  std::vector<std::string> hashes{manifest};
  for (const auto& entry : folder->entries)
    hashes.insert(hashes.end(), entry.chunks.begin(), entry.chunks.end());
  for (const std::string& hash : hashes) static_cast<void>(blobs.use(hash));
  if (auto kept = blobs.keep(hashes); !kept) return kept;
  // To write them may take longer than is kept what nobody needs, and so far nobody knows that somebody does.
  std::size_t gone = 0;
  for (const std::string& hash : hashes) gone += blobs.use(hash) ? 0U : 1U;
  if (gone > 0) return incomplete(gone);
  return {};
}

}  // namespace tutti::controller
