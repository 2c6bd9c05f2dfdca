// What a folder holds, without the content of its files: the chunks of those are named by their hashes. A
// manifest comes over the network, so decode() trusts nothing. Values: safe on any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"

namespace tutti::sync {

struct Entry {
  enum class Kind { file, folder, link };

  std::string path;  // relative to the folder, parts joined by '/'
  Kind kind = Kind::file;
  std::vector<std::string> chunks;  // of a file, in order: the hash of each, see chunks.hpp and digest.hpp
  std::string link_target;          // of a link
  Bytes bytes;                      // of a file
  bool executable = false;          // of a file

  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Manifest {
  std::vector<Entry> entries;  // sorted by path, byte by byte; every folder is listed, an empty one too

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// What a node keeps of shipped files holds one folder of this size.
constexpr Bytes folder_bytes_max = gib(20);

struct Limits {
  std::size_t entries_max = 100'000;
  Bytes bytes_max = folder_bytes_max;  // all files together
  Bytes encoded_bytes_max = mib(16);   // what one request of the API may carry
};

// Same manifest, same bytes, and different ones for a different manifest: the bytes can be hashed in turn.
std::string encode(const Manifest& manifest);
Result<Manifest> decode(std::string_view encoded, const Limits& limits = {});

// Whether the manifest can be laid out below a folder and nothing of it lands or points outside.
Result<> validate(const Manifest& manifest, const Limits& limits = {});

// Whether a link at `path` cannot lead out of the folder, whatever the other links are. A target may climb
// only at its beginning, where it passes through true folders: behind a link, ".." is not the folder it seems
// to be.
bool link_stays_inside(std::string_view path, std::string_view target);

}  // namespace tutti::sync
