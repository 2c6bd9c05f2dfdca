#include "learn/dataset/dataset.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/files.hpp"

namespace tutti::dataset {
namespace {

constexpr const char* remedy_of_damage = "copy it again from where it came, or pack the text again";

Result<Mapping> open_shard(const std::string& path, const Shard& shard, TokenType type) {
  auto mapping = Mapping::open(path, header_bytes + shard.tokens * bytes_of(type));
  if (!mapping) return mapping;
  const auto header = shard_header(type, shard.tokens);
  if (!std::equal(header.begin(), header.end(), mapping->bytes().begin()))
    return failed(path + " is damaged: its header is not that of the shard in " + description_name);
  return mapping;
}

Result<Description> open_description(const std::string& folder) {
  const std::string path = folder + "/" + description_name;
  auto text = files::read_existing_file(path, description_bytes_max);
  if (!text) return std::move(text).error().remedy("`tutti data pack` makes a dataset");
  auto description = read_description(*text);
  if (!description) return std::move(description).error().within(path);
  return description;
}

Result<std::string> open_tokenizer(const std::string& folder, std::uint64_t hash) {
  const std::string path = folder + "/" + tokenizer_name;
  auto text = files::read_existing_file(path, tokenizer_bytes_max);
  if (text && hash64(as_bytes(*text)) != hash)
    return failed(path + " is damaged: it is not the one that was written");
  return text;
}

// Tokens as they lie on the disk, which may be any address.
template <class Token>
void widen(std::span<const std::byte> from, std::span<std::uint32_t> out) {
  for (std::size_t at = 0; at < out.size(); ++at) {
    Token token;
    std::memcpy(&token, from.data() + at * sizeof token, sizeof token);
    out[at] = token;
  }
}

}  // namespace

Dataset::Dataset(std::string folder, Description description, std::string tokenizer_json,
                 std::vector<Mapping> shards)
    : folder_(std::move(folder)),
      description_(std::move(description)),
      tokenizer_json_(std::move(tokenizer_json)),
      shards_(std::move(shards)),
      starts_{0} {
  for (const Shard& shard : description_.shards) starts_.push_back(starts_.back() + shard.tokens);
}

Result<Dataset> Dataset::open(const std::string& folder) {
  const auto within = [&](Error error) { return std::move(error).within("dataset " + folder); };
  auto description = open_description(folder);
  if (!description) return within(std::move(description).error());
  auto tokenizer = open_tokenizer(folder, description->tokenizer_hash);
  if (!tokenizer) return within(std::move(tokenizer).error().remedy(remedy_of_damage));
  std::vector<Mapping> shards;
  for (const Shard& shard : description->shards) {
    auto mapping = open_shard(folder + "/" + shard_name(shards.size()), shard, description->type);
    if (!mapping) return within(std::move(mapping).error().remedy(remedy_of_damage));
    shards.push_back(std::move(*mapping));
  }
  return Dataset(folder, std::move(*description), std::move(*tokenizer), std::move(shards));
}

Hash128 Dataset::fingerprint() const { return hash128(as_bytes(write_description(description_))); }

void Dataset::read(std::uint64_t position, std::span<std::uint32_t> out) const {
  TUTTI_CHECK(position <= tokens() && out.size() <= tokens() - position, "tokens beyond the end");
  auto shard =
      static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin()) -
      1;
  for (; !out.empty(); ++shard) {
    const std::uint64_t skipped = position - starts_[shard];
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), starts_[shard + 1] - position));
    const auto from = tokens_of(shard).subspan(skipped * bytes_of(type()));
    if (type() == TokenType::u16) {
      widen<std::uint16_t>(from, out.first(count));
    } else {
      widen<std::uint32_t>(from, out.first(count));
    }
    out = out.subspan(count);
    position += count;
  }
}

Result<> Dataset::verify(const Progress& progress) const {
  const std::uint64_t all = tokens() * bytes_of(type());
  std::uint64_t done = 0;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const auto& hashes = description_.shards[shard].block_hashes;
    auto rest = tokens_of(shard);
    for (std::size_t block = 0; block < hashes.size(); ++block) {
      const auto bytes = rest.first(std::min(rest.size(), block_bytes));
      if (hash64(bytes) != hashes[block]) {
        return failed(shard_name(shard) + " is damaged: block " + std::to_string(block) + " of " +
                      std::to_string(hashes.size()) + " is not what was written")
            .within("dataset " + folder_)
            .remedy(remedy_of_damage);
      }
      rest = rest.subspan(bytes.size());
      done += bytes.size();
      if (progress && !progress(done, all)) return failed("interrupted").within("dataset " + folder_);
    }
  }
  return {};
}

}  // namespace tutti::dataset
