// Whose fault is it, and who may ask for what: nodes that cannot start ranks, gangs that take nodes down,
// submits whose answer is lost, and requests beyond what one may send.
#include <signal.h>

#include <filesystem>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "control/cluster/limits.hpp"
#include "control/cluster/step.hpp"
#include "net/http/client.hpp"
#include "support/cluster.hpp"
#include "support/connection.hpp"
#include "support/small_disk.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::PartsCluster;
using support::read_text;

class WhoseFault : public testing::Test {
 protected:
  net::Client client(const std::string& token_kind = "admin") {
    const std::string token = read_text(cluster_.data() + "/" + token_kind + ".token").substr(0, 64);
    return net::Client(*net::parse_target(cluster_.address()), token);
  }
  // The ids, or the error, of a submit through the API.
  static std::string post_jobs(net::Client& api, const nlohmann::json& body) {
    const auto answer = api.request("POST", "/api/v1/jobs", body.dump());
    if (!answer) return answer.error().text();
    const auto parsed = nlohmann::json::parse(answer->body);
    return parsed.contains("ids") ? parsed["ids"].dump()
                                  : parsed["error"]["context"].get<std::string>() + " : " +
                                        parsed["error"]["message"].get<std::string>();
  }

  PartsCluster cluster_{
      support::PartsOptions{.data = "", .controller_flags = {}, .agent_flags = {}, .gpus = 2}};
};

// ---- nodes

TEST_F(WhoseFault, ANodeWithAFullDiskFailsNoJob) {
  const support::SmallDisk disk(cluster_.home() + "/nodes/full", 160);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  ASSERT_TRUE(cluster_.start_agent("full"));
  ASSERT_TRUE(cluster_.start_agent("well"));
  disk.fill();
  const std::string array = cluster_.submit({"--gpus", "1", "--array", "0-29"}, "true");
  EXPECT_EQ(cluster_.tutti({"wait", "--array", array}).exit_code, 0);
  ASSERT_TRUE(cluster_.node_becomes("full", "drained"));
  const auto nodes = cluster_.tutti({"nodes"});
  EXPECT_TRUE(has(nodes.out, "REASON")) << nodes.out;
  EXPECT_TRUE(has(nodes.out, "has less than 32 MiB of free space; it takes work again with 64 MiB") ||
              has(nodes.out, "could not be started on it"))
      << nodes.out;
  disk.empty();
  // Work that starts too soon sets a node aside for a minute: a person need not wait for that.
  EXPECT_EQ(cluster_.tutti({"resume", "full"}).exit_code, 0);
  EXPECT_TRUE(cluster_.node_becomes("full", "ready"));
  // What its agent saw of the disk last may be of before.
  EXPECT_TRUE(eventually([&] { return !has(cluster_.tutti({"nodes"}).out, "REASON"); }));
  ASSERT_EQ(cluster_.tutti({"drain", "well"}).exit_code, 0);
  EXPECT_EQ(cluster_.run({"--gpus", "1"}, "true").exit_code, 0) << "it takes work again";
}

// Its agent sees it before any work comes, so that nothing but the disk keeps it from taking some.
TEST_F(WhoseFault, ANodeWhoseDiskWasFullComesBackByItself) {
  const support::SmallDisk disk(cluster_.home() + "/nodes/full", 160);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  ASSERT_TRUE(cluster_.start_agent("full"));
  disk.fill();
  ASSERT_TRUE(cluster_.node_becomes("full", "drained"));
  const std::string id = cluster_.submit({"--gpus", "1"}, "true");
  const auto explain = cluster_.tutti({"explain", id});
  EXPECT_TRUE(has(explain.out, "waits")) << explain.out << explain.err;
  disk.empty();
  EXPECT_EQ(cluster_.wait(id), 0);
  EXPECT_EQ(cluster_.node("full").value("state", ""), "ready");
  EXPECT_EQ(cluster_.job(id)["attempt"], 0);
}

TEST_F(WhoseFault, AJobWhoseFolderFitsOnNoDiskIsHeldAndTheNodeGoesOn) {
  const support::SmallDisk disk(cluster_.home() + "/nodes/small", 160);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  ASSERT_TRUE(cluster_.start_agent("small"));
  const std::string folder = cluster_.file("shipped");
  std::filesystem::create_directory(folder);
  const auto made =
      support::run({"dd", "if=/dev/urandom", "of=" + folder + "/data", "bs=1M", "count=80"}, {});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string id = cluster_.submit({"--sync", folder}, "true");
  ASSERT_TRUE(cluster_.becomes(id, "held"));
  const auto show = cluster_.tutti({"show", id});
  EXPECT_TRUE(has(show.out, "the folder that the job ships takes 160 MiB on the node")) << show.out;
  EXPECT_EQ(cluster_.run({"--gpus", "1"}, "true").exit_code, 0);
  EXPECT_FALSE(has(cluster_.tutti({"nodes"}).out, "REASON"));
  EXPECT_EQ(cluster_.tutti({"cancel", id}).exit_code, 0);
}

TEST_F(WhoseFault, AGangThatTakesNodesDownIsHeldUntilItIsReleased) {
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(cluster_.start_agent(name));
  const std::string id = cluster_.submit({"--gpus", "1", "--restarts", "1000"}, "sleep 1000");
  // On a busy machine a node may miss its lease by itself, which is a loss like the others.
  std::set<std::string> taken;
  std::string node;
  const auto runs_on_a_node_that_lives = [&] {
    const auto job = cluster_.job(id);
    if (job.value("state", "") == "running") node = job["nodes"][0];
    return job.value("state", "") == "running" && !taken.contains(node);
  };
  while (cluster_.state(id) != "held") {
    ASSERT_TRUE(eventually([&] { return cluster_.state(id) == "held" || runs_on_a_node_that_lives(); }));
    if (cluster_.state(id) == "held") break;
    taken.insert(node);
    cluster_.pull_plug(node);
    ASSERT_TRUE(cluster_.node_becomes(node, "lost"));
  }
  EXPECT_LE(taken.size(), static_cast<std::size_t>(cluster::deadly_nodes_max));
  const auto show = cluster_.tutti({"show", id});
  EXPECT_TRUE(has(show.out, "is held: 3 nodes were lost or set aside in 3 of its last attempts")) << show.out;
  EXPECT_TRUE(has(show.out, "`tutti release " + id + "`")) << show.out;
  const auto explain = cluster_.tutti({"explain", id});
  EXPECT_TRUE(has(explain.out, "is held")) << explain.out << explain.err;
  EXPECT_EQ(cluster_.run({"--gpus", "1"}, "true").exit_code, 0) << "others go on";
  EXPECT_EQ(cluster_.tutti({"release", id}).exit_code, 0);
  EXPECT_TRUE(cluster_.becomes(id, "running"));
  EXPECT_EQ(cluster_.tutti({"release", id}).exit_code, 2) << "it is not held any more";
  EXPECT_EQ(cluster_.tutti({"cancel", id}).exit_code, 0);
  EXPECT_TRUE(cluster_.becomes(id, "cancelled"));
  // One that has missed its lease by itself ends what it runs of an old attempt, or only starts, when it is
  // back: not if its agent is ended before.
  for (const char* name : {"a", "b", "c", "d"}) {
    if (!taken.contains(name)) {
      EXPECT_TRUE(cluster_.node_becomes(name, "ready"));
    }
    EXPECT_TRUE(eventually([&] { return cluster_.ranks_on(name).empty(); })) << name;
  }
}

// ---- submits

TEST_F(WhoseFault, ASubmitWithTheSameKeyIsDoneOnce) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  auto api = client();
  const nlohmann::json job{{"command", {"true"}}, {"shape", {{"ranks", 1}}}};
  const nlohmann::json request{{"key", "abc-1"}, {"jobs", {job}}};
  EXPECT_EQ(post_jobs(api, request), R"(["1"])");
  EXPECT_EQ(post_jobs(api, request), R"(["1"])");
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  auto again = client();
  EXPECT_EQ(post_jobs(again, request), R"(["1"])") << "also after a restart";
  EXPECT_EQ(post_jobs(again, {{"jobs", {job}}}), R"(["2"])");
  EXPECT_TRUE(
      has(post_jobs(again, {{"key", "abc-1"}, {"jobs", {{{"command", {"no"}}, {"shape", {{"ranks", 1}}}}}}}),
          "is that of job 1, which is another one"));
  EXPECT_TRUE(has(post_jobs(again, {{"key", "a b"}, {"jobs", {job}}}), "key : "));
  EXPECT_EQ(cluster_.json({"jobs", "--all"}).size(), 2U);
}

TEST_F(WhoseFault, ACommandWhoseSubmitWasCutOffSendsItAgain) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  // The controller hears the connection and nothing more before it dies.
  cluster_.controller().signal(SIGSTOP);
  auto submit = cluster_.start({"run", "--detach", "--", "true"}, "submit");
  // It waits for an answer.
  const auto waiting = [&] {
    if (!has(read_text("/proc/" + std::to_string(submit->pid()) + "/stat"), ") S ")) return false;
    const auto files = "/proc/" + std::to_string(submit->pid()) + "/fd";
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(files, ignored)) {
      if (has(std::filesystem::read_symlink(entry.path(), ignored).string(), "socket:")) return true;
    }
    return false;
  };
  ASSERT_TRUE(eventually(waiting));
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  EXPECT_EQ(submit->wait(), 0) << read_text(cluster_.file("submit.err"));
  EXPECT_EQ(read_text(cluster_.file("submit")), "1\n");
  EXPECT_EQ(cluster_.json({"jobs", "--all"}).size(), 1U);
}

// ---- limits

TEST_F(WhoseFault, TheApiChecksEachLimitThatTheCommandLineDoes) {
  ASSERT_TRUE(cluster_.start_agent("n1"));
  auto api = client();
  const auto why = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json job{{"command", {"true"}}, {"shape", {{"ranks", 1}}}};
    change(job);
    return post_jobs(api, {{"jobs", {job}}});
  };
  const auto refused = [&](const std::string& context, const std::function<void(nlohmann::json&)>& change) {
    EXPECT_TRUE(why(change).starts_with(context + " : ")) << context << ": " << why(change).substr(0, 200);
  };
  const auto words = [](std::size_t count, const std::string& word) {
    return std::vector<std::string>(count, word);
  };
  const auto letters = [](std::size_t count) { return std::string(count, 'x'); };
  using nlohmann::json;
  refused("name", [&](json& job) { job["name"] = letters(cluster::job_name_bytes_max + 1); });
  refused("name", [&](json& job) { job["name"] = "\x1b]0;x\x07"; });
  refused("user", [&](json& job) { job["user"] = letters(cluster::user_bytes_max + 1); });
  refused("user", [&](json& job) { job["user"] = "\x1b[2J"; });
  refused("queue", [&](json& job) { job["queue"] = letters(cluster::queue_name_max + 1); });
  refused("workdir", [&](json& job) { job["workdir"] = letters(cluster::path_bytes_max + 1); });
  refused("output", [&](json& job) { job["output"] = letters(cluster::path_bytes_max + 1); });
  refused("sync", [&](json& job) { job["sync"] = "../../etc"; });
  refused("command", [&](json& job) { job["command"] = words(cluster::command_words_max + 1, "x"); });
  refused("command",
          [&](json& job) { job["command"] = words(1, letters(cluster::command_word_bytes_max + 1)); });
  refused("command", [&](json& job) { job["command"] = words(20, letters(100'000)); });
  refused("env", [&](json& job) { job["env"] = words(cluster::env_entries_max + 1, "K=V"); });
  refused("env", [&](json& job) { job["env"] = words(1, "K=" + letters(15 << 20)); });
  refused("env", [&](json& job) { job["env"] = words(1, "no"); });
  refused("priority", [&](json& job) { job["priority"] = 1001; });
  refused("priority", [&](json& job) { job["priority"] = -1001; });
  refused("restarts", [&](json& job) { job["restarts"] = 1001; });
  refused("restarts", [&](json& job) { job["restarts"] = -1; });
  refused("restart-on-failure", [&](json& job) { job["restart_on_failure"] = 1001; });
  refused("grace", [&](json& job) { job["grace_ms"] = 2 * 86'400'000; });
  refused("time", [&](json& job) { job["time_limit_ms"] = 3651LL * 86'400'000; });
  refused("cpus-per-rank", [&](json& job) { job["shape"]["cpus"] = 10'001; });
  refused("memory-per-rank", [&](json& job) { job["shape"]["memory_bytes"] = (64LL << 40) + 1; });
  refused("gpu-model", [&](json& job) { job["shape"]["gpu_model"] = letters(1025); });
  refused("array", [&](json& job) { job["array"] = {{"index", 1'000'000}, {"count", 1}}; });
  refused("after", [&](json& job) {
    job["after"] = std::vector<json>(cluster::dependencies_max + 1, json{{"job", 1}});
  });
  EXPECT_EQ(cluster_.json({"jobs", "--all"}).size(), 0U);
  EXPECT_EQ(why([](json&) {}), R"(["1"])");
}

// ---- tokens

TEST_F(WhoseFault, AWrongTokenIsAnsweredBeforeItsBodyIsRead) {
  support::Connection connection(static_cast<std::uint16_t>(cluster_.port()));
  connection.send(
      "POST /api/v1/jobs HTTP/1.1\r\nAuthorization: Bearer wrong\r\nContent-Length: 16777216\r\n\r\n");
  EXPECT_TRUE(has(connection.read_until("the token is wrong"), "HTTP/1.1 401"))
      << "nothing of its body was sent";
  support::Connection large(static_cast<std::uint16_t>(cluster_.port()));
  large.send(
      "POST /api/v1/jobs HTTP/1.1\r\nAuthorization: Bearer wrong\r\nContent-Length: 99999999999\r\n\r\n");
  EXPECT_TRUE(has(large.read_until("the token is wrong"), "HTTP/1.1 401"))
      << "who may not ask learns no limits";
  support::Connection nowhere(static_cast<std::uint16_t>(cluster_.port()));
  nowhere.send("POST /api/v1/nothing HTTP/1.1\r\nContent-Length: 16777216\r\n\r\n");
  EXPECT_TRUE(has(nowhere.read_until("there is no page"), "HTTP/1.1 404"));
}

TEST_F(WhoseFault, ATokenCrossesNoNetworkInTheClear) {
  cluster_.env()["TUTTI_ADDR"] = "192.0.2.1:7070";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"jobs"}, {"run", "--", "true"}, {"wait", "1"}, {"nodes"}}) {
    const auto refused = cluster_.tutti(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_TRUE(has(refused.err, "the token would cross the network in the clear")) << refused.err;
    EXPECT_TRUE(has(refused.err, "TUTTI_CA_FILE")) << refused.err;
  }
  const auto agent = cluster_.tutti({"agent", "--isolation", "none", "--controller", "192.0.2.1:7070",
                                     "--join-token-file", cluster_.data() + "/join.token", "--name", "n1"});
  EXPECT_EQ(agent.exit_code, 2) << agent.err;
  EXPECT_TRUE(has(agent.err, "--ca-file")) << agent.err;
}

}  // namespace
}  // namespace tutti
