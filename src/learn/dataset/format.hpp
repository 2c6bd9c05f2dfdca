// How a dataset lies in its folder:
//
//   dataset.json         what is in the shards, with a hash of each block of them
//   tokenizer.json       what made the tokens
//   shard-00000.tokens   a header of 64 bytes, then tokens of 2 or 4 bytes, the lowest byte first
//
// The shards are one sequence of tokens, cut anywhere. Pure functions, any thread.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::dataset {

static_assert(std::endian::native == std::endian::little, "tokens are mapped as they lie on the disk");

constexpr const char* description_name = "dataset.json";
constexpr const char* tokenizer_name = "tokenizer.json";
constexpr std::size_t header_bytes = 64;
constexpr std::size_t block_bytes = std::size_t{1} << 20U;  // of tokens, without the header
constexpr std::size_t description_bytes_max = std::size_t{256} << 20U;
constexpr std::size_t tokenizer_bytes_max = std::size_t{64} << 20U;
constexpr std::size_t shards_max = 100'000;

enum class TokenType : std::uint8_t { u16, u32 };
std::string_view name_of(TokenType type);
std::size_t bytes_of(TokenType type);
// The smallest that holds all tokens of a vocabulary.
TokenType type_for(std::int64_t vocabulary);

struct Shard {
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> block_hashes;
};

struct Description {
  TokenType type = TokenType::u16;
  std::int64_t vocabulary = 0;
  std::uint32_t end_of_text = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokenizer_hash = 0;
  std::vector<Shard> shards;

  std::uint64_t tokens() const;
};

std::string shard_name(std::size_t number);
bool is_shard_name(std::string_view name);
std::array<std::byte, header_bytes> shard_header(TokenType type, std::uint64_t tokens);

std::string write_description(const Description& description);
Result<Description> read_description(std::string_view json);

}  // namespace tutti::dataset
