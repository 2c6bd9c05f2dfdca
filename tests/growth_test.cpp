// What would grow for ever, and what a full disk leaves possible.
#include <filesystem>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "support/cluster.hpp"
#include "support/small_disk.hpp"

namespace tutti {
namespace {

using Json = nlohmann::json;
using support::eventually;
using support::has;
using support::lines_of;
using support::PartsCluster;
using support::read_text;
using support::until;

TEST(Growth, OnAFullDiskJobsAreCancelledAndNodesDrained) {
  const support::TempFolder mount_point;
  const support::SmallDisk disk(mount_point.path() + "/disk", 8);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  PartsCluster cluster(
      {.data = mount_point.path() + "/disk/controller", .controller_flags = {}, .agent_flags = {}});
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string fills = cluster.submit({"--gpus", "1"}, "sleep 600");
  const std::string waits = cluster.submit({"--gpus", "8"}, "true");
  ASSERT_TRUE(cluster.becomes(fills, "running"));
  disk.fill();
  ASSERT_TRUE(eventually([&] { return cluster.run({"--detach", "--gpus", "8"}, "true").exit_code != 0; }));
  EXPECT_EQ(cluster.tutti({"cancel", waits}).exit_code, 0);
  EXPECT_EQ(cluster.state(waits), "cancelled");
  EXPECT_EQ(cluster.tutti({"drain", "n1"}).exit_code, 0);
  const auto cancelled = cluster.tutti({"cancel", fills});
  EXPECT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_TRUE(cluster.becomes(fills, "cancelled")) << "the end of its ranks is stored, too";
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); }));
  EXPECT_TRUE(has(cluster.tutti({"status"}).out, "cannot be written: the disk is full"));
  EXPECT_NE(cluster.run({"--detach"}, "true").exit_code, 0) << "what frees room is not for what takes it";
  disk.empty();
  EXPECT_TRUE(eventually([&] { return cluster.tutti({"resume", "n1"}).exit_code == 0; }));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  EXPECT_EQ(cluster.state(fills), "cancelled");
}

TEST(Growth, FinishedJobsAreForgottenAndStatusTellsWhatIsKept) {
  PartsCluster cluster(
      {.data = "", .controller_flags = {"--keep-jobs-max", "3", "--keep-jobs", "30d"}, .agent_flags = {}});
  ASSERT_TRUE(cluster.start_agent("n1"));
  for (int at = 0; at < 6; ++at) ASSERT_EQ(cluster.run({}, "true").exit_code, 0);
  Json jobs;
  EXPECT_TRUE(eventually([&] { return (jobs = cluster.json({"jobs", "--all"})).size() == 3; })) << jobs;
  EXPECT_EQ(jobs[0]["id"], "6");
  EXPECT_EQ(jobs[2]["id"], "4");
  for (const char* command : {"show", "wait", "cancel"}) {
    const auto refused = cluster.tutti({command, "1"});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_TRUE(has(refused.err, "job 1 is no longer kept")) << refused.err;
  }
  EXPECT_TRUE(has(cluster.tutti({"wait", "99"}).err, "there is no job 99"));
  const std::string status = cluster.tutti({"status"}).out;
  EXPECT_TRUE(has(status, "kept   finished jobs for 30d, at most 3 and 2000000 ranks, in a store of "))
      << status;
  EXPECT_TRUE(has(status, " of 256 MiB, and unfinished ones 0 B of 512 MiB, of one user 128 MiB")) << status;
  EXPECT_TRUE(has(status, " of logs of ended ranks on the nodes for 14d, at most 20 GiB and 10000 ranks\n"))
      << status;
  EXPECT_TRUE(has(status, "what ended jobs left in TUTTI_CHECKPOINT_DIR for ever\n")) << status;
  EXPECT_EQ(cluster.json({"status"})["kept"]["checkpoints_age_s"], 0.0);
  EXPECT_EQ(cluster.json({"status"})["kept"]["jobs_max"], 3);
  EXPECT_GT(cluster.json({"status"})["kept"]["jobs_bytes"], 0.0);
  cluster.kill_controller();
  ASSERT_TRUE(cluster.start_controller());
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  EXPECT_EQ(cluster.submit({}, "true"), "7") << "ids go on";
  // Their folders for checkpoints were empty.
  EXPECT_TRUE(eventually([&] {
    const auto folder = std::filesystem::path(cluster.home()) / "nodes/n1/checkpoints";
    std::size_t clusters = 0;  // each has a folder of its own there
    for (const auto& of_cluster : std::filesystem::directory_iterator(folder)) {
      ++clusters;
      if (std::filesystem::exists(of_cluster.path() / "1") ||
          std::filesystem::exists(of_cluster.path() / "7"))
        return false;
    }
    return clusters == 1;
  }));
}

// Each element with a command of its own would be a gigabyte.
TEST(Growth, AnArrayWithALargeCommandIsSentAndStoredOnce) {
  PartsCluster cluster;
  const auto submitted = cluster.tutti(
      {"run", "--detach", "--array", "0-9999", "--gpus", "1", "--", "true", std::string(120'000, 'x')});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const auto store_bytes = [&] {
    return std::filesystem::file_size(cluster.data() + "/store.db") +
           std::filesystem::file_size(cluster.data() + "/store.db-wal");
  };
  EXPECT_LT(store_bytes(), std::uintmax_t{8} << 20);
  cluster.kill_controller();
  ASSERT_TRUE(cluster.start_controller());
  EXPECT_EQ(cluster.json({"show", "10000"})["command"][1], std::string(120'000, 'x'));
  EXPECT_EQ(cluster.tutti({"cancel", "1", "--array"}).exit_code, 0);
  EXPECT_LT(store_bytes(), std::uintmax_t{16} << 20);
}

TEST(Growth, AStoreThatWasMovedAwayIsNoticedAndUsedAgainWhenItIsBack) {
  PartsCluster cluster;
  const std::string store = cluster.data() + "/store.db";
  std::filesystem::rename(store, cluster.file("away"));
  const auto refused = cluster.run({"--detach"}, "true");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_TRUE(has(refused.err, "store.db was moved away or replaced")) << refused.err;
  EXPECT_TRUE(has(cluster.tutti({"status"}).out, "put it back"));
  std::filesystem::rename(cluster.file("away"), store);
  EXPECT_TRUE(eventually([&] { return cluster.run({"--detach"}, "true").exit_code == 0; }));
}

TEST(Growth, ALostNodeCanBeRemoved) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  const auto refused = cluster.tutti({"nodes", "remove", "n2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "node 'n2' is alive")) << refused.err;
  cluster.pull_plug("n2");
  ASSERT_TRUE(cluster.node_becomes("n2", "lost"));
  EXPECT_EQ(cluster.tutti({"nodes", "remove", "n2"}).exit_code, 0);
  EXPECT_EQ(cluster.json({"nodes"}).size(), 1U);
  EXPECT_EQ(cluster.tutti({"nodes", "remove", "n2"}).exit_code, 2);
  EXPECT_EQ(cluster.tutti({"nodes", "remove"}).exit_code, 2);
  EXPECT_EQ(cluster.tutti({"nodes", "delete", "n1"}).exit_code, 2);
  EXPECT_TRUE(cluster.start_agent("n2")) << "it may come back";
}

TEST(Growth, AnArchiveThatWasCutOffInItsLastLineGoesOnWithAWholeOne) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string file = cluster.file("jobs.jsonl");
  const auto archive = [&] {
    return cluster.tutti({"jobs", "archive", "--older-than", "0s", "--out", file});
  };
  for (int at = 0; at < 2; ++at) ASSERT_EQ(cluster.run({}, "true").exit_code, 0);
  support::write_text(file, "{\"id\":\"0\"}\n{\"id\":\"1\",\"sta");
  const auto archived = archive();
  EXPECT_EQ(archived.exit_code, 0) << archived.err;
  EXPECT_TRUE(has(archived.err, "are cut off")) << archived.err;
  auto lines = lines_of(read_text(file));
  ASSERT_EQ(lines.size(), 2U) << read_text(file);
  EXPECT_EQ(Json::parse(lines[1], nullptr, false).value("id", ""), "1") << lines[1];
  // A whole one that lacks its end alone is ended, and a file of something else is left alone.
  support::write_text(file, "{\"id\":\"0\"}");
  ASSERT_EQ(cluster.run({}, "true").exit_code, 0);
  EXPECT_EQ(archive().exit_code, 0);
  lines = lines_of(read_text(file));
  ASSERT_EQ(lines.size(), 2U) << read_text(file);
  EXPECT_EQ(Json::parse(lines[1], nullptr, false).value("id", ""), "2") << lines[1];
  support::write_text(file, "my notes");
  EXPECT_EQ(archive().exit_code, 2);
  EXPECT_EQ(read_text(file), "my notes");
}

TEST(Growth, AFailedElementOfAnArrayIsToldHoweverLongTheOthersTake) {
  PartsCluster cluster({.controller_flags = {"--keep-jobs-max", "1"}});
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id =
      cluster.submit({"--array", "0-1"}, "[ $TUTTI_ARRAY_INDEX = 0 ] && exit 3; " + support::until(gate));
  ASSERT_TRUE(cluster.becomes(id, "failed"));
  ASSERT_EQ(cluster.run({}, "true").exit_code, 0);
  const std::string file = cluster.file("jobs.jsonl");
  const auto archived = cluster.tutti({"jobs", "archive", "--older-than", "0s", "--out", file});
  EXPECT_EQ(archived.exit_code, 0) << archived.err;
  EXPECT_EQ(cluster.state(id), "failed") << "it was put away while its array goes on";
  support::write_text(gate, "");
  EXPECT_EQ(cluster.tutti({"wait", "--array", id}).exit_code, 3);
  ASSERT_EQ(cluster.run({}, "true").exit_code, 0);
  // Now it may go, and who asks for the array hears that one is missing.
  net::Client client(*net::parse_target(cluster.address()),
                     read_text(cluster.data() + "/admin.token").substr(0, 64));
  const auto removed = client.request("POST", "/api/v1/jobs/remove", "{\"ids\":[\"" + id + "\"]}");
  ASSERT_TRUE(removed && removed->status == 200);
  const auto missing = cluster.tutti({"wait", "--array", std::to_string(std::stoi(id) + 1)});
  EXPECT_EQ(missing.exit_code, 1) << missing.err;
  EXPECT_TRUE(has(missing.err, "1 of its 2 elements")) << missing.err;
}

TEST(Growth, FinishedJobsArePutAwayIntoAFile) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  for (int at = 0; at < 4; ++at)
    ASSERT_EQ(cluster.run({"--name", "job" + std::to_string(at)}, "true").exit_code, 0);
  const std::string running = cluster.submit({}, "sleep 600");
  const std::string file = cluster.file("jobs.jsonl");
  const auto none = cluster.tutti({"jobs", "archive", "--out", file});
  EXPECT_TRUE(has(none.out, "0 jobs are in ")) << none.out << none.err;
  const auto archived = cluster.tutti({"jobs", "archive", "--older-than", "0s", "--out", file});
  EXPECT_EQ(archived.exit_code, 0) << archived.err;
  EXPECT_TRUE(has(archived.out, "4 jobs are in " + file)) << archived.out;
  const auto lines = lines_of(read_text(file));
  ASSERT_EQ(lines.size(), 4U);
  const Json first = Json::parse(lines[0]);
  EXPECT_EQ(first["name"], "job0");
  EXPECT_EQ(first["state"], "succeeded");
  EXPECT_EQ(first["command"][0], "sh");
  const Json left = cluster.json({"jobs", "--all"});
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0]["id"], running);
  EXPECT_EQ(cluster.tutti({"jobs", "archive"}).exit_code, 2);
  EXPECT_EQ(cluster.tutti({"jobs", "archve"}).exit_code, 2);
  EXPECT_EQ(cluster.tutti({"cancel", running}).exit_code, 0);
}

}  // namespace
}  // namespace tutti
