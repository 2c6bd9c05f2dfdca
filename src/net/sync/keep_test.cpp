// What is kept outlives a power cut.
#include "base/bytes.hpp"
#include "net/sync/blobs.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/folder_test.hpp"
#include "net/sync/materialise.hpp"
#include "net/sync/power_cut_test.hpp"

namespace tutti::sync {
namespace {

class Keep : public FolderTest {
 protected:
  void SetUp() override { Disk::instance().begin(); }
  void TearDown() override { Disk::instance().begin(); }

  std::string put(const std::string& content) {
    const std::string hash = hash_bytes(as_bytes(content));
    const auto stored = store_.put(hash, as_bytes(content));
    EXPECT_TRUE(stored) << stored.error().text();
    return hash;
  }
  std::vector<std::string> put_many(const std::string& name, int count) {
    std::vector<std::string> hashes;
    for (int at = 0; at < count; ++at) hashes.push_back(put(name + std::to_string(at)));
    return hashes;
  }
  void expect_kept(const std::vector<std::string>& hashes) {
    for (const auto& hash : hashes) {
      const auto content = store_.get(hash);
      ASSERT_TRUE(content) << content.error().text();
      EXPECT_TRUE(*content) << "it is there";
    }
  }
  void cut_power() { Disk::instance().cut_power(path("store")); }

  BlobStore store_{path("store")};
};

TEST_F(Keep, OutlivesAPowerCut) {
  const auto first = put_many("first", 3);
  ASSERT_TRUE(store_.keep(first));
  const auto second = put_many("second", 3);
  ASSERT_TRUE(store_.keep(second));
  const auto lost = put_many("lost", 3);
  cut_power();
  expect_kept(first);
  expect_kept(second);
  for (const auto& hash : lost) {
    const auto content = store_.get(hash);
    EXPECT_FALSE(content && *content) << "else this test proves nothing";
  }
}

TEST_F(Keep, OfWhatAnEarlierProcessLeft) {
  const auto before = put_many("before", 3);
  BlobStore next(path("store"));
  ASSERT_TRUE(next.keep(before));
  cut_power();
  expect_kept(before);
}

TEST_F(Keep, OfManyTakesOneWrite) {
  ASSERT_TRUE(store_.keep(put_many("first", 1)));
  const auto many = put_many("many", 1000);
  Disk::instance().syncs();
  ASSERT_TRUE(store_.keep(many));
  EXPECT_EQ(Disk::instance().syncs(), 1U);
  ASSERT_TRUE(store_.keep(many));
  EXPECT_EQ(Disk::instance().syncs(), 0U) << "they are there already";
  cut_power();
  expect_kept(many);
}

TEST_F(Keep, IsNotUndoneByWhoSendsTheSameAgain) {
  const auto hashes = put_many("same", 3);
  ASSERT_TRUE(store_.keep(hashes));
  put_many("same", 3);
  cut_power();
  expect_kept(hashes);
}

TEST_F(Keep, ThatTheDiskRefusesIsToldAndSentAgain) {
  ASSERT_TRUE(store_.keep(put_many("first", 1)));
  const auto hash = put("refused");
  Disk::instance().fail_with(EIO);
  EXPECT_FALSE(store_.keep(std::vector{hash}));
  EXPECT_FALSE(store_.has(hash));
  Disk::instance().fail_with(0);
  put("refused");
  ASSERT_TRUE(store_.keep(std::vector{hash}));
  cut_power();
  expect_kept({hash});

  const auto many = put_many("many", 100);
  Disk::instance().fail_with(EIO);
  EXPECT_FALSE(store_.keep(many));
  Disk::instance().fail_with(0);
  ASSERT_TRUE(store_.keep(many));
  cut_power();
  expect_kept(many);
}

TEST_F(Keep, WhatHasAnotherSizeThanTheManifestSaysIsMissing) {
  const auto hash = put("right");
  Manifest manifest;
  manifest.entries.push_back({.path = "file", .chunks = {hash}, .bytes = Bytes(5)});
  EXPECT_TRUE(missing(manifest, store_).empty());
  std::filesystem::resize_file(store_.path_of(hash), 0);
  EXPECT_EQ(missing(manifest, store_), std::vector{hash});
  put("right");
  EXPECT_TRUE(missing(manifest, store_).empty()) << "what is sent again takes its place";
}

}  // namespace
}  // namespace tutti::sync
