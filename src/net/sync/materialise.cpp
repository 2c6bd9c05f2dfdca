#include "net/sync/materialise.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <string_view>

#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "net/sync/chunks.hpp"

namespace tutti::sync {
namespace {

// One that is there already is a mistake here.
Result<> make_new_folder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0) return {};
  return cannot_make("the folder", path, errno);
}

Result<> make_link(const Entry& entry, const std::string& path) {
  if (symlink(entry.link_target.c_str(), path.c_str()) == 0) return {};
  return cannot_make("the link", path, errno);
}

// The size is the manifest's word for what the limits were checked against, so it has to be true.
Result<> make_file(const Entry& entry, const BlobStore& blobs, const std::string& path,
                   const StillWanted& still_wanted) {
  auto bytes = blobs.copy(entry.chunks, path, entry.executable, still_wanted);
  if (!bytes) return std::move(bytes).error().within("file " + files::shown(entry.path));
  if (*bytes == entry.bytes) return {};
  return invalid("the manifest says " + std::to_string(entry.bytes.count()) + " bytes for " +
                 files::shown(entry.path) + ", and its chunks have " + std::to_string(bytes->count()));
}

Result<> make_entry(const Entry& entry, const BlobStore& blobs, const std::string& path,
                    const StillWanted& still_wanted) {
  switch (entry.kind) {
    case Entry::Kind::file:
      return make_file(entry, blobs, path, still_wanted);
    case Entry::Kind::folder:
      return make_new_folder(path, 0755);
    case Entry::Kind::link:
      return make_link(entry, path);
  }
  return invalid("the entry " + files::shown(entry.path) + " is of no known kind");
}

// A folder sorts before what it holds, and nothing lies below a link, so every path leads through folders
// that this loop has made.
Result<> build(const Manifest& manifest, const BlobStore& blobs, const std::string& folder,
               const StillWanted& still_wanted) {
  if (auto made = make_new_folder(folder, 0700); !made) return made;
  for (const auto& entry : manifest.entries) {
    if (still_wanted && !still_wanted()) return failed("nobody wants it any more");
    if (auto made = make_entry(entry, blobs, folder + '/' + entry.path, still_wanted); !made) return made;
  }
  return {};
}

Result<> move_into_place(const std::string& partial, const std::string& target) {
  if (rename(partial.c_str(), target.c_str()) == 0) return {};
  return failed_errno("cannot make the folder " + files::shown(target), errno);
}

}  // namespace

std::vector<std::string> missing(const Manifest& manifest, const BlobStore& blobs) {
  std::map<std::string_view, Bytes> sizes;
  for (const auto& entry : manifest.entries) {
    for (std::size_t at = 0; at < entry.chunks.size(); ++at)
      sizes.try_emplace(entry.chunks[at], chunk_size(entry.bytes, at));
  }
  std::vector<std::string> lacking;
  for (const auto& [hash, bytes] : sizes) {
    if (!blobs.has(hash, bytes)) lacking.emplace_back(hash);
  }
  return lacking;
}

Result<> materialise(const Manifest& manifest, const BlobStore& blobs, const std::string& target,
                     const Limits& limits, const StillWanted& still_wanted) {
  if (target.empty() || target.ends_with('/'))
    return invalid(files::shown(target) + " does not name a folder");
  if (auto valid = validate(manifest, limits); !valid) return valid;
  struct stat status {};
  if (lstat(target.c_str(), &status) == 0) return failed(files::shown(target) + " exists already");

  const std::string partial = target + ".partial";
  if (auto removed = files::remove_folder(partial); !removed) return removed;
  auto made = build(manifest, blobs, partial, still_wanted);
  if (made) made = move_into_place(partial, target);
  // The first failure is the one to tell; what cannot be removed now, the next call removes.
  if (!made) static_cast<void>(files::remove_folder(partial));
  return made;
}

}  // namespace tutti::sync
