#include "serve/batch/blocks.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.hpp"
#include "base/hash/hash.hpp"
#include "base/index.hpp"
#include "base/prng.hpp"

namespace tutti::serve {

Blocks::Blocks(std::int32_t count, std::int32_t block_tokens, std::uint64_t salt, std::uint64_t hash_mask)
    : block_tokens_(block_tokens), salt_(salt), hash_mask_(hash_mask) {
  TUTTI_CHECK(count > 0 && block_tokens > 0);
  blocks_.resize(at(count));
  tokens_.resize(at(count) * at(block_tokens));
  buckets_.resize(std::bit_ceil(at(count) * 2));
  free_.reserve(at(count));
  places_.reserve(at(count));
  clear();
}

void Blocks::clear() {
  std::ranges::fill(blocks_, Block());
  std::ranges::fill(buckets_, no_block);
  evictable_.clear();
  places_.clear();
  idle_ = 0;
  free_.clear();
  for (BlockId block = count() - 1; block >= 0; --block) free_.push_back(block);
}

std::span<Token> Blocks::tokens_of(BlockId block) {
  return std::span(tokens_).subspan(at(block) * at(block_tokens_), at(block_tokens_));
}
std::span<const Token> Blocks::tokens_of(BlockId block) const {
  return std::span(tokens_).subspan(at(block) * at(block_tokens_), at(block_tokens_));
}

std::uint64_t Blocks::hash_of(BlockId parent, std::int32_t adapter, std::span<const Token> tokens) const {
  const std::uint64_t before =
      parent == no_block ? mixed(salt_ ^ static_cast<std::uint64_t>(adapter)) : blocks_[at(parent)].hash;
  return hash64(std::as_bytes(tokens), before) & hash_mask_;
}

BlockId Blocks::search(std::uint64_t hash, BlockId parent, std::int32_t adapter,
                       std::span<const Token> tokens) const {
  for (BlockId id = buckets_[hash & (buckets_.size() - 1)]; id != no_block; id = blocks_[at(id)].next) {
    const Block& block = blocks_[at(id)];
    if (block.hash == hash && block.parent == parent && block.adapter == adapter &&
        std::ranges::equal(tokens_of(id), tokens))
      return id;
  }
  return no_block;
}

void Blocks::use(BlockId id) {
  Block& block = blocks_[at(id)];
  if (block.users++ > 0) return;
  if (!block.kept) return;
  --idle_;
  if (block.children == 0) unlist(id);
}

void Blocks::list(BlockId id) {
  places_.back().value() = {blocks_[at(id)].released, id};
  evictable_.insert(std::move(places_.back()));
  places_.pop_back();
}

void Blocks::unlist(BlockId id) { places_.push_back(evictable_.extract({blocks_[at(id)].released, id})); }

std::vector<BlockId> Blocks::find(std::int32_t adapter, std::span<const Token> tokens) {
  std::vector<BlockId> found;
  found.reserve(tokens.size() / at(block_tokens_));  // before anything is used
  BlockId parent = no_block;
  for (; tokens.size() >= at(block_tokens_); tokens = tokens.subspan(at(block_tokens_))) {
    const auto part = tokens.first(at(block_tokens_));
    parent = search(hash_of(parent, adapter, part), parent, adapter, part);
    if (parent == no_block) break;
    use(parent);
    found.push_back(parent);
  }
  return found;
}

Blocks::Found Blocks::look(std::int32_t adapter, std::span<const Token> tokens) const {
  Found found;
  BlockId parent = no_block;
  for (; tokens.size() >= at(block_tokens_); tokens = tokens.subspan(at(block_tokens_))) {
    const auto part = tokens.first(at(block_tokens_));
    parent = search(hash_of(parent, adapter, part), parent, adapter, part);
    if (parent == no_block) break;
    ++found.blocks;
    if (blocks_[at(parent)].users == 0) ++found.idle;
  }
  return found;
}

std::optional<BlockId> Blocks::take() {
  if (free_.empty()) {
    if (evictable_.empty()) return std::nullopt;
    forget(evictable_.begin()->second);
  }
  const BlockId id = free_.back();
  free_.pop_back();
  blocks_[at(id)].users = 1;
  return id;
}

// Takes a kept block that nobody uses out of the cache, and makes it free.
void Blocks::forget(BlockId id) {
  Block& block = blocks_[at(id)];
  TUTTI_CHECK(evictable(block));
  evictable_.erase({block.released, id});
  BlockId* link = &bucket(block.hash);
  while (*link != id) link = &blocks_[at(*link)].next;
  *link = block.next;
  if (block.parent != no_block) {
    Block& parent = blocks_[at(block.parent)];
    --parent.children;
    if (evictable(parent)) list(block.parent);
  }
  block = {};
  --idle_;
  free_.push_back(id);
}

void Blocks::release(BlockId id) {
  Block& block = blocks_[at(id)];
  TUTTI_CHECK(block.users > 0, "a block is released once for each user");
  if (--block.users > 0) return;
  if (!block.kept) {
    free_.push_back(id);
    return;
  }
  block.released = ++releases_;
  ++idle_;
  if (block.children == 0) list(id);
}

BlockId Blocks::keep(BlockId id, BlockId parent, std::int32_t adapter, std::span<const Token> tokens) {
  TUTTI_CHECK(tokens.size() == at(block_tokens_), "only full blocks are kept");
  Block& block = blocks_[at(id)];
  TUTTI_CHECK(block.users == 1 && !block.kept, "a block is kept once, by the sequence that filled it");
  const std::uint64_t hash = hash_of(parent, adapter, tokens);
  if (const BlockId same = search(hash, parent, adapter, tokens); same != no_block) {
    use(same);
    release(id);
    return same;
  }
  Evictable made;
  places_.push_back(made.extract(made.emplace().first));
  std::ranges::copy(tokens, tokens_of(id).begin());
  block.kept = true;
  block.parent = parent;
  block.adapter = adapter;
  block.hash = hash;
  block.next = std::exchange(bucket(hash), id);
  if (parent != no_block) {
    TUTTI_CHECK(blocks_[at(parent)].kept && blocks_[at(parent)].users > 0);
    ++blocks_[at(parent)].children;
  }
  return id;
}

std::int32_t Blocks::users(BlockId block) const { return blocks_[at(block)].users; }

Result<> Blocks::invariants(std::span<const std::int32_t> users) const {
  const auto broken = [](BlockId id, const std::string& what) {
    return failed("block " + std::to_string(id) + ": " + what);
  };
  std::vector<std::int32_t> children(blocks_.size());
  std::vector<bool> is_free(blocks_.size());
  for (const BlockId id : free_) {
    if (is_free[at(id)]) return broken(id, "it is free twice");
    is_free[at(id)] = true;
  }
  std::int32_t idle = 0;
  std::int32_t kept = 0;
  for (BlockId id = 0; id < count(); ++id) {
    const Block& block = blocks_[at(id)];
    if (block.users != users[at(id)]) {
      return broken(
          id, "it counts " + std::to_string(block.users) + " users and has " + std::to_string(users[at(id)]));
    }
    if (is_free[at(id)] != (block.users == 0 && !block.kept))
      return broken(id, "it is free and used, or neither");
    if (evictable(block) != evictable_.contains({block.released, id}))
      return broken(id, "the order of leaving is wrong about it");
    if (!block.kept) continue;
    ++kept;
    if (block.users == 0) ++idle;
    if (search(block.hash, block.parent, block.adapter, tokens_of(id)) != id)
      return broken(id, "it is kept and cannot be found");
    if (block.parent == no_block) continue;
    const Block& parent = blocks_[at(block.parent)];
    ++children[at(block.parent)];
    if (!parent.kept) return broken(id, "the block before it is gone");
    if (block.users > 0 && parent.users == 0) return broken(id, "it is used and the block before it is not");
  }
  for (BlockId id = 0; id < count(); ++id) {
    if (blocks_[at(id)].children != children[at(id)])
      return broken(id, "the blocks after it are counted wrong");
  }
  if (idle != idle_) return failed("the blocks without users are counted wrong");
  if (evictable_.size() + places_.size() != at(kept)) return failed("a kept block has no place in the list");
  return {};
}

}  // namespace tutti::serve
