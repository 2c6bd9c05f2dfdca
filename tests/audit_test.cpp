// `tutti audit`: what people did and were refused is in a log that shows when somebody has touched it.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "control/audit/line.hpp"
#include "support/cluster.hpp"
#include "support/small_disk.hpp"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using support::eventually;
using support::Finished;
using support::has;
using support::read_text;

class AuditTest : public testing::Test {
 protected:
  Finished audit(std::vector<std::string> words = {}) const {
    words.insert(words.begin(), "audit");
    return cluster_.tutti(words);
  }
  std::vector<json> lines(std::vector<std::string> words = {}) const {
    words.push_back("--json");
    std::vector<json> all;
    for (const std::string& line : support::lines_of(audit(words).out)) all.push_back(json::parse(line));
    return all;
  }
  // The last one of that verb.
  json last(const std::string& verb) const {
    json found;
    for (const json& line : lines()) {
      if (line.value("verb", "") == verb) found = line;
    }
    return found;
  }
  std::string folder() const {
    for (const auto& entry : fs::directory_iterator(cluster_.data()))
      if (entry.path().filename().string().starts_with("audit-")) return entry.path();
    return "";
  }
  // The newest file, when that line is in it.
  std::string file_with(std::uint64_t number) const {
    std::string found;
    EXPECT_TRUE(eventually([&] {
      if (folder().empty()) return false;
      for (const auto& entry : fs::directory_iterator(folder())) found = entry.path();
      const auto head = cluster::audit_head_of_lines(read_text(found));
      return head && head->last >= number;
    }));
    return found;
  }

  support::PartsCluster cluster_;
};

TEST_F(AuditTest, TellsWhoDidWhatAndWhoWasRefused) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  ASSERT_EQ(cluster_.tutti({"queues", "set", "research", "--limit", "4"}).exit_code, 0);
  ASSERT_EQ(cluster_.tutti({"users", "set", "ada", "--role", "user:research"}).exit_code, 0);
  const std::string token = cluster_.file("ada.token");
  ASSERT_EQ(cluster_.tutti({"tokens", "create", "--user", "ada", "--out", token}).exit_code, 0);
  const std::string admin = cluster_.env()["TUTTI_TOKEN_FILE"];
  cluster_.env()["TUTTI_TOKEN_FILE"] = token;
  const std::string id = cluster_.submit({"--queue", "research", "--env", "KEY=hidden"}, "sleep 600");
  EXPECT_NE(cluster_.tutti({"drain", "n1"}).exit_code, 0);
  EXPECT_EQ(cluster_.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_NE(audit().exit_code, 0) << "it is for admins alone";
  const std::string shipped = cluster_.file("shipped");
  fs::create_directories(shipped);
  support::write_text(shipped + "/a", "b");
  EXPECT_NE(cluster_.tutti({"run", "--queue", "default", "--sync", shipped, "--", "true"}).exit_code, 0);
  EXPECT_NE(cluster_.tutti({"run", "--queue", "default", "--dry-run", "--", "true"}).exit_code, 0);
  cluster_.env()["TUTTI_TOKEN_FILE"] = admin;
  EXPECT_TRUE(has(last("explain").value("refused", ""), "default"));
  EXPECT_TRUE(has(last("submit").value("refused", ""), "default")) << "also of one that ships a folder";

  const std::string whole = read_text(token).substr(0, read_text(token).find('\n'));
  EXPECT_EQ(cluster_.tutti({"tokens", "revoke", whole}).exit_code, 0) << "its id is in it";
  EXPECT_NE(cluster_.tutti({"tokens", "revoke", "tutti-" + std::string(80, 'b')}).exit_code, 0);
  EXPECT_FALSE(has(last("revoke").value("object", ""), "bbbb"));
  const json submitted = lines({"--user", "ada"}).at(0);
  EXPECT_EQ(submitted.at("who"), "ada");
  EXPECT_EQ(submitted.at("from"), "127.0.0.1");
  EXPECT_EQ(submitted.at("object"), "job " + id);
  EXPECT_TRUE(has(submitted.at("what"), "in research"));
  const json drained = last("POST");
  EXPECT_EQ(drained.at("who"), "ada");
  EXPECT_TRUE(has(drained.at("object"), "/nodes/n1/drain") && has(drained.at("refused"), "operator"));
  EXPECT_TRUE(has(last("GET").at("object"), "/audit"));
  EXPECT_EQ(last("cancel").at("object"), "job " + id);
  EXPECT_EQ(last("set").at("after"), "person, user:research");

  const std::string table = audit().out;
  EXPECT_TRUE(has(table, "cancel job " + id + ": now") && has(table, "refused: 'ada' may not")) << table;
  for (const json& line : lines({"--user", "ada"})) EXPECT_EQ(line.at("who"), "ada");
  EXPECT_TRUE(lines({"--since", "2999-01-01"}).empty());
  std::string all;
  for (const json& line : lines({"--since", "all"})) all += line.dump();
  const std::string secret = read_text(token);
  EXPECT_FALSE(has(all, "hidden") || has(all, secret.substr(0, secret.find('\n'))));
}

TEST_F(AuditTest, GoesOnThroughRestartsAndSaysThatItIsWhole) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(cluster_.tutti({"queues", "set", "q" + std::to_string(round)}).exit_code, 0);
    cluster_.kill_controller();
    ASSERT_TRUE(cluster_.start_controller());
  }
  const auto whole = audit({"--verify"});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_TRUE(has(whole.out, "lines 1 to 3 are whole")) << whole.out;
  const std::string head = json::parse(audit({"--verify", "--json"}).out).at("head");
  ASSERT_EQ(cluster_.tutti({"queues", "set", "later"}).exit_code, 0);
  EXPECT_EQ(audit({"--verify", "--head", head}).exit_code, 0);
  const auto other = audit({"--verify", "--head", "3:" + std::string(64, '0')});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_TRUE(has(other.err, "line 3 is another one")) << other.err;
  EXPECT_TRUE(has(audit({"--verify", "--head", "99:" + std::string(64, '0')}).err, "line 99 is not there"));
  EXPECT_NE(audit({"--verify", "--head", "nonsense"}).exit_code, 0);
}

TEST_F(AuditTest, WhoeverTouchesAFileIsSeen) {
  for (const char* name : {"a", "b", "c"}) ASSERT_EQ(cluster_.tutti({"queues", "set", name}).exit_code, 0);
  const std::string file = file_with(3);
  struct stat found {};
  ASSERT_EQ(::stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  const std::string text = read_text(file);
  EXPECT_EQ(audit({"--verify", "--file", file}).exit_code, 0);
  const auto with = [&](const std::string& content) {
    std::ofstream(file, std::ios::trunc) << content;
    const auto of_file = audit({"--verify", "--file", file});
    const auto of_cluster = audit({"--verify"});
    EXPECT_NE(of_file.exit_code, 0);
    EXPECT_NE(of_cluster.exit_code, 0);
    return of_cluster.err;
  };
  std::string changed = text;
  changed.replace(changed.find("queue b"), 7, "queue x");
  EXPECT_TRUE(has(with(changed), "line 2 was changed"));
  const std::size_t second = text.find('\n') + 1;
  const std::size_t third = text.find('\n', second) + 1;
  EXPECT_TRUE(has(with(text.substr(0, second) + text.substr(third)), "those between them are gone"));
}

// Of what was done since the copy, the files tell; no number is given out again.
TEST_F(AuditTest, AnOlderStoreGoesOnBehindItsFiles) {
  ASSERT_EQ(cluster_.tutti({"queues", "set", "a"}).exit_code, 0);
  cluster_.controller().signal(SIGTERM);
  cluster_.controller().wait();
  const std::string copy = cluster_.file("store.db");
  fs::copy(cluster_.data() + "/store.db", copy);
  ASSERT_TRUE(cluster_.start_controller());
  for (const char* name : {"b", "c"}) ASSERT_EQ(cluster_.tutti({"queues", "set", name}).exit_code, 0);
  file_with(3);
  cluster_.controller().signal(SIGTERM);
  cluster_.controller().wait();
  for (const char* end : {"", "-wal", "-shm"}) fs::remove(cluster_.data() + "/store.db" + end);
  fs::copy(copy, cluster_.data() + "/store.db");
  ASSERT_TRUE(cluster_.start_controller({"--accept-older-store"}));
  ASSERT_EQ(cluster_.tutti({"queues", "set", "d"}).exit_code, 0);
  const auto whole = audit({"--verify"});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_TRUE(has(whole.out, "lines 1 to 4 are whole")) << whole.out;
}

// The lines wait in the store until there is room again, and none is lost.
TEST(AuditDisk, AFullDiskLosesNoLine) {
  const support::TempFolder place;
  const support::SmallDisk disk(place.path() + "/disk", 24);
  if (!disk.mounted()) GTEST_SKIP() << "needs root, and the right to mount";
  support::PartsOptions options;
  options.data = place.path() + "/disk/controller";
  support::PartsCluster cluster(options);
  ASSERT_EQ(cluster.tutti({"queues", "set", "before"}).exit_code, 0);
  disk.fill();
  EXPECT_TRUE(eventually([&] { return cluster.tutti({"queues", "set", "full"}).exit_code != 0; }));
  disk.empty();
  EXPECT_TRUE(eventually([&] { return cluster.tutti({"queues", "set", "after"}).exit_code == 0; }));
  const auto whole = cluster.tutti({"audit", "--verify"});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  const std::string table = cluster.tutti({"audit", "--json"}).out;
  EXPECT_TRUE(has(table, "queue before") && has(table, "queue after")) << table;
}

}  // namespace
}  // namespace tutti
