#include "learn/dataset/format.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/check.hpp"

namespace tutti::dataset {
namespace {

using nlohmann::json;

constexpr int format_version = 1;
constexpr std::string_view magic = "TUTTITOK";
constexpr std::uint64_t tokens_max = std::uint64_t{1} << 46U;  // of one shard, and of all
constexpr std::int64_t vocabulary_max = std::int64_t{1} << 32U;

std::string hash_text(std::uint64_t hash) {
  std::array<std::byte, sizeof hash> bytes;
  for (unsigned at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(hash >> (56 - 8 * at));
  return to_hex(bytes);
}

std::optional<std::uint64_t> parse_hash(const json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto bytes = from_hex(value.get_ref<const std::string&>());
  if (!bytes || bytes->size() != sizeof(std::uint64_t)) return std::nullopt;
  return std::accumulate(
      bytes->begin(), bytes->end(), std::uint64_t{0},
      [](std::uint64_t hash, std::byte byte) { return hash << 8U | std::to_integer<std::uint64_t>(byte); });
}

// A whole number below the limit; anything else is no number.
std::optional<std::uint64_t> number_in(const json& object, const char* key, std::uint64_t below) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto value = found->get<std::uint64_t>();
  if (value >= below) return std::nullopt;
  return value;
}

Error wrong(const std::string& field) { return failed("'" + field + "' is missing or wrong"); }

std::uint64_t blocks_of(std::uint64_t tokens, TokenType type) {
  return (tokens * bytes_of(type) + block_bytes - 1) / block_bytes;
}

Result<Shard> read_shard(const json& object, std::size_t number, TokenType type) {
  const std::string where = "shards." + std::to_string(number);
  if (!object.is_object()) return wrong(where);
  if (object.value("file", json()) != shard_name(number)) return wrong(where + ".file");
  const auto tokens = number_in(object, "tokens", tokens_max);
  if (!tokens || *tokens == 0) return wrong(where + ".tokens");
  const auto hashes = object.find("block_hashes");
  if (hashes == object.end() || !hashes->is_array() || hashes->size() != blocks_of(*tokens, type))
    return wrong(where + ".block_hashes");
  Shard shard{.tokens = *tokens};
  for (const json& each : *hashes) {
    const auto hash = parse_hash(each);
    if (!hash) return wrong(where + ".block_hashes");
    shard.block_hashes.push_back(*hash);
  }
  return shard;
}

Result<std::vector<Shard>> read_shards(const json& root, TokenType type) {
  const auto list = root.find("shards");
  if (list == root.end() || !list->is_array() || list->empty() || list->size() > shards_max)
    return wrong("shards");
  std::vector<Shard> shards;
  for (const json& each : *list) {
    auto shard = read_shard(each, shards.size(), type);
    if (!shard) return std::move(shard).error();
    shards.push_back(std::move(*shard));
  }
  return shards;
}

Result<Description> read_fields(const json& root) {
  const auto version = number_in(root, "format", std::numeric_limits<std::uint64_t>::max());
  if (!version) return wrong("format");
  if (*version != format_version)
    return failed("it is of format " + std::to_string(*version) + ", and this tutti reads format " +
                  std::to_string(format_version));
  Description description;
  const auto type = root.value("token_type", json());
  if (type != name_of(TokenType::u16) && type != name_of(TokenType::u32)) return wrong("token_type");
  description.type = type == name_of(TokenType::u16) ? TokenType::u16 : TokenType::u32;
  const auto vocabulary = number_in(root, "vocabulary", vocabulary_max + 1);
  if (!vocabulary || *vocabulary == 0) return wrong("vocabulary");
  description.vocabulary = static_cast<std::int64_t>(*vocabulary);
  const auto end_of_text = number_in(root, "end_of_text", *vocabulary);
  if (!end_of_text) return wrong("end_of_text");
  description.end_of_text = static_cast<std::uint32_t>(*end_of_text);
  const auto hash = parse_hash(root.value("tokenizer_hash", json()));
  if (!hash) return wrong("tokenizer_hash");
  description.tokenizer_hash = *hash;
  auto shards = read_shards(root, description.type);
  if (!shards) return std::move(shards).error();
  description.shards = std::move(*shards);
  if (number_in(root, "tokens", tokens_max) != description.tokens()) return wrong("tokens");
  const auto documents = number_in(root, "documents", description.tokens() + 1);
  if (!documents) return wrong("documents");
  description.documents = *documents;
  return description;
}

}  // namespace

std::string_view name_of(TokenType type) { return type == TokenType::u16 ? "u16" : "u32"; }
std::size_t bytes_of(TokenType type) { return type == TokenType::u16 ? 2 : 4; }
TokenType type_for(std::int64_t vocabulary) {
  return vocabulary <= 1 << 16 ? TokenType::u16 : TokenType::u32;
}

std::uint64_t Description::tokens() const {
  return std::accumulate(shards.begin(), shards.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Shard& shard) { return sum + shard.tokens; });
}

std::string shard_name(std::size_t number) {
  TUTTI_CHECK(number < shards_max);
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "shard-%05zu.tokens", number);
  return name.data();
}

std::array<std::byte, header_bytes> shard_header(TokenType type, std::uint64_t tokens) {
  std::array<std::byte, header_bytes> header{};
  const std::uint32_t version = format_version;
  const auto token_bytes = static_cast<std::uint32_t>(bytes_of(type));
  std::memcpy(header.data(), magic.data(), magic.size());
  std::memcpy(header.data() + 8, &version, sizeof version);
  std::memcpy(header.data() + 12, &token_bytes, sizeof token_bytes);
  std::memcpy(header.data() + 16, &tokens, sizeof tokens);
  return header;
}

std::string write_description(const Description& description) {
  json shards = json::array();
  for (const Shard& shard : description.shards) {
    json hashes = json::array();
    for (const std::uint64_t hash : shard.block_hashes) hashes.push_back(hash_text(hash));
    shards.push_back(
        {{"file", shard_name(shards.size())}, {"tokens", shard.tokens}, {"block_hashes", std::move(hashes)}});
  }
  const json root{{"format", format_version},
                  {"token_type", name_of(description.type)},
                  {"tokens", description.tokens()},
                  {"documents", description.documents},
                  {"vocabulary", description.vocabulary},
                  {"end_of_text", description.end_of_text},
                  {"tokenizer_hash", hash_text(description.tokenizer_hash)},
                  {"shards", std::move(shards)}};
  return root.dump(1) + "\n";
}

Result<Description> read_description(std::string_view text) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return failed("it is no JSON object");
  return read_fields(root);
}

}  // namespace tutti::dataset
