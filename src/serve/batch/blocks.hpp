// The blocks that keys and values lie in: a fixed number, each with as many users as sequences hold it. A
// full block can be found again by the tokens that led to it (the prefix cache): it stays when its last user
// lets go, until its room is needed. Those that were let go longest ago go first, and a block never before
// the ones that follow it.
//
// A block is found by a hash and then compared token by token, along the whole chain from the first token and
// the adapter on: two texts with one hash never share a block. Pure, one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

inline constexpr BlockId no_block = -1;

class Blocks {
 public:
  // The salt moves all hashes, so that nobody outside knows which texts collide. Tests let all of them
  // collide.
  Blocks(std::int32_t count, std::int32_t block_tokens, std::uint64_t salt = 0,
         std::uint64_t hash_mask = ~std::uint64_t{0});

  std::int32_t count() const { return static_cast<std::int32_t>(blocks_.size()); }
  std::int32_t block_tokens() const { return block_tokens_; }
  // That take() can give: free ones, and kept ones that nobody uses.
  std::int32_t available() const { return static_cast<std::int32_t>(free_.size()) + idle_; }
  std::int32_t used() const { return count() - available(); }
  std::int32_t idle() const { return idle_; }

  // The kept blocks that hold the beginning of these tokens, as many as there are; the caller is a user of
  // each.
  std::vector<BlockId> find(std::int32_t adapter, std::span<const Token> tokens);
  // How many of them nobody uses: they are no longer available once they are found.
  struct Found {
    std::int32_t blocks = 0;
    std::int32_t idle = 0;
  };
  Found look(std::int32_t adapter, std::span<const Token> tokens) const;

  // Nobody uses any, and none can be found. Takes no memory.
  void clear();

  // A block with one user and nothing in it; nothing if none is available.
  std::optional<BlockId> take();
  // Takes no memory.
  void release(BlockId block);

  // This full block holds `tokens` and follows `parent` (no_block: it is the first). It can be found from now
  // on. If there is such a block already, the caller becomes a user of that one instead, and of this one no
  // longer.
  BlockId keep(BlockId block, BlockId parent, std::int32_t adapter, std::span<const Token> tokens);

  std::int32_t users(BlockId block) const;
  // What must hold whatever has happened; `users` are the counts that the holders of blocks believe in.
  Result<> invariants(std::span<const std::int32_t> users) const;

 private:
  struct Block {
    std::int32_t users = 0;
    bool kept = false;
    // Of a kept one:
    BlockId parent = no_block;
    std::int32_t adapter = 0;
    std::int32_t children = 0;
    std::uint64_t hash = 0;
    std::uint64_t released = 0;  // when, in releases
    BlockId next = no_block;     // with the same bucket
  };

  std::uint64_t hash_of(BlockId parent, std::int32_t adapter, std::span<const Token> tokens) const;
  BlockId search(std::uint64_t hash, BlockId parent, std::int32_t adapter,
                 std::span<const Token> tokens) const;
  BlockId& bucket(std::uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  std::span<Token> tokens_of(BlockId block);
  std::span<const Token> tokens_of(BlockId block) const;
  void use(BlockId block);
  void forget(BlockId block);
  void list(BlockId block);
  void unlist(BlockId block);
  bool evictable(const Block& block) const { return block.kept && block.users == 0 && block.children == 0; }

  std::int32_t block_tokens_;
  std::uint64_t salt_;
  std::uint64_t hash_mask_;
  std::vector<Block> blocks_;
  std::vector<Token> tokens_;     // of all blocks, those of kept ones are meant
  std::vector<BlockId> buckets_;  // the first of each list; a power of two of them
  std::vector<BlockId> free_;     // the last is taken first
  std::int32_t idle_ = 0;         // kept ones without users
  std::uint64_t releases_ = 0;
  using Evictable = std::set<std::pair<std::uint64_t, BlockId>>;
  Evictable evictable_;                       // longest ago first
  std::vector<Evictable::node_type> places_;  // in that list, of the kept ones that are not in it
};

}  // namespace tutti::serve
