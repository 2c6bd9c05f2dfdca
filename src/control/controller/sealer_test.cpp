// Sealing: what is sealed opens for whom it is alone, and keys are neither lost nor made in silence.
#include "control/controller/sealer.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tutti::controller {
namespace {

namespace fs = std::filesystem;
using Of = cluster::SecretId::Of;

struct SealerTest : testing::Test {
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }

  cluster::Secret sealed(const Sealer& sealer, const cluster::SecretId& id, const std::string& key,
                         const std::string& value) const {
    auto bytes = sealer.seal("cluster", id, key, value);
    EXPECT_TRUE(bytes) << bytes.error().text();
    return {.id = id, .key = key, .sealed = *bytes, .bytes = static_cast<std::int32_t>(value.size())};
  }
  std::string text() const {
    std::ifstream file(folder + "/secrets.key");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string folder = testing::TempDir() + "tutti-sealer-" + std::to_string(::getpid());
  const cluster::SecretId ada{Of::person, "ada", "TOKEN"};
};

TEST_F(SealerTest, WhatIsSealedIsOpenedAndIsNotInTheClear) {
  Sealer sealer(folder);
  const auto key = sealer.first();
  ASSERT_TRUE(key) << key.error().text();
  struct stat status {};
  ASSERT_EQ(::stat((folder + "/secrets.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  for (const std::string& value :
       {std::string("x"), std::string("a value with \0 and \xff in it", 25), std::string(64 << 10, 'v')}) {
    const cluster::Secret secret = sealed(sealer, ada, *key, value);
    if (value.size() > 1) {
      EXPECT_EQ(secret.sealed.find(value.substr(0, 5)), std::string::npos);
    }
    EXPECT_EQ(*sealer.open("cluster", secret), value);
    EXPECT_NE(sealed(sealer, ada, *key, value).sealed, secret.sealed) << "the same twice looks the same";
  }
  Sealer later(folder);
  ASSERT_TRUE(later.read());
  EXPECT_EQ(*later.open("cluster", sealed(sealer, ada, *key, "value")), "value");
  EXPECT_EQ(*later.first(), *key) << "one that is there is used";
}

TEST_F(SealerTest, NothingThatWasTouchedOpens) {
  Sealer sealer(folder);
  const std::string key = *sealer.first();
  const cluster::Secret sound = sealed(sealer, ada, key, "value");
  for (std::size_t at = 0; at < sound.sealed.size(); ++at) {
    cluster::Secret touched = sound;
    touched.sealed[at] = static_cast<char>(touched.sealed[at] ^ 1);
    EXPECT_FALSE(sealer.open("cluster", touched)) << at;
  }
  for (std::size_t size = 0; size < sound.sealed.size(); ++size) {
    cluster::Secret cut = sound;
    cut.sealed.resize(size);
    EXPECT_FALSE(sealer.open("cluster", cut)) << size;
  }
  EXPECT_FALSE(sealer.open("another", sound)) << "it is of this cluster";
}

TEST_F(SealerTest, NoneStandsInThePlaceOfAnother) {
  Sealer sealer(folder);
  const std::string key = *sealer.first();
  const cluster::Secret sound = sealed(sealer, ada, key, "value");
  for (const cluster::SecretId& other :
       {cluster::SecretId{Of::person, "bob", "TOKEN"}, cluster::SecretId{Of::queue, "ada", "TOKEN"},
        cluster::SecretId{Of::person, "ada", "OTHER"}, cluster::SecretId{Of::person, "adaT", "OKEN"}}) {
    cluster::Secret moved = sound;
    moved.id = other;
    EXPECT_FALSE(sealer.open("cluster", moved)) << cluster::text_of(other);
  }
}

TEST_F(SealerTest, AMissingOrWrongKeyIsNamedAndNothingIsMadeInItsPlace) {
  Sealer sealer(folder);
  const std::string key = *sealer.first();
  const cluster::Secret secret = sealed(sealer, ada, key, "value");
  const std::string before = text();
  fs::remove(folder + "/secrets.key");
  Sealer without(folder);
  EXPECT_TRUE(without.read());
  const auto opened = without.open("cluster", secret);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().text().find(folder + "/secrets.key"), std::string::npos) << opened.error().text();
  EXPECT_NE(opened.error().text().find(key), std::string::npos);
  EXPECT_FALSE(fs::exists(folder + "/secrets.key")) << "to look for a key makes none";

  // Another key under the name of the right one, half a file, and no file of keys at all: none is written
  // over.
  std::string forged = before;
  forged[forged.size() - 2] = forged[forged.size() - 2] == '0' ? '1' : '0';
  for (const std::string& wrong :
       {forged, before.substr(0, before.size() - 9), std::string("something else\n"), std::string()}) {
    std::ofstream(folder + "/secrets.key") << wrong;
    Sealer misled(folder);
    EXPECT_FALSE(misled.read()) << wrong;
    EXPECT_FALSE(misled.first());
    EXPECT_FALSE(misled.make());
    EXPECT_EQ(text(), wrong);
    EXPECT_FALSE(misled.open("cluster", secret));
  }
  std::ofstream(folder + "/secrets.key") << before;
  Sealer again(folder);
  ASSERT_TRUE(again.read());
  EXPECT_EQ(*again.open("cluster", secret), "value");
}

TEST_F(SealerTest, AnOldKeyGoesOnlyWhenNobodyIsAboutToChangeIt) {
  Sealer sealer(folder);
  const std::string old = *sealer.first();
  auto next = sealer.make();
  ASSERT_TRUE(next);
  EXPECT_FALSE(sealer.calm()) << "whether it is in use is not known yet";
  sealer.settle();
  const auto calm = sealer.calm();
  ASSERT_TRUE(calm);
  // Whoever looked before another one was made would remove that.
  const std::string newest = *sealer.make();
  EXPECT_TRUE(sealer.keep_only(*next, *calm));
  EXPECT_TRUE(sealer.has(old) && sealer.has(*next) && sealer.has(newest));
  sealer.settle();
  EXPECT_TRUE(sealer.keep_only("0000000000000000", *sealer.calm()));
  EXPECT_EQ(sealer.keys(), 3U) << "without the one that is to stay nothing goes";
  EXPECT_TRUE(sealer.keep_only(newest, *sealer.calm()));
  EXPECT_TRUE(!sealer.has(old) && sealer.has(newest));
  EXPECT_EQ(text().find(old), std::string::npos);
  Sealer later(folder);
  EXPECT_EQ(*later.first(), newest);
}

}  // namespace
}  // namespace tutti::controller
