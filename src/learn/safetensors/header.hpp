// The header of a safetensors file, as Hugging Face publishes the format: a number of bytes (u64, little
// endian), so much JSON, and then the tensors' bytes without gaps. Headers come from outside: each claim in
// them is checked. Values, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "learn/safetensors/types.hpp"

namespace tutti::safetensors {

constexpr std::size_t length_bytes = 8;                // of the number in front
constexpr std::uint64_t json_bytes_max = 100'000'000;  // the limit of the format
constexpr std::size_t dimensions_max = 32;

struct Entry {
  std::string name;
  Type type = Type::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // offsets into the file
  std::uint64_t end = 0;

  friend bool operator==(const Entry&, const Entry&) = default;
};

using Metadata = std::map<std::string, std::string>;

struct Header {
  std::vector<Entry> entries;  // sorted by name
  Metadata metadata;

  const Entry* find(std::string_view name) const;  // null if there is none
};

// How many bytes of the file the header takes, the number in front included, from that number.
Result<std::uint64_t> header_bytes(std::span<const std::byte, length_bytes> length, std::uint64_t file_bytes);

// From the first bytes of a file, as many as the header takes or more.
Result<Header> parse_header(std::span<const std::byte> bytes, std::uint64_t file_bytes);

// A file on paper, for writers that know its tensors before they have their bytes.
struct Layout {
  std::string header;          // the first bytes of the file, a multiple of eight
  std::vector<Entry> entries;  // in the order given, each behind the one before
  std::uint64_t file_bytes = 0;
};

// What the entries say of their place is not read. Names are unique, in UTF-8, and none is "__metadata__".
Layout lay_out(std::vector<Entry> entries, const Metadata& metadata);

}  // namespace tutti::safetensors
