#include "lab/replay/replay.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "lab/replay/csv.hpp"
#include "lab/replay/saturate.hpp"
#include "lab/replay/scale.hpp"

namespace tutti::replay {
namespace {

// A file that goes with the test.
class TempFile {
 public:
  TempFile(const std::string& name, const std::string& text)
      : path_(testing::TempDir() + std::to_string(::getpid()) + "-" + name) {
    std::ofstream(path_) << text;
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Fleet machines(int nodes, int gpus = 8) {
  Fleet fleet;
  add_group(fleet, {.nodes = nodes, .gpus = gpus});
  return fleet;
}

TraceJob job(const char* name, Duration submit, int gpus, Duration duration) {
  return {name, submit, gpus, duration, "", ""};
}

Replayed played(const Fleet& fleet, const std::vector<TraceJob>& trace, const char* policy,
                std::vector<Failure> failures = {}) {
  ReplayOptions options;
  options.policy = sched::find_policy(policy).value();
  options.failures = std::move(failures);
  auto out = replay(fleet, trace, options);
  EXPECT_TRUE(out.ok()) << (out ? "" : out.error().text());
  return out ? *out : Replayed{};
}

double end_of(const Replayed& replayed, const char* name) {
  for (const ReplayedJob& one : replayed.jobs) {
    if (one.name == name) return std::chrono::duration<double>(one.end).count();
  }
  return -1;
}

TEST(Replay, OneAfterTheOther) {
  const auto out = played(machines(1), {job("a", 0s, 8, 100s), job("b", 10s, 8, 50s)}, "fifo");
  EXPECT_DOUBLE_EQ(end_of(out, "a"), 100);
  EXPECT_DOUBLE_EQ(end_of(out, "b"), 150);
  EXPECT_DOUBLE_EQ(out.jct_mean_s(), 120);
  EXPECT_DOUBLE_EQ(out.makespan_s(), 150);
  EXPECT_DOUBLE_EQ(out.queue_mean_s(), 45);
  EXPECT_DOUBLE_EQ(out.utilisation(), 1);
  EXPECT_EQ(out.preemptions, 0U);
}

TEST(Replay, FifoPassesOverWhatDoesNotFit) {
  const auto out =
      played(machines(1), {job("a", 0s, 4, 100s), job("b", 1s, 8, 10s), job("c", 2s, 4, 10s)}, "fifo");
  EXPECT_DOUBLE_EQ(end_of(out, "c"), 12);
  EXPECT_DOUBLE_EQ(end_of(out, "b"), 110);
}

TEST(Replay, SrtfPutsTheLongerAside) {
  const auto out = played(machines(1), {job("long", 0s, 8, 100s), job("short", 10s, 8, 20s)}, "srtf");
  EXPECT_DOUBLE_EQ(end_of(out, "short"), 30);
  EXPECT_DOUBLE_EQ(end_of(out, "long"), 120) << "it goes on where it was";
  EXPECT_EQ(out.preemptions, 1U);
}

TEST(Replay, TuttiPutsAsideWhatHasHadMuch) {
  const auto out = played(machines(1), {job("long", 0s, 8, 10h), job("short", 1h, 4, 60s)}, "tutti");
  EXPECT_DOUBLE_EQ(end_of(out, "short"), 3660);
  EXPECT_DOUBLE_EQ(end_of(out, "long"), 36060);
  const auto early = played(machines(1), {job("long", 0s, 8, 500s), job("short", 60s, 4, 60s)}, "tutti");
  EXPECT_EQ(early.preemptions, 0U) << "both are new";
}

TEST(Replay, TuttiLearnsFromThoseThatCameTogether) {
  // One of a sweep has shown how long they take: the others let the short ones pass, which came later.
  std::vector<TraceJob> jobs{job("pilot", 0s, 8, 1000s)};
  for (int at = 0; at < 4; ++at) jobs.push_back(job("sweep", 1s, 8, 1000s));
  jobs.push_back(job("pilot of the short", 500s, 4, 10s));
  for (int at = 0; at < 4; ++at) jobs.push_back(job("short", 1100s, 4, 10s));
  const auto out = played(machines(1), jobs, "tutti");
  for (const ReplayedJob& one : out.jobs) {
    if (one.name != "short") continue;
    EXPECT_LT(one.end, Duration(2100s)) << "after the one that runs, before the rest";
  }
}

TEST(Replay, LargeGangsTakeWholeNodes) {
  const auto out = played(
      machines(2), {job("small", 0s, 1, 100s), job("large", 1s, 16, 10s), job("odd", 2s, 12, 10s)}, "fifo");
  EXPECT_DOUBLE_EQ(end_of(out, "large"), 110);
  EXPECT_DOUBLE_EQ(end_of(out, "odd"), 12) << "three times four devices fit beside the small one";
}

TEST(Replay, AFailedNodeCostsWhatWasNotSaved) {
  const auto out = played(machines(2), {job("a", 0s, 8, 2h)}, "tutti", {{70min, "n1", 1h}});
  EXPECT_EQ(out.node_failures, 1U);
  EXPECT_DOUBLE_EQ(end_of(out, "a"), 2 * 3600 + 600)
      << "ten minutes since the last checkpoint are done again";
  EXPECT_NEAR(out.lost_gpu_hours, 8.0 / 6, 1e-9);
}

TEST(Replay, ANodeThatComesBackTakesWorkAgain) {
  const auto out = played(machines(1), {job("a", 0s, 8, 100s)}, "tutti", {{50s, "n1", 1000s}});
  EXPECT_DOUBLE_EQ(end_of(out, "a"), 1150);
}

TEST(Replay, WhatCanNeverRunIsSaid) {
  ReplayOptions options;
  options.policy = sched::find_policy("tutti").value();
  EXPECT_FALSE(replay(machines(1), {job("a", 0s, 16, 1s)}, options).ok());
  TraceJob other = job("b", 0s, 1, 1s);
  other.gpu_type = "V100";
  const auto out = replay(machines(1), {other}, options);
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().text().find("needs a V100"), std::string::npos) << out.error().text();
}

TEST(Replay, TheSameTwice) {
  std::vector<TraceJob> trace;
  for (int at = 0; at < 200; ++at)
    trace.push_back(job(("j" + std::to_string(at)).c_str(), std::chrono::seconds(at * 7), 1 + at % 9,
                        std::chrono::seconds(30 + at * at % 900)));
  for (const sched::Policy& policy : sched::policies()) {
    const std::string name(policy.name);
    EXPECT_EQ(to_json(played(machines(3), trace, name.c_str())),
              to_json(played(machines(3), trace, name.c_str())));
    EXPECT_EQ(to_html(played(machines(3), trace, name.c_str())),
              to_html(played(machines(3), trace, name.c_str())));
  }
}

TEST(Replay, ThePageNeedsNothingFromElsewhere) {
  const std::string page = to_html(played(machines(1), {job("<b>&", 0s, 8, 100s)}, "tutti"));
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("<b>&"), std::string::npos) << "names are text";
  EXPECT_NE(page.find("&lt;b&gt;&amp;"), std::string::npos);
}

TEST(Trace, ReadsColumnsByName) {
  const TempFile file(
      "t.csv", "gpus,job_id,duration_s,submit_s,partition\n8,a,10.5,100,x\n0,none,1,1,x\n1,b,2,50,y\n");
  const auto all = read_trace(file.path(), "");
  ASSERT_TRUE(all.ok()) << all.error().text();
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[0].name, "b") << "in the order of submission";
  EXPECT_EQ((*all)[1].duration, 10500ms);
  EXPECT_EQ(read_trace(file.path(), "x")->size(), 1U);
  EXPECT_FALSE(read_trace(file.path(), "z").ok());
}

TEST(Trace, RefusesWhatIsNoTrace) {
  const auto why = [](const std::string& text) {
    const TempFile file("bad.csv", text);
    const auto read = read_trace(file.path(), "");
    return read ? "fine" : read.error().text();
  };
  EXPECT_NE(why("job_id,submit_s,gpus\na,1,1\n").find("no column duration_s"), std::string::npos);
  EXPECT_NE(why("job_id,submit_s,gpus,duration_s\na,1,1\n").find(":2"), std::string::npos);
  EXPECT_NE(why("job_id,submit_s,gpus,duration_s\na,1,x,1\n").find("'x' is no gpus"), std::string::npos);
  EXPECT_NE(why("job_id,submit_s,gpus,duration_s\na,-1,1,1\n").find("'-1' is no submit_s"),
            std::string::npos);
  EXPECT_NE(why("job_id,submit_s,gpus,duration_s\na,1,1,nan\n").find("'nan'"), std::string::npos);
  EXPECT_NE(why("job_id,submit_s,gpus,duration_s\na,1,1e12,1\n").find("out of range"), std::string::npos);
  EXPECT_NE(why("").find("is empty"), std::string::npos);
  EXPECT_FALSE(read_trace("/nowhere.csv", "").ok());
}

TEST(Fleet, FromYamlAndFromAList) {
  const TempFile yaml("c.yaml",
                      "groups:\n  - nodes: 2\n    gpus: 8\n    model: H100\n  - nodes: 1\n    model: A100\n");
  const auto groups = read_fleet(yaml.path());
  ASSERT_TRUE(groups.ok()) << groups.error().text();
  ASSERT_EQ(groups->size(), 3U);
  EXPECT_EQ((*groups)[2].inventory.devices[0].model, "A100");
  const TempFile wrong("w.yaml", "nodes: 2\ngpuz: 8\n");
  const auto refused = read_fleet(wrong.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE((refused.error().text() + refused.error().remedy()).find("gpus"), std::string::npos);
  const TempFile list("n.csv", "sn,cpu_milli,memory_mib,gpu,model\nx,64000,1024,2,P100\n");
  const auto nodes = read_fleet(list.path());
  ASSERT_TRUE(nodes.ok()) << nodes.error().text();
  EXPECT_EQ((*nodes)[0].inventory.cpus, 64000);
  EXPECT_EQ((*nodes)[0].inventory.devices.size(), 2U);
}

// Halves and odd pieces on devices whose CPUs are scarce.
TEST(Saturate, TheDefaultWastesLessThanOthers) {
  std::vector<sched::Shape> tasks;
  for (int at = 0; at < 40; ++at) {
    sched::Shape task{.nodes = 1};
    const std::int32_t shares[] = {1000, 500, 190, 810, 300, 2000, 8000, 0};
    task.gpu_share = shares[at % 8];
    task.cpus = at % 8 == 7 ? 20'000 : 4000 + 1000 * (at % 3);
    tasks.push_back(task);
  }
  Fleet fleet;
  add_group(fleet, {.nodes = 40, .gpus = 8, .cpus = 64'000});
  const std::vector<std::uint64_t> seeds{1, 2, 3};
  const auto mean = [&](const char* name) {
    return saturate(fleet, tasks, *sched::find_policy(name).value(), seeds, nullptr).mean();
  };
  const double ours = mean("tutti");
  EXPECT_GT(ours, mean("best-fit"));
  EXPECT_GE(ours, mean("fgd") - 0.5);
  EXPECT_LE(ours, 100.0);
  EXPECT_DOUBLE_EQ(ours, mean("tutti"));
}

TEST(Scale, PlacesEveryGangOfASmallCluster) {
  const auto out = scale({.gpus = 8192, .jobs = 2000, .seed = 3});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->nodes, 1024);
  EXPECT_GT(out->placements, 1900);
}

}  // namespace
}  // namespace tutti::replay
