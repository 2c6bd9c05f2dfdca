// A dataset opened for reading: one long sequence of tokens, mapped into memory. It is const after open():
// any thread, several at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/hash/hash.hpp"
#include "base/result.hpp"
#include "learn/dataset/format.hpp"
#include "learn/dataset/mapping.hpp"

namespace tutti::dataset {

class Dataset {
 public:
  // Looks at the size and the header of each shard; verify() looks at what is in them.
  static Result<Dataset> open(const std::string& folder);

  std::uint64_t tokens() const { return starts_.back(); }
  std::uint64_t documents() const { return description_.documents; }
  std::int64_t vocabulary() const { return description_.vocabulary; }
  std::uint32_t end_of_text() const { return description_.end_of_text; }
  TokenType type() const { return description_.type; }
  std::size_t shards() const { return shards_.size(); }
  const std::string& tokenizer_json() const { return tokenizer_json_; }
  // The same for the same tokens and the same tokenizer, wherever they lie.
  Hash128 fingerprint() const;

  // Tokens from this position on, as many as there is room for; all of them are inside the dataset.
  void read(std::uint64_t position, std::span<std::uint32_t> out) const;

  // Hears how many bytes are done of how many. False ends the work, as a failure.
  using Progress = std::function<bool(std::uint64_t done, std::uint64_t all)>;
  // Compares every block with its hash, and names the first damaged one.
  Result<> verify(const Progress& progress = {}) const;

 private:
  Dataset(std::string folder, Description description, std::string tokenizer_json,
          std::vector<Mapping> shards);
  std::span<const std::byte> tokens_of(std::size_t shard) const {
    return shards_[shard].bytes().subspan(header_bytes);
  }

  std::string folder_;
  Description description_;
  std::string tokenizer_json_;
  std::vector<Mapping> shards_;
  std::vector<std::uint64_t> starts_;  // the position where each shard begins, and the end of the last
};

}  // namespace tutti::dataset
