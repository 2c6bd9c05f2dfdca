#include "serve/batch/blocks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "base/index.hpp"
#include "base/prng.hpp"

namespace tutti::serve {
namespace {

using Tokens = std::vector<Token>;

Tokens counted(Token from, std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// Takes and keeps blocks for all full parts of the tokens.
std::vector<BlockId> fill(Blocks& blocks, const Tokens& tokens, std::int32_t adapter = 0) {
  std::vector<BlockId> held = blocks.find(adapter, tokens);
  const auto size = at(blocks.block_tokens());
  while ((held.size() + 1) * size <= tokens.size()) {
    const auto block = blocks.take();
    if (!block) ADD_FAILURE() << "no block left";
    held.push_back(blocks.keep(*block, held.empty() ? no_block : held.back(), adapter,
                               std::span(tokens).subspan(held.size() * size, size)));
  }
  return held;
}

void release_all(Blocks& blocks, const std::vector<BlockId>& held) {
  for (auto block = held.rbegin(); block != held.rend(); ++block) blocks.release(*block);
}

std::vector<std::int32_t> no_users(const Blocks& blocks) {
  return std::vector<std::int32_t>(at(blocks.count()));
}

TEST(Blocks, AreFoundByTheTokensFromTheStart) {
  Blocks blocks(8, 4);
  const auto held = fill(blocks, counted(0, 12));
  EXPECT_EQ(held.size(), 3U);
  EXPECT_EQ(blocks.find(0, counted(0, 12)), held);
  EXPECT_EQ(blocks.users(held[0]), 2);
  EXPECT_EQ(blocks.find(0, counted(0, 11)), std::vector(held.begin(), held.begin() + 2));
  // The same tokens in the middle of another text are no prefix of this one.
  EXPECT_TRUE(blocks.find(0, counted(4, 8)).empty());
  auto other = counted(0, 12);
  other[5] = 99;
  EXPECT_EQ(blocks.find(0, other).size(), 1U);
}

TEST(Blocks, OfAnotherAdapterAreOthers) {
  Blocks blocks(8, 4);
  const auto plain = fill(blocks, counted(0, 8), 0);
  EXPECT_TRUE(blocks.find(1, counted(0, 8)).empty());
  const auto adapted = fill(blocks, counted(0, 8), 1);
  EXPECT_NE(plain, adapted);
  EXPECT_EQ(blocks.used(), 4);
}

TEST(Blocks, StayWhenReleasedUntilTheirRoomIsNeeded) {
  Blocks blocks(4, 4);
  release_all(blocks, fill(blocks, counted(0, 8)));
  EXPECT_EQ(blocks.available(), 4);
  EXPECT_EQ(blocks.idle(), 2);
  EXPECT_EQ(blocks.look(0, counted(0, 8)).idle, 2);
  release_all(blocks, blocks.find(0, counted(0, 8)));

  release_all(blocks, fill(blocks, counted(100, 12)));
  // The last of the older chain had to go, its first stays.
  EXPECT_EQ(blocks.look(0, counted(0, 8)).blocks, 1);
  EXPECT_EQ(blocks.look(0, counted(100, 12)).blocks, 3);
  EXPECT_TRUE(blocks.invariants(no_users(blocks)).ok());
}

TEST(Blocks, LeaveInTheOrderInWhichTheyWereUsedLast) {
  Blocks blocks(3, 4);
  for (const Token from : {0, 100, 200}) release_all(blocks, fill(blocks, counted(from, 4)));
  release_all(blocks, blocks.find(0, counted(0, 4)));  // used again: 100 is the oldest now
  EXPECT_TRUE(blocks.take().has_value());
  EXPECT_EQ(blocks.look(0, counted(0, 4)).blocks, 1);
  EXPECT_EQ(blocks.look(0, counted(100, 4)).blocks, 0);
  EXPECT_EQ(blocks.look(0, counted(200, 4)).blocks, 1);
}

TEST(Blocks, ThatAreUsedAreNeverTaken) {
  Blocks blocks(3, 4);
  const auto held = fill(blocks, counted(0, 8));
  EXPECT_TRUE(blocks.take().has_value());
  EXPECT_FALSE(blocks.take().has_value());
  blocks.release(held[1]);
  EXPECT_EQ(blocks.take(), held[1]);
  EXPECT_FALSE(blocks.take().has_value());
}

TEST(Blocks, FilledTwiceBecomeOne) {
  Blocks blocks(4, 4);
  const auto first = blocks.take();
  const auto second = blocks.take();
  const auto tokens = counted(0, 4);
  EXPECT_EQ(blocks.keep(*first, no_block, 0, tokens), *first);
  EXPECT_EQ(blocks.keep(*second, no_block, 0, tokens), *first);
  EXPECT_EQ(blocks.users(*first), 2);
  EXPECT_EQ(blocks.used(), 1);
}

TEST(Blocks, ThatCollideAreComparedTokenByToken) {
  Blocks blocks(40, 2, 0, 0);
  for (Token from = 0; from < 40; from += 4) release_all(blocks, fill(blocks, counted(from, 4)));
  for (Token from = 0; from < 40; ++from)
    EXPECT_EQ(blocks.look(0, counted(from, 4)).blocks, from % 4 == 0 ? 2 : 0);
  EXPECT_EQ(blocks.look(1, counted(0, 4)).blocks, 0);
}

TEST(Blocks, KeepTheirInvariantsUnderRandomUse) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Prng random(seed);
    Blocks blocks(12, 2, seed, seed % 2 == 0 ? 0 : ~std::uint64_t{0});
    std::vector<std::vector<BlockId>> holders;
    for (int turn = 0; turn < 300; ++turn) {
      if (!holders.empty() && random.chance(0.5)) {
        const auto which = random.below(holders.size());
        release_all(blocks, holders[which]);
        holders.erase(holders.begin() + static_cast<std::ptrdiff_t>(which));
      } else {
        Tokens tokens(random.below(9));
        for (auto& token : tokens) token = static_cast<Token>(random.below(2));
        const auto adapter = static_cast<std::int32_t>(random.below(2));
        const auto found = blocks.look(adapter, tokens);
        const auto needed = static_cast<std::int32_t>(tokens.size() / 2) - found.blocks + found.idle;
        if (needed > blocks.available()) continue;
        holders.push_back(fill(blocks, tokens, adapter));
      }
      auto users = no_users(blocks);
      for (const auto& held : holders) {
        for (const BlockId block : held) ++users[at(block)];
      }
      const auto checked = blocks.invariants(users);
      ASSERT_TRUE(checked.ok()) << checked.error().text() << ", seed " << seed << ", turn " << turn;
    }
  }
}

}  // namespace
}  // namespace tutti::serve
