// Another key, cut short wherever it can be: whatever was set can be opened afterwards.
#include "control/controller/vault.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "control/store/memory/memory_store.hpp"

namespace tutti::controller {
namespace {

namespace fs = std::filesystem;
using Of = cluster::SecretId::Of;

struct VaultTest : testing::Test {
  // A controller's life: what is in the store and in the folder outlives it.
  struct Life {
    Life(store::Store& store, const std::string& folder)
        : core(
              store, [](const driver::Delivery&) {}, nullptr, "c1"),
          vault(core, folder) {
      vault.open();
      EXPECT_TRUE(core.start());
    }
    ~Life() { core.stop(); }

    Result<> happen(cluster::Event event) {
      std::promise<Result<>> answer;
      EXPECT_TRUE(core.happen(std::move(event), [&](const auto& done) {
        answer.set_value(done ? Result<>() : Result<>(done.error()));
      }));
      return answer.get_future().get();
    }
    Result<> set(const std::string& name, const std::string& value) {
      auto sealed = vault.seal({Of::person, "ada", name}, value);
      if (!sealed) return std::move(sealed).error();
      return happen(*std::move(sealed));
    }
    cluster::State state() {
      std::promise<std::pair<std::string, std::map<cluster::SecretId, cluster::Secret>>> seen;
      core.ask([&](const cluster::State& state, const auto&) {
        seen.set_value({state.secret_key, state.secrets});
      });
      cluster::State copy;
      std::tie(copy.secret_key, copy.secrets) = seen.get_future().get();
      return copy;
    }
    void rewrap_all() {
      while (vault.rewrap_some() == Vault::Step::did_some) {}
    }

    Core core;
    Vault vault;
  };

  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  void begin() { life = std::make_unique<Life>(store, folder); }

  // Each with the keys that are on the disk now, and no others.
  void expect_all_open(const std::string& when) {
    Sealer sealer(folder);
    ASSERT_TRUE(sealer.read()) << when;
    const cluster::State state = life->state();
    EXPECT_EQ(state.secrets.size(), values.size()) << when;
    for (const auto& [id, secret] : state.secrets) {
      const auto value = sealer.open("c1", secret);
      ASSERT_TRUE(value) << when << ": " << value.error().text();
      EXPECT_EQ(*value, values[id.name]) << when;
    }
    EXPECT_EQ(life->vault.trouble(state), "") << when;
  }
  void set_some() {
    for (int at = 0; at < 3; ++at) {
      const std::string name = "S" + std::to_string(at);
      values[name] = "value " + std::to_string(at);
      ASSERT_TRUE(life->set(name, values[name]));
    }
  }

  const std::string folder = testing::TempDir() + "tutti-vault-" + std::to_string(::getpid());
  store::MemoryStore store;
  std::unique_ptr<Life> life;
  std::map<std::string, std::string> values;
};

TEST_F(VaultTest, ARotationThatIsCutShortAnywhereLosesNothing) {
  begin();
  set_some();
  const auto die = [&] {
    life.reset();
    begin();
  };
  const std::string first = life->state().secret_key;

  // The key is on the disk, and the core has not heard of it.
  ASSERT_TRUE(life->vault.make_key());
  die();
  expect_all_open("after the key");
  EXPECT_EQ(life->state().secret_key, first);
  life->rewrap_all();
  expect_all_open("after the key, tidied up");

  // The core has, and nothing is sealed anew.
  const std::string second = *life->vault.make_key();
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{second}));
  expect_all_open("in use");
  die();
  expect_all_open("in use, after a death");
  values["S9"] = "set between";
  ASSERT_TRUE(life->set("S9", values["S9"]));

  // All is sealed anew and stored, and the old key is still there.
  ASSERT_EQ(life->vault.rewrap_some(), Vault::Step::did_some);
  expect_all_open("sealed anew");
  die();
  expect_all_open("sealed anew, after a death");
  for (const auto& [id, secret] : life->state().secrets) EXPECT_EQ(secret.key, second);

  // And now it goes.
  EXPECT_EQ(life->vault.rewrap_some(), Vault::Step::is_done);
  expect_all_open("without the old key");
  Sealer sealer(folder);
  ASSERT_TRUE(sealer.read());
  EXPECT_TRUE(sealer.has(second) && !sealer.has(first) && sealer.keys() == 1);
  die();
  expect_all_open("at the end");
}

TEST_F(VaultTest, WhatIsSetWhileTheKeyChangesIsNotLost) {
  begin();
  set_some();
  auto late = life->vault.seal({Of::person, "ada", "S0"}, "late");
  ASSERT_TRUE(late);
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{*life->vault.make_key()}));
  life->vault.settle();
  life->rewrap_all();
  const auto done = life->happen(*std::move(late));
  ASSERT_FALSE(done) << "it is sealed under a key that is gone";
  EXPECT_NE(done.error().remedy().find("try again"), std::string::npos);
  expect_all_open("the one before it stays");
  // What was set while it was being sealed anew stays as it was set.
  const cluster::State before = life->state();
  const cluster::Secret& old = before.secrets.begin()->second;
  values[old.id.name] = "newer";
  ASSERT_TRUE(life->set(old.id.name, "newer"));
  ASSERT_TRUE(life->happen(
      cluster::SecretsRewrapped{.key = old.key, .secrets = {{old.id, old.sealed, "x" + old.sealed}}}));
  expect_all_open("the newer one");
}

TEST_F(VaultTest, WithoutItsKeyNothingIsSetUntilTheFileIsBackOrAllIsRemoved) {
  begin();
  set_some();
  life.reset();
  const std::string file = folder + "/secrets.key";
  const std::string away = folder + "/away";
  fs::rename(file, away);
  begin();
  EXPECT_NE(life->vault.trouble(life->state()).find(file), std::string::npos);
  const auto set = life->set("S9", "value");
  ASSERT_FALSE(set);
  EXPECT_NE(set.error().text().find(file), std::string::npos) << set.error().text();
  EXPECT_FALSE(life->vault.make_key());
  EXPECT_FALSE(fs::exists(file)) << "no key is made in place of one that is missing";
  EXPECT_EQ(life->vault.rewrap_some(), Vault::Step::failed);

  fs::rename(away, file);
  EXPECT_EQ(life->vault.rewrap_some(), Vault::Step::is_done) << "it is found by itself";
  expect_all_open("the file is back");

  fs::remove(file);
  life.reset();
  begin();
  for (const auto& [name, value] : values)
    ASSERT_TRUE(life->happen(cluster::RemoveSecret{{Of::person, "ada", name}}));
  values.clear();
  EXPECT_FALSE(life->set("S9", "value")) << "not even then in silence";
  const auto key = life->vault.make_key();
  ASSERT_TRUE(key) << key.error().text();
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{*key}));
  life->vault.settle();
  values["S9"] = "value";
  EXPECT_TRUE(life->set("S9", "value"));
  expect_all_open("a new beginning");
}

// Somebody removes the file, or puts an older copy in its place, while the controller runs: what it holds in
// memory is the last copy of the keys.
TEST_F(VaultTest, KeysThatAreMissingInTheFileAreWrittenToItAgain) {
  begin();
  set_some();
  const std::string file = folder + "/secrets.key";
  const std::string copy = folder + "/copy";
  fs::copy_file(file, copy);
  fs::remove(file);
  values["S4"] = "set without the file";
  ASSERT_TRUE(life->set("S4", values["S4"]));
  expect_all_open("set without the file");

  fs::remove(file);
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{*life->vault.make_key()}));
  life->vault.settle();
  expect_all_open("another key without the file");
  fs::remove(file);
  life->rewrap_all();
  expect_all_open("sealed anew without the file");

  const auto put_older_back = [&] { fs::copy_file(copy, file, fs::copy_options::overwrite_existing); };
  put_older_back();
  values["S5"] = "set beside an older file";
  ASSERT_TRUE(life->set("S5", values["S5"]));
  expect_all_open("set beside an older file");
  put_older_back();
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{*life->vault.make_key()}));
  life->vault.settle();
  expect_all_open("another key beside an older file");
  put_older_back();
  life->rewrap_all();
  expect_all_open("sealed anew beside an older file");
  life.reset();
  begin();
  expect_all_open("at the end");
}

TEST_F(VaultTest, AFileThatCannotBeReadIsNeitherUsedNorWrittenOver) {
  begin();
  set_some();
  const std::string file = folder + "/secrets.key";
  std::ofstream(file) << "something else\n";
  const auto set = life->set("S9", "value");
  ASSERT_FALSE(set);
  EXPECT_NE(set.error().text().find(file), std::string::npos) << set.error().text();
  EXPECT_FALSE(life->vault.make_key());
  EXPECT_EQ(fs::file_size(file), 15U) << "nothing is written over it";
  fs::remove(file);
  values["S9"] = "value";
  EXPECT_TRUE(life->set("S9", "value"));
  expect_all_open("without it");
}

// A hundred whose key nobody has, at the front of all.
TEST_F(VaultTest, WhatCannotBeOpenedKeepsNothingBehindItFromBeingSealedAnew) {
  begin();
  for (std::size_t at = 0; at < cluster::rewrapped_max; ++at)
    ASSERT_TRUE(life->set("A" + std::to_string(at), "lost"));
  const std::string lost = life->state().secret_key;
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{*life->vault.make_key()}));
  ASSERT_TRUE(life->set("Z", "value"));
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{*life->vault.make_key()}));
  std::vector<std::string> lines;
  std::ifstream before(folder + "/secrets.key");
  for (std::string line; std::getline(before, line);) {
    if (!line.starts_with(lost)) lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 3U) << "what it is, and two keys";
  std::ofstream after(folder + "/secrets.key", std::ios::trunc);
  for (const std::string& line : lines) after << line << "\n";
  after.close();
  life.reset();
  begin();
  life->rewrap_all();
  const cluster::State state = life->state();
  EXPECT_EQ(state.secrets.at({Of::person, "ada", "Z"}).key, state.secret_key);
  EXPECT_EQ(state.secrets.at({Of::person, "ada", "A0"}).key, lost);
  EXPECT_EQ(life->vault.rewrap_some(), Vault::Step::did_some) << "and from the first on again";
}

TEST_F(VaultTest, AThousandAreSealedAnewInPieces) {
  begin();
  for (int at = 0; at < 250; ++at) {
    values["S" + std::to_string(at)] = std::to_string(at);
    ASSERT_TRUE(life->set("S" + std::to_string(at), std::to_string(at)));
  }
  ASSERT_TRUE(life->happen(cluster::UseSecretKey{*life->vault.make_key()}));
  life->vault.settle();
  int pieces = 0;
  while (life->vault.rewrap_some() == Vault::Step::did_some) ++pieces;
  EXPECT_EQ(pieces, 3);
  expect_all_open("in pieces");
}

}  // namespace
}  // namespace tutti::controller
