#include "learn/dataset/writer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/hash/hash.hpp"
#include "learn/dataset/part_folder.hpp"

namespace tutti::dataset {
namespace {

// One shard on its way to the disk, block by block.
class ShardFile {
 public:
  static Result<ShardFile> create(std::string path, TokenType type) {
    files::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.valid()) return failed_errno("cannot write " + path, errno);
    return ShardFile(std::move(path), std::move(file), type);
  }

  std::uint64_t tokens() const { return shard_.tokens; }

  Result<> append(std::span<const std::uint32_t> tokens) {
    while (!tokens.empty()) {
      const std::size_t count = std::min(tokens.size(), (block_bytes - block_.size()) / bytes_of(type_));
      for (const std::uint32_t token : tokens.first(count)) put(token);
      shard_.tokens += count;
      tokens = tokens.subspan(count);
      if (block_.size() < block_bytes) continue;
      if (auto written = write_block(); !written) return written;
    }
    return {};
  }

  // The header comes last: until then, nothing takes the file for a shard.
  Result<Shard> finish() {
    if (!block_.empty()) {
      if (auto written = write_block(); !written) return std::move(written).error();
    }
    const auto header = shard_header(type_, shard_.tokens);
    if (auto written = files::write_at(file_.get(), 0, header, path_); !written)
      return std::move(written).error();
    if (auto flushed = files::sync_file(file_.get(), path_); !flushed) return std::move(flushed).error();
    return std::move(shard_);
  }

 private:
  ShardFile(std::string path, files::FileDescriptor file, TokenType type)
      : path_(std::move(path)), file_(std::move(file)), type_(type) {
    block_.reserve(block_bytes);
  }

  void put(std::uint32_t token) {
    std::array<std::byte, sizeof token> bytes;
    std::memcpy(bytes.data(), &token, sizeof token);
    block_.insert(block_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes_of(type_)));
  }

  Result<> write_block() {
    const std::uint64_t begin = header_bytes + shard_.block_hashes.size() * block_bytes;
    shard_.block_hashes.push_back(hash64(block_));
    auto written = files::write_at(file_.get(), begin, block_, path_);
    block_.clear();
    return written;
  }

  std::string path_;
  files::FileDescriptor file_;
  TokenType type_;
  Shard shard_;
  std::vector<std::byte> block_;
};

}  // namespace

struct Writer::Parts {
  Parts(WriterOptions given, PartFolder part) : options(std::move(given)), folder(std::move(part)) {
    description.type = type_for(options.vocabulary);
    description.vocabulary = options.vocabulary;
    description.end_of_text = options.end_of_text;
    description.tokenizer_hash = hash64(as_bytes(options.tokenizer_json));
    shard_tokens_max =
        static_cast<std::uint64_t>(options.shard_bytes_max.count()) / bytes_of(description.type);
    TUTTI_CHECK(shard_tokens_max > 0);
  }

  // A shard that has room for at least one token.
  Result<> ensure_shard() {
    if (shard && shard->tokens() < shard_tokens_max) return {};
    if (auto ended = end_shard(); !ended) return ended;
    if (description.shards.size() >= shards_max)
      return failed("the dataset needs more than " + std::to_string(shards_max) + " shards");
    auto next =
        ShardFile::create(folder.path() + "/" + shard_name(description.shards.size()), description.type);
    if (!next) return std::move(next).error();
    shard.emplace(std::move(*next));
    return {};
  }

  Result<> end_shard() {
    if (!shard) return {};
    auto done = shard->finish();
    if (!done) return std::move(done).error();
    description.shards.push_back(std::move(*done));
    shard.reset();
    return {};
  }

  WriterOptions options;
  PartFolder folder;
  Description description;
  std::uint64_t shard_tokens_max = 0;
  std::optional<ShardFile> shard;
};

Writer::Writer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Result<Writer> Writer::create(WriterOptions options) {
  TUTTI_CHECK(options.vocabulary > 0 && options.end_of_text < options.vocabulary);
  auto folder = PartFolder::create(options.folder, options.replace);
  if (!folder) return std::move(folder).error();
  return Writer(std::make_unique<Parts>(std::move(options), std::move(*folder)));
}

Result<> Writer::add_document(std::span<const std::uint32_t> tokens) {
  if (auto added = append(tokens); !added) return added;
  return end_document();
}

Result<> Writer::append(std::span<const std::uint32_t> tokens) {
  const auto known = [this](std::uint32_t token) { return token < parts_->options.vocabulary; };
  TUTTI_CHECK(std::all_of(tokens.begin(), tokens.end(), known), "a token beyond the vocabulary");
  while (!tokens.empty()) {
    if (auto ready = parts_->ensure_shard(); !ready) return ready;
    const std::uint64_t room = parts_->shard_tokens_max - parts_->shard->tokens();
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(tokens.size(), room));
    if (auto added = parts_->shard->append(tokens.first(count)); !added) return added;
    tokens = tokens.subspan(count);
  }
  return {};
}

Result<> Writer::end_document() {
  ++parts_->description.documents;
  return append(std::span(&parts_->options.end_of_text, 1));
}

Result<Description> Writer::finish() {
  Parts& parts = *parts_;
  if (auto ended = parts.end_shard(); !ended) return std::move(ended).error();
  if (parts.description.shards.empty()) return invalid("a dataset needs at least one document");
  const std::string folder = parts.folder.path() + "/";
  if (auto written = files::write_new_file(folder + tokenizer_name, parts.options.tokenizer_json); !written)
    return std::move(written).error();
  if (auto written = files::write_new_file(folder + description_name, write_description(parts.description));
      !written)
    return std::move(written).error();
  if (auto moved = parts.folder.move_to_place(); !moved) return std::move(moved).error();
  return std::move(parts.description);
}

}  // namespace tutti::dataset
