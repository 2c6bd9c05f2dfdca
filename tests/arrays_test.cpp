// Arrays of jobs, and jobs that follow others.
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::eventually;
using support::has;
using support::lines_of;
using support::read_text;
using support::TestCluster;
using support::until;
using support::write_text;

TEST(Jobs, AnArrayKeepsItsLimit) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string marks = cluster.file("marks");
  const std::string id = cluster.submit(
      {"--array", "3-10%2"},
      "echo + >>" + marks + "; " +
          until(gate, "echo $TUTTI_ARRAY_INDEX >>" + cluster.file("indices") + "; echo - >>" + marks));
  ASSERT_TRUE(eventually([&] { return lines_of(read_text(marks)).size() == 2; }));
  const json waiting = cluster.json({"jobs"});
  ASSERT_EQ(waiting.size(), 8U);
  EXPECT_EQ(waiting[0]["array_id"], id);
  EXPECT_TRUE(has(waiting[0]["reason"], "at most 2 run at once")) << waiting[0]["reason"];
  write_text(gate, "");
  for (int at = 0; at < 8; ++at) EXPECT_EQ(cluster.wait(std::to_string(std::stoi(id) + at)), 0);
  int running = 0;
  for (const auto& mark : lines_of(read_text(marks))) {
    running += mark == "+" ? 1 : -1;
    EXPECT_LE(running, 2);
  }
  std::multiset<std::string> indices;
  for (const auto& index : lines_of(read_text(cluster.file("indices")))) indices.insert(index);
  EXPECT_EQ(indices, (std::multiset<std::string>{"10", "3", "4", "5", "6", "7", "8", "9"}));
}

TEST(Jobs, AnArrayIsHandledAsAWhole) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string other = cluster.submit({}, until(gate));
  const std::string id = cluster.submit(
      {"--array", "1-4"}, until(gate, "echo index $TUTTI_ARRAY_INDEX; exit $((TUTTI_ARRAY_INDEX % 4))"));
  const std::string last = std::to_string(std::stoi(id) + 3);
  const json elements = cluster.json({"jobs", "--array", last});
  ASSERT_EQ(elements.size(), 4U);
  std::set<std::string> indices;
  for (const auto& element : elements) {
    EXPECT_EQ(element["array_id"], id);
    EXPECT_EQ(element["array_count"], 4);
    indices.insert(element["array_index"].dump());
  }
  EXPECT_EQ(indices, (std::set<std::string>{"1", "2", "3", "4"}));
  EXPECT_TRUE(has(cluster.tutti({"show", last}).out, "index 4 of the 4 of array " + id))
      << cluster.tutti({"show", last}).out;
  const auto waits = cluster.start({"wait", last, "--array"}, "out");
  write_text(gate, "");
  EXPECT_EQ(waits->wait(), 3) << "the worst of them: " << read_text(cluster.file("out.err"));
  EXPECT_EQ(cluster.tutti({"wait", "--array", id}).exit_code, 3) << "also when all of it is over";
  EXPECT_EQ(cluster.json({"jobs", "--array", id}).size(), 4U);
  EXPECT_EQ(cluster.tutti({"logs", id, "--array"}).out,
            "[1.0] index 1\n[2.0] index 2\n[3.0] index 3\n[4.0] index 4\n");
  const auto alone = cluster.tutti({"wait", other, "--array"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_TRUE(has(alone.err, "job " + other + " is not an element of an array")) << alone.err;
}

TEST(Jobs, OneAfterAnother) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string first = cluster.submit({}, until(gate, "exit 1"));
  const std::string after = cluster.submit({"--after", first}, "true");
  const std::string doomed = cluster.submit({"--after-success", first}, "echo >" + cluster.file("ran"));
  const std::string doomed_too = cluster.submit({"--after-success", doomed}, "echo >" + cluster.file("ran"));
  const std::string last = cluster.submit({"--after-success", after}, "true");
  ASSERT_TRUE(cluster.becomes(first, "running"));
  EXPECT_EQ(cluster.state(after), "queued");
  EXPECT_TRUE(has(cluster.tutti({"show", after}).out, "waits for job " + first + " to end"))
      << cluster.tutti({"show", after}).out;
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(after), 0);
  EXPECT_EQ(cluster.wait(last), 0);
  EXPECT_NE(cluster.wait(doomed), 0);
  EXPECT_NE(cluster.wait(doomed_too), 0);
  EXPECT_EQ(cluster.state(doomed), "cancelled");
  EXPECT_TRUE(has(cluster.job(doomed)["reason"], "job " + first)) << cluster.job(doomed)["reason"];
  EXPECT_FALSE(std::filesystem::exists(cluster.file("ran")));
}

TEST(Jobs, WhatNeedsASuccessDoesNotFollowAFailureOfLongAgo) {
  const TestCluster cluster;
  const std::string failed = cluster.submit({}, "exit 1");
  EXPECT_EQ(cluster.wait(failed), 1);
  const auto late = cluster.run({"--after-success", failed}, "echo >" + cluster.file("ran"));
  EXPECT_NE(late.exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(cluster.file("ran")));
}

}  // namespace
}  // namespace tutti
