// The scheduler as a user meets it: queues, why a job waits, what would start it sooner, and gangs that make
// way.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::eventually;
using support::has;
using support::TestCluster;
using support::until;
using support::write_text;

json queue(const TestCluster& cluster, const std::string& name) {
  const json queues = cluster.json({"queues"});
  const auto found =
      std::find_if(queues.begin(), queues.end(), [&](const json& view) { return view["name"] == name; });
  return found == queues.end() ? json() : *found;
}

TEST(Queues, AreCreatedChangedShownAndRemoved) {
  const TestCluster cluster(1, 4);
  const json made =
      cluster.json({"queues", "set", "research", "--guarantee", "2", "--limit", "3.5", "--weight", "2"});
  EXPECT_EQ(made["name"], "research");
  EXPECT_EQ(made["guarantee_gpus"], 2);
  EXPECT_EQ(made["limit_gpus"], 3.5);
  EXPECT_FALSE(made.contains("user_limit_gpus"));
  EXPECT_EQ(cluster.tutti({"queues", "set", "research/vision", "--user-limit", "1"}).exit_code, 0);
  const json changed = cluster.json({"queues", "set", "research", "--limit", "none", "--user-limit", "1"});
  EXPECT_EQ(changed["guarantee_gpus"], 2) << "what is not named stays";
  EXPECT_EQ(changed["weight"], 2);
  EXPECT_FALSE(changed.contains("limit_gpus"));
  EXPECT_EQ(changed["user_limit_gpus"], 1);

  EXPECT_FALSE(changed.contains("priority_max"));
  EXPECT_EQ(cluster.json({"queues", "set", "research", "--priority-max", "-5"})["priority_max"], -5);
  const auto urgent = cluster.run({"--queue", "research", "--priority", "0"}, "true");
  EXPECT_EQ(urgent.exit_code, 2);
  EXPECT_TRUE(has(urgent.err, "a priority of at most -5, not 0")) << urgent.err;
  EXPECT_FALSE(
      cluster.json({"queues", "set", "research", "--priority-max", "none"}).contains("priority_max"));

  const std::string table = cluster.tutti({"queues"}).out;
  EXPECT_TRUE(has(table, "QUEUE")) << table;
  EXPECT_TRUE(has(table, "\nresearch ")) << table;
  EXPECT_TRUE(has(table, "\n  vision ")) << table;

  EXPECT_EQ(cluster.tutti({"queues", "rm", "research"}).exit_code, 2) << "it has a part";
  EXPECT_EQ(cluster.json({"queues", "rm", "research/vision"}), json({{"removed", "research/vision"}}));
  EXPECT_EQ(cluster.tutti({"queues", "rm", "research"}).exit_code, 0);
  EXPECT_TRUE(queue(cluster, "research").is_null());
  EXPECT_EQ(cluster.tutti({"queues", "rm", "default"}).exit_code, 2);
}

TEST(Queues, WrongUsageIsTold) {
  const TestCluster cluster(1, 1);
  const auto why = [&](const std::vector<std::string>& words) {
    const auto done = cluster.tutti(words);
    EXPECT_EQ(done.exit_code, 2) << done.err;
    return done.err;
  };
  EXPECT_TRUE(has(why({"queues", "sett", "a"}), "did you mean 'set'?"));
  EXPECT_TRUE(has(why({"queues", "set"}), "tutti queues set NAME"));
  EXPECT_TRUE(has(why({"queues", "--limit", "3"}), "are for `tutti queues set NAME`"));
  EXPECT_TRUE(has(why({"queues", "set", "a", "--limit", "many"}), "'many' is not a number of GPUs"));
  EXPECT_TRUE(has(why({"queues", "set", "a b"}), "is no name of a queue"));
  EXPECT_TRUE(has(why({"queues", "set", "a/b"}), "there is no queue 'a' for it to be a part of"));
  EXPECT_TRUE(has(why({"queues", "set", "a", "--guarantee", "3", "--limit", "2"}), "than it may ever use"));
  EXPECT_TRUE(has(why({"run", "--json", "--", "true"}), "--json is for --dry-run"));
  EXPECT_TRUE(has(why({"run", "--within", "room", "--", "true"}), "'room' is no part of a location"));
}

TEST(Explain, ALimitHoldsAJobBackAndWhatHelpsIsSaid) {
  const TestCluster cluster(1, 4);
  const std::string gate = cluster.file("gate");
  ASSERT_EQ(cluster.tutti({"queues", "set", "research", "--limit", "2"}).exit_code, 0);
  const std::string first =
      cluster.submit({"--gpus", "2", "--queue", "research", "--time", "1h"}, until(gate));
  ASSERT_TRUE(cluster.becomes(first, "running"));
  const std::string second =
      cluster.submit({"--gpus", "2", "--queue", "research", "--time", "1h"}, until(gate));
  const std::string limit = "needs 2 GPUs; queue research uses 2 of at most 2";
  ASSERT_TRUE(eventually([&] { return cluster.job(second)["reason"] == limit; })) << cluster.job(second);

  const json why = cluster.json({"explain", second});
  EXPECT_EQ(why["state"], "queued");
  EXPECT_EQ(why["why"], limit);
  EXPECT_EQ(why["queue"], "research");
  EXPECT_EQ(why["ahead"], 0);
  EXPECT_FALSE(why["starts_now"]);
  EXPECT_TRUE(why.contains("expected_start")) << "the first one ends within its hour";
  ASSERT_FALSE(why["suggestions"].empty()) << why;
  EXPECT_EQ(why["suggestions"][0]["change"], "queue default instead of research");
  EXPECT_EQ(why["suggestions"][0]["now"], true);
  const std::string told = cluster.tutti({"explain", second}).out;
  EXPECT_TRUE(has(told, "job " + second + " waits: " + limit)) << told;
  EXPECT_TRUE(has(told, "queue default instead of research: now")) << told;
  EXPECT_TRUE(has(cluster.tutti({"show", second}).out, "  expected   "))
      << cluster.tutti({"show", second}).out;

  const json used = queue(cluster, "research");
  EXPECT_EQ(used["gpus"], 2);
  EXPECT_EQ(used["running"], 1);
  EXPECT_EQ(used["queued"], 1);
  ASSERT_EQ(used["users"].size(), 1U);
  EXPECT_EQ(used["users"][0]["gpus"], 2);

  EXPECT_TRUE(has(cluster.tutti({"explain", first}).out, "waits for nothing: it is running"));
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(first), 0);
  EXPECT_EQ(cluster.wait(second), 0);
  EXPECT_TRUE(has(cluster.tutti({"explain", second}).out, "waits for nothing: it has ended, succeeded"));
  EXPECT_EQ(cluster.tutti({"explain", "999"}).exit_code, 2);
}

TEST(Explain, ADryRunSubmitsNothing) {
  const TestCluster cluster(1, 2);
  const std::string gate = cluster.file("gate");
  const auto dry = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"run", "--dry-run"});
    flags.insert(flags.end(), {"--", "true"});
    return cluster.tutti(flags);
  };
  EXPECT_EQ(dry({"--gpus", "2", "--within", "rack", "--yields"}).out, "it would start now\n");
  const std::string id = cluster.submit({"--gpus", "1"}, until(gate));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const auto waits = dry({"--gpus", "2"});
  EXPECT_EQ(waits.exit_code, 0);
  EXPECT_TRUE(has(waits.out, "it would wait: needs 2 ranks of 1 GPU")) << waits.out;
  EXPECT_TRUE(has(waits.out, "unknown: job " + id + " runs without a time limit")) << waits.out;
  EXPECT_TRUE(has(waits.out, "1 instead of 2 ranks: now")) << waits.out;
  const auto never = dry({"--gpus", "3"});
  EXPECT_EQ(never.exit_code, 2);
  EXPECT_TRUE(has(never.err, "can never run here")) << never.err;
  EXPECT_EQ(dry({"--queue", "nobody"}).exit_code, 2);
  EXPECT_EQ(cluster.json({"jobs", "--all"}).size(), 1U);
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
}

TEST(Queues, WhatIsBorrowedGoesBack) {
  const TestCluster cluster(1, 4);
  for (const char* name : {"ours", "theirs"})
    ASSERT_EQ(cluster.tutti({"queues", "set", name, "--guarantee", "2"}).exit_code, 0);
  const std::string gate = cluster.file("gate");
  std::vector<std::string> borrowers;
  for (int job = 0; job < 2; ++job)
    borrowers.push_back(cluster.submit({"--gpus", "2", "--queue", "theirs", "--restarts", "0"}, until(gate)));
  for (const std::string& job : borrowers) ASSERT_TRUE(cluster.becomes(job, "running")) << cluster.job(job);
  EXPECT_EQ(queue(cluster, "theirs")["gpus"], 4) << queue(cluster, "theirs");
  // One of them has what is guaranteed to its queue, and stays.
  const std::string owner = cluster.submit({"--gpus", "2", "--queue", "ours"}, until(gate));
  ASSERT_TRUE(cluster.becomes(owner, "running")) << cluster.job(owner);
  const auto waiting = [&] {
    return std::count_if(borrowers.begin(), borrowers.end(),
                         [&](const std::string& job) { return cluster.job(job)["state"] == "restarting"; });
  };
  ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
  const std::string second = cluster.submit({"--gpus", "2", "--queue", "ours"}, "true");
  EXPECT_TRUE(has(cluster.tutti({"explain", second}).out, "waits: ")) << "it would only borrow";
  EXPECT_EQ(waiting(), 1);
  write_text(gate, "");
  for (const std::string& job : borrowers) EXPECT_EQ(cluster.wait(job), 0) << cluster.job(job);
  EXPECT_EQ(cluster.wait(owner), 0);
  EXPECT_EQ(cluster.wait(second), 0);
}

TEST(Priority, ARunningJobMakesWayAndIsResumed) {
  const TestCluster cluster(1, 2);
  const std::string gate = cluster.file("gate");
  const std::string urgent_gate = cluster.file("urgent");
  const std::string saved = cluster.file("saved");
  const std::string ready = cluster.file("ready");
  const std::string script = "trap 'echo >" + saved + "; exit 0' TERM; echo >" + ready + "; " +
                             until(gate, "echo attempt $TUTTI_ATTEMPT");
  const std::string low = cluster.submit({"--gpus", "2", "--restarts", "0", "--grace", "60s"}, script);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(ready); }));
  const std::string high = cluster.submit({"--gpus", "2", "--priority", "10"}, until(urgent_gate));
  ASSERT_TRUE(cluster.becomes(high, "running")) << cluster.job(high);
  EXPECT_TRUE(std::filesystem::exists(saved)) << "it was asked to end, and not killed";
  ASSERT_TRUE(cluster.becomes(low, "restarting")) << cluster.job(low);
  EXPECT_EQ(cluster.job(low)["attempt"], 1);
  const std::string told = cluster.tutti({"explain", low}).out;
  EXPECT_TRUE(has(told, "job " + low + " waits: ")) << told;
  write_text(urgent_gate, "");
  EXPECT_EQ(cluster.wait(high), 0);
  ASSERT_TRUE(cluster.becomes(low, "running")) << cluster.job(low);
  EXPECT_TRUE(has(cluster.job(low)["reason"], "makes way for job " + high)) << cluster.job(low);
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(low), 0);
  EXPECT_EQ(cluster.log(low, 0), "attempt 1\n");
}

}  // namespace
}  // namespace tutti
