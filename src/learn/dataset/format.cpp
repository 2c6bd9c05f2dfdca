#include "learn/dataset/format.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::dataset {
namespace {

constexpr int format_version = 1;
constexpr std::string_view magic = "TUTTITOK";
constexpr std::uint64_t tokens_max = std::uint64_t{1} << 46U;  // of one shard, and of all
constexpr std::int64_t vocabulary_max = std::int64_t{1} << 32U;

std::string hash_text(std::uint64_t hash) {
  std::array<std::byte, sizeof hash> bytes;
  for (unsigned at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(hash >> (56 - 8 * at));
  return to_hex(bytes);
}

std::optional<std::uint64_t> parse_hash(const json::Value* value) {
  if (value == nullptr || value->text() == nullptr) return std::nullopt;
  const auto bytes = from_hex(*value->text());
  if (!bytes || bytes->size() != sizeof(std::uint64_t)) return std::nullopt;
  return std::accumulate(
      bytes->begin(), bytes->end(), std::uint64_t{0},
      [](std::uint64_t hash, std::byte byte) { return hash << 8U | std::to_integer<std::uint64_t>(byte); });
}

// A whole number below the limit; anything else is no number.
std::optional<std::uint64_t> number_in(const json::Value& object, const char* key, std::uint64_t below) {
  const json::Value* const found = object.find(key);
  const auto value = found == nullptr ? std::nullopt : found->count();
  return value && *value < below ? value : std::nullopt;
}

bool is_word(const json::Value* value, std::string_view word) {
  return value != nullptr && value->text() != nullptr && *value->text() == word;
}

// Null if it is missing or no list.
const json::Array* list_in(const json::Value& object, const char* key) {
  const json::Value* const found = object.find(key);
  return found == nullptr ? nullptr : found->list();
}

Error wrong(const std::string& field) { return failed("'" + field + "' is missing or wrong"); }

std::uint64_t blocks_of(std::uint64_t tokens, TokenType type) {
  return (tokens * bytes_of(type) + block_bytes - 1) / block_bytes;
}

Result<Shard> read_shard(const json::Value& object, std::size_t number, TokenType type) {
  const std::string where = "shards." + std::to_string(number);
  if (object.object() == nullptr) return wrong(where);
  if (!is_word(object.find("file"), shard_name(number))) return wrong(where + ".file");
  const auto tokens = number_in(object, "tokens", tokens_max);
  if (!tokens || *tokens == 0) return wrong(where + ".tokens");
  const json::Array* const hashes = list_in(object, "block_hashes");
  if (hashes == nullptr || hashes->size() != blocks_of(*tokens, type)) return wrong(where + ".block_hashes");
  Shard shard{.tokens = *tokens};
  for (const json::Value& each : *hashes) {
    const auto hash = parse_hash(&each);
    if (!hash) return wrong(where + ".block_hashes");
    shard.block_hashes.push_back(*hash);
  }
  return shard;
}

Result<std::vector<Shard>> read_shards(const json::Value& root, TokenType type) {
  const json::Array* const list = list_in(root, "shards");
  if (list == nullptr || list->empty() || list->size() > shards_max) return wrong("shards");
  std::vector<Shard> shards;
  for (const json::Value& each : *list) {
    auto shard = read_shard(each, shards.size(), type);
    if (!shard) return std::move(shard).error();
    shards.push_back(std::move(*shard));
  }
  return shards;
}

Result<Description> read_fields(const json::Value& root) {
  const auto version = number_in(root, "format", std::numeric_limits<std::uint64_t>::max());
  if (!version) return wrong("format");
  if (*version != format_version)
    return failed("it is of format " + std::to_string(*version) + ", and this tutti reads format " +
                  std::to_string(format_version));
  Description description;
  const json::Value* const type = root.find("token_type");
  const bool narrow = is_word(type, name_of(TokenType::u16));
  if (!narrow && !is_word(type, name_of(TokenType::u32))) return wrong("token_type");
  description.type = narrow ? TokenType::u16 : TokenType::u32;
  const auto vocabulary = number_in(root, "vocabulary", vocabulary_max + 1);
  if (!vocabulary || *vocabulary == 0) return wrong("vocabulary");
  description.vocabulary = static_cast<std::int64_t>(*vocabulary);
  const auto end_of_text = number_in(root, "end_of_text", *vocabulary);
  if (!end_of_text) return wrong("end_of_text");
  description.end_of_text = static_cast<std::uint32_t>(*end_of_text);
  const auto hash = parse_hash(root.find("tokenizer_hash"));
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

bool is_shard_name(std::string_view name) {
  constexpr std::string_view begin = "shard-";
  constexpr std::string_view end = ".tokens";
  if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end))
    return false;
  const std::string_view number = name.substr(begin.size(), name.size() - begin.size() - end.size());
  return number.find_first_not_of("0123456789") == std::string_view::npos;
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
  json::Array shards;
  for (const Shard& shard : description.shards) {
    json::Array hashes;
    for (const std::uint64_t hash : shard.block_hashes) hashes.push_back(hash_text(hash));
    shards.push_back(json::Object{
        {"file", shard_name(shards.size())}, {"tokens", shard.tokens}, {"block_hashes", std::move(hashes)}});
  }
  const json::Object root{{"format", format_version},
                          {"token_type", name_of(description.type)},
                          {"tokens", description.tokens()},
                          {"documents", description.documents},
                          {"vocabulary", description.vocabulary},
                          {"end_of_text", description.end_of_text},
                          {"tokenizer_hash", hash_text(description.tokenizer_hash)},
                          {"shards", std::move(shards)}};
  return json::write(root, {.indent = 1}) + "\n";
}

Result<Description> read_description(std::string_view text) {
  const auto root = json::parse(text);
  if (!root || root->object() == nullptr) return failed("it is no JSON object");
  return read_fields(*root);
}

}  // namespace tutti::dataset
