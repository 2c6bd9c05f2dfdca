// A configuration file as plain data: a bounded tree of mappings, sequences and scalars that remembers the
// line of each value. The file is untrusted: size, depth and number of values are limited (yaml-cpp has no
// limits, and aliases can make a short file describe a huge tree).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::config {

constexpr std::size_t document_bytes_max = 1 << 20;
constexpr std::size_t document_values_max = 100'000;
constexpr int document_depth_max = 32;

struct Value {
  enum class Kind { null, scalar, sequence, mapping };

  Kind kind = Kind::null;
  int line = 0;                   // of the value, from 1
  std::string scalar;             // kind scalar
  std::vector<std::string> keys;  // kind mapping: keys[i] names items[i], in the file's order, each once
  std::vector<int> key_lines;
  std::vector<Value> items;  // kinds sequence and mapping

  const Value* find(std::string_view key) const;
};

struct Document {
  std::string name;  // of the file, for messages
  Value root;        // a mapping

  // An error about one place: "job.yaml:7: ranks : why".
  Error error(int line, std::string_view key, std::string why) const;
};

// `name` is only for messages.
Result<Document> parse_document(std::string_view yaml, std::string_view name);
Result<Document> read_document(const std::filesystem::path& path);

}  // namespace tutti::config
