// `tutti secret`: what jobs need and nobody is to read reaches their ranks, and stands nowhere else.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using support::eventually;
using support::Finished;
using support::has;
using support::read_text;
using support::until;
using support::write_text;

class Secrets : public testing::Test {
 protected:
  Finished set(const std::string& name, const std::string& value, const std::string& flags = "") {
    const std::string file = cluster_.file("value");
    write_text(file, value);
    Finished done = support::run(
        {"sh", "-c", "exec \"$0\" secret set " + name + " " + flags + " < " + file, support::tutti_program},
        {.env = cluster_.env(), .stdout_to = ""});
    fs::remove(file);
    return done;
  }
  std::vector<json> listed() const {
    const json all = cluster_.json({"secret", "ls"});
    return {all.begin(), all.end()};
  }
  std::string key_file() const { return cluster_.data() + "/secrets.key"; }
  std::size_t keys() const { return support::lines_of(read_text(key_file())).size() - 1; }
  // The folder of a rank that has written there where it is.
  std::string told(const std::string& file) const {
    EXPECT_TRUE(eventually([&] { return has(read_text(cluster_.file(file)), "\n"); }));
    const auto lines = support::lines_of(read_text(cluster_.file(file)));
    return lines.empty() ? "" : lines.front();
  }
  std::string tell(const std::string& file) const { return "echo $TUTTI_SECRETS > " + cluster_.file(file); }
  // Some file of the test's folder has it.
  std::string file_with(const std::string& value) const {
    for (const auto& entry : fs::recursive_directory_iterator(cluster_.folder())) {
      if (entry.is_regular_file() && has(read_text(entry.path()), value)) return entry.path();
    }
    return "";
  }

  support::PartsCluster cluster_;
};

TEST_F(Secrets, ReachRanksAsFilesOfTheirOwnInMemory) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  const std::string bytes("line\nwith \0 and \xff\n", 18);
  ASSERT_EQ(set("FROM_STDIN", bytes).exit_code, 0);
  write_text(cluster_.file("input"), "of a file\n");
  const auto from_file =
      cluster_.tutti({"secret", "set", "from.file-1", "--file", cluster_.file("input"), "--json"});
  ASSERT_EQ(from_file.exit_code, 0) << from_file.err;
  EXPECT_EQ(json::parse(from_file.out)["bytes"], 10);
  const std::string script =
      "cd $TUTTI_SECRETS && stat -c '%n %a %s' * && stat -f -c %T . && stat -c %a . && od -An -tx1 "
      "FROM_STDIN && "
      "cat from.file-1 && echo $TUTTI_SECRETS";
  const auto ran = cluster_.run({"--no-prefix", "--secret", "FROM_STDIN", "--secret", "from.file-1"}, script);
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "FROM_STDIN 400 18\nfrom.file-1 400 10\ntmpfs\n700\n")) << ran.out;
  EXPECT_TRUE(has(ran.out, "6c 69 6e 65 0a 77 69 74 68 20 00 20 61 6e 64 20\n ff 0a\nof a file\n"))
      << ran.out;
  const std::string folder = support::lines_of(ran.out).back();
  EXPECT_FALSE(fs::exists(folder)) << folder << ": it goes with the rank";
  EXPECT_EQ(cluster_.run({"--no-prefix"}, "echo \"${TUTTI_SECRETS-none}\"").out, "none\n");

  // A job file asks for them, too.
  write_text(cluster_.file("job.yaml"), "command: cat $TUTTI_SECRETS/from.file-1\nsecrets: [from.file-1]\n");
  const auto submitted = cluster_.tutti({"submit", cluster_.file("job.yaml")});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string id = support::lines_of(submitted.out).front();
  EXPECT_EQ(cluster_.wait(id), 0);
  EXPECT_EQ(cluster_.log(id, 0), "of a file\n");
}

TEST_F(Secrets, WhatIsNoneIsRefusedAndSaysSo) {
  EXPECT_TRUE(has(set("TOO_LARGE", std::string((64 << 10) + 1, 'x')).err, "at most 65536 bytes"));
  EXPECT_TRUE(has(set("EMPTY", "").err, "it is empty"));
  EXPECT_EQ(set("ALL", std::string(64 << 10, 'x')).exit_code, 0);
  for (const char* name : {".hidden", "a/b", "-x"})
    EXPECT_NE(cluster_.tutti({"secret", "set", "--file", key_file(), "--", name}).exit_code, 0) << name;
  EXPECT_TRUE(has(cluster_.tutti({"secret", "rm", "NOTHING"}).err, "there is no secret NOTHING"));
  const auto unknown = cluster_.tutti({"run", "--secret", "NOTHING", "--", "true"});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_TRUE(has(unknown.err, "there is no secret NOTHING that")) << unknown.err;
  EXPECT_TRUE(has(unknown.err, "tutti secret set NOTHING")) << unknown.err;
  EXPECT_EQ(cluster_.tutti({"secret", "rm", "ALL"}).exit_code, 0);
  EXPECT_TRUE(listed().empty());
}

TEST_F(Secrets, AValueStandsNowhereButInTheFilesOfItsRanks) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  const std::string value = "marker-of-a-value-that-nobody-else-has";
  ASSERT_EQ(set("TOKEN", value).exit_code, 0);
  const std::string gate = cluster_.file("gate");
  const std::string id =
      cluster_.submit({"--secret", "TOKEN", "--ranks", "2"},
                      tell("where") + "; " + until(gate, "grep -c nobody-else $TUTTI_SECRETS/TOKEN"));
  const std::string folder = told("where");
  ASSERT_NE(folder, "");
  EXPECT_TRUE(has(read_text(folder + "/TOKEN"), value));
  ASSERT_EQ(cluster_.tutti({"secret", "rotate-key"}).exit_code, 0);

  EXPECT_EQ(file_with(value), "") << "of the store, the logs, the agent's folder";
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    EXPECT_FALSE(has(read_text("/proc/" + pid + "/cmdline"), value)) << pid;
    EXPECT_FALSE(has(read_text("/proc/" + pid + "/environ"), value)) << pid;
  }
  const json job = cluster_.job(id);
  EXPECT_EQ(job["secrets"], json::parse(R"(["TOKEN"])"));
  EXPECT_FALSE(has(job.dump(), value));
  EXPECT_TRUE(has(cluster_.tutti({"show", id}).out, "TOKEN"));
  const std::string said = cluster_.tutti({"audit", "--json"}).out;
  EXPECT_TRUE(has(said, "\"verb\":\"set\"") && has(said, "secret TOKEN of") && has(said, "38 bytes")) << said;
  EXPECT_TRUE(has(said, "key of the secrets"));
  EXPECT_FALSE(has(said, value));
  const auto secrets = listed();
  ASSERT_EQ(secrets.size(), 1U);
  EXPECT_EQ(secrets[0]["bytes"], 38);
  EXPECT_EQ(secrets[0]["changed_by"], "admin");
  EXPECT_FALSE(has(secrets[0].dump(), value));
  struct stat status {};
  ASSERT_EQ(::stat(key_file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);

  write_text(gate, "");
  EXPECT_EQ(cluster_.wait(id), 0);
  EXPECT_EQ(file_with(value), "");
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(Secrets, TheKeyChangesWhileJobsRunAndControllersAndAgentsComeAndGo) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  ASSERT_EQ(set("TOKEN", "the value").exit_code, 0);
  const std::string first_key = read_text(key_file());
  const std::string gate = cluster_.file("gate");
  const std::string id = cluster_.submit({"--secret", "TOKEN", "--restarts", "0"},
                                         tell("where") + "; " + until(gate, "cat $TUTTI_SECRETS/TOKEN"));
  ASSERT_NE(told("where"), "");
  ASSERT_EQ(cluster_.tutti({"secret", "rotate-key"}).exit_code, 0);
  EXPECT_TRUE(eventually([&] { return keys() == 1 && read_text(key_file()) != first_key; }))
      << "the old key goes by itself";
  EXPECT_EQ(cluster_.run({"--no-prefix", "--secret", "TOKEN"}, "cat $TUTTI_SECRETS/TOKEN").out,
            "the value\n");

  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  cluster_.agent("n1").signal(SIGKILL);
  cluster_.agent("n1").wait();
  ASSERT_TRUE(cluster_.start_agent("n1"));
  EXPECT_EQ(cluster_.run({"--no-prefix", "--secret", "TOKEN"}, "cat $TUTTI_SECRETS/TOKEN").out,
            "the value\n");
  write_text(gate, "");
  EXPECT_EQ(cluster_.wait(id), 0);
  EXPECT_EQ(cluster_.log(id, 0), "the value\n") << "a rank keeps what it has";
  EXPECT_FALSE(fs::exists(told("where")));
}

TEST_F(Secrets, AJobWhoseSecretIsGoneIsHeldUntilItIsReleased) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  ASSERT_EQ(set("TOKEN", "first").exit_code, 0);
  const std::string gate = cluster_.file("gate");
  const std::string first = cluster_.submit({"--gpus", "8", "--secret", "TOKEN"}, until(gate));
  ASSERT_TRUE(cluster_.becomes(first, "running"));
  const std::string second =
      cluster_.submit({"--gpus", "8", "--secret", "TOKEN"}, "[ $RANK != 0 ] || cat $TUTTI_SECRETS/TOKEN");
  ASSERT_EQ(cluster_.tutti({"secret", "rm", "TOKEN"}).exit_code, 0);
  write_text(gate, "");
  EXPECT_EQ(cluster_.wait(first), 0) << "what it was given it keeps";
  ASSERT_TRUE(cluster_.becomes(second, "held"));
  const std::string reason = cluster_.job(second)["reason"];
  EXPECT_TRUE(has(reason, "no secret TOKEN") && has(reason, "tutti release " + second)) << reason;
  ASSERT_EQ(set("TOKEN", "second").exit_code, 0);
  ASSERT_EQ(cluster_.tutti({"release", second}).exit_code, 0);
  EXPECT_EQ(cluster_.wait(second), 0);
  EXPECT_EQ(cluster_.log(second, 0), "second\n");
}

TEST_F(Secrets, WithoutTheFileOfTheKeyOthersRunAndNothingIsMadeInItsPlace) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  ASSERT_EQ(set("TOKEN", "the value").exit_code, 0);
  cluster_.kill_controller();
  fs::rename(key_file(), cluster_.file("away"));
  ASSERT_TRUE(cluster_.start_controller());
  ASSERT_TRUE(cluster_.node_becomes("n1", "ready"));
  EXPECT_EQ(cluster_.run({}, "true").exit_code, 0);
  EXPECT_TRUE(has(cluster_.tutti({"status"}).out, key_file()));
  EXPECT_TRUE(has(cluster_.tutti({"secret", "ls"}).err, key_file()));
  const auto refused = set("OTHER", "value");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_TRUE(has(refused.err, key_file())) << refused.err;
  EXPECT_NE(cluster_.tutti({"secret", "rotate-key"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(key_file()));
  const std::string id = cluster_.submit({"--secret", "TOKEN"}, "cat $TUTTI_SECRETS/TOKEN");
  ASSERT_TRUE(cluster_.becomes(id, "held"));
  EXPECT_TRUE(has(cluster_.job(id)["reason"], key_file())) << cluster_.job(id)["reason"];

  fs::rename(cluster_.file("away"), key_file());
  EXPECT_TRUE(eventually([&] { return !has(cluster_.tutti({"status"}).out, key_file()); }));
  ASSERT_EQ(cluster_.tutti({"release", id}).exit_code, 0);
  EXPECT_EQ(cluster_.wait(id), 0);
  EXPECT_EQ(cluster_.log(id, 0), "the value\n");
}

TEST_F(Secrets, AKilledShimLeavesNone) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  ASSERT_EQ(set("TOKEN", "the value").exit_code, 0);
  const std::string id =
      cluster_.submit({"--secret", "TOKEN", "--restarts", "0"}, tell("where") + "; sleep 600");
  const std::string folder = told("where");
  ASSERT_TRUE(fs::exists(folder + "/TOKEN"));
  for (const pid_t pid : cluster_.ranks_on("n1")) {
    if (has(read_text("/proc/" + std::to_string(pid) + "/comm"), "tutti-shim")) ::kill(pid, SIGKILL);
  }
  EXPECT_NE(cluster_.wait(id), 0);
  EXPECT_TRUE(eventually([&] { return !fs::exists(folder); })) << folder;
}

TEST_F(Secrets, AreOfPeopleAndOfQueues) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  for (const char* queue : {"research", "research/vision", "production"})
    ASSERT_EQ(cluster_.tutti({"queues", "set", queue}).exit_code, 0);
  const std::string admin = cluster_.env()["TUTTI_TOKEN_FILE"];
  const std::vector<std::pair<std::string, std::string>> people{
      {"ada", "user:research/vision"}, {"ben", "queue-admin:research"}, {"eve", "user:production"}};
  for (const auto& [name, role] : people) {
    ASSERT_EQ(cluster_.tutti({"users", "set", name, "--role", role}).exit_code, 0);
    ASSERT_EQ(cluster_.tutti({"tokens", "create", "--user", name, "--out", cluster_.file(name)}).exit_code,
              0);
  }
  const auto act_as = [&](const std::string& name) {
    cluster_.env()["TUTTI_TOKEN_FILE"] = name.empty() ? admin : cluster_.file(name);
  };
  const auto seen = [&](const std::string& queue) {
    return cluster_.run({"--no-prefix", "--queue", queue, "--secret", "TOKEN"}, "cat $TUTTI_SECRETS/TOKEN")
        .out;
  };
  act_as("ben");
  ASSERT_EQ(set("TOKEN", "of the queue", "--queue research").exit_code, 0);
  EXPECT_NE(set("TOKEN", "x", "--queue production").exit_code, 0);
  act_as("ada");
  EXPECT_NE(set("TOKEN", "x", "--queue research/vision").exit_code, 0) << "she is no queue-admin";
  EXPECT_EQ(listed().size(), 1U);
  EXPECT_EQ(seen("research/vision"), "of the queue\n");
  ASSERT_EQ(set("TOKEN", "her own").exit_code, 0);
  EXPECT_EQ(seen("research/vision"), "her own\n");
  EXPECT_NE(cluster_.tutti({"secret", "rotate-key"}).exit_code, 0);
  act_as("eve");
  EXPECT_TRUE(listed().empty());
  EXPECT_NE(cluster_.tutti({"run", "--queue", "production", "--secret", "TOKEN", "--", "true"}).exit_code, 0);
  EXPECT_NE(cluster_.tutti({"secret", "rm", "TOKEN", "--user", "ada"}).exit_code, 0);
  act_as("");
  EXPECT_EQ(listed().size(), 2U);
  ASSERT_EQ(cluster_.tutti({"users", "remove", "ada"}).exit_code, 0);
  EXPECT_EQ(listed().size(), 1U) << "hers go with her";
  ASSERT_EQ(cluster_.tutti({"secret", "rm", "TOKEN", "--queue", "research"}).exit_code, 0);
}

}  // namespace
}  // namespace tutti
