// What every adapter of the store promises, as a test: each adapter's own test calls it with an empty store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "control/store/memory/memory_store.hpp"
#include "control/store/store.hpp"

namespace tutti::store {

inline void expect_same(Store& store, Store& model) {
  const auto found = store.load();
  const auto expected = model.load();
  ASSERT_TRUE(found.ok()) << found.error().text();
  EXPECT_EQ(found->revision, expected->revision);
  EXPECT_EQ(found->objects, expected->objects);
}

inline std::vector<Write> random_writes(Prng& prng) {
  std::vector<Write> writes(prng.below(6));
  for (Write& write : writes) {
    write.key = "job/" + std::to_string(prng.below(12));
    if (prng.chance(0.7)) write.value = std::string(prng.below(3000), static_cast<char>(prng.below(256)));
  }
  return writes;
}

// Random commits, some of them with an old revision, against the store in memory as the model.
inline void expect_conforms(Store& store) {
  MemoryStore model;
  Prng prng(7);
  expect_same(store, model);
  std::uint64_t revision = 0;
  for (int step = 0; step < 60; ++step) {
    const auto writes = random_writes(prng);
    const std::uint64_t seen = revision - (revision > 0 && prng.chance(0.2) ? 1 : 0);
    const CommitResult result = store.commit(seen, writes);
    const CommitResult expected = model.commit(seen, writes);
    ASSERT_EQ(result.status, expected.status) << result.why;
    if (result.status == CommitResult::Status::done) {
      ASSERT_EQ(result.revision, revision + 1);
      revision = result.revision;
    } else {
      EXPECT_FALSE(result.why.empty());
    }
  }
  expect_same(store, model);
}

}  // namespace tutti::store
