#include "cli/jobfile/job_flags.hpp"

#include <gtest/gtest.h>

namespace tutti::jobfile {
namespace {

using Words = std::vector<std::string>;

Result<std::vector<cluster::JobSpec>> specs(const Words& arguments,
                                            const Words& command = {"/usr/bin/python3", "x.py"}) {
  Draft draft;
  config::Flags flags("run", "", "");
  draft.declare(flags);
  if (auto parsed = flags.parse(arguments); !parsed) return std::move(parsed).error();
  draft.command = command;
  return draft.finish();
}

cluster::JobSpec spec_of(const Words& arguments) {
  auto found = specs(arguments);
  EXPECT_TRUE(found.ok()) << found.error().text();
  return found ? found->front() : cluster::JobSpec{};
}

std::string why_flags(const Words& arguments, const Words& command = {"x"}) {
  const auto found = specs(arguments, command);
  return found ? "fine" : found.error().text();
}

TEST(JobFlags, Defaults) {
  cluster::JobSpec expected;
  expected.name = "python3";
  expected.command = {"/usr/bin/python3", "x.py"};
  const auto found = specs({});
  ASSERT_TRUE(found.ok()) << found.error().text();
  EXPECT_EQ(*found, std::vector{expected});
}

TEST(JobFlags, EveryFlag) {
  const auto found = spec_of({"--name",
                              "my job",
                              "--ranks",
                              "16",
                              "--ranks-per-node",
                              "8",
                              "--nodes",
                              "2",
                              "--gpus-per-rank",
                              "0.5",
                              "--cpus-per-rank",
                              "4",
                              "--memory-per-rank",
                              "16G",
                              "--gpu-model",
                              "H100",
                              "--gpu-memory",
                              "80GB",
                              "--within",
                              "rack",
                              "--yields",
                              "--queue",
                              "research/vision",
                              "--priority=-5",
                              "--time",
                              "2h",
                              "--env",
                              "A=1",
                              "--env=B=x y",
                              "--env",
                              "A=2",
                              "--sync",
                              ".",
                              "--restarts",
                              "7",
                              "--restart-on-failure",
                              "2",
                              "--grace",
                              "1m",
                              "--after",
                              "3",
                              "--after-success",
                              "4",
                              "--after",
                              "5",
                              "--output",
                              "%j.log",
                              "--workdir",
                              "/data"});
  EXPECT_EQ(found.name, "my job");
  EXPECT_EQ(found.shape, (sched::Shape{.ranks = 16,
                                       .ranks_per_node = 8,
                                       .nodes = 2,
                                       .gpu_share = 500,
                                       .cpus = 4,
                                       .memory = gib(16),
                                       .gpu_model = "H100",
                                       .gpu_memory = Bytes(80'000'000'000),
                                       .within = sched::Level::rack}));
  EXPECT_EQ(found.queue, "research/vision");
  EXPECT_TRUE(found.yields);
  EXPECT_EQ(found.priority, -5);
  EXPECT_EQ(found.time_limit, 2h);
  EXPECT_EQ(found.env, (Words{"B=x y", "A=2"}));
  EXPECT_EQ(found.restarts, 7);
  EXPECT_EQ(found.restart_on_failure, 2);
  EXPECT_EQ(found.grace, 1min);
  EXPECT_EQ(found.after,
            (std::vector<cluster::Dependency>{
                {cluster::JobId(3), false}, {cluster::JobId(5), false}, {cluster::JobId(4), true}}));
  EXPECT_EQ(found.output, "%j.log");
  EXPECT_EQ(found.workdir, "/data");
  EXPECT_EQ(found.sync, "");
  EXPECT_FALSE(found.slurm_variables);
  EXPECT_FALSE(found.array.has_value());
}

TEST(JobFlags, APartOfTheFabricIsOneOfFour) {
  for (const char* part : {"site", "pod", "rack", "nvlink"})
    EXPECT_EQ(sched::name_of(spec_of({"--within", part}).shape.within), part);
  EXPECT_EQ(why_flags({"--within", "room"}), "run: --within : 'room' is no part of a location");
}

TEST(JobFlags, TheFolderToSyncStaysInTheDraft) {
  Draft draft;
  config::Flags flags("run", "", "");
  draft.declare(flags);
  ASSERT_TRUE(flags.parse(Words{"--sync", "code"}).ok());
  EXPECT_EQ(draft.sync_folder, "code");
}

TEST(JobFlags, CountsFillInOneAnother) {
  const auto counts = [](const Words& arguments) {
    const auto shape = spec_of(arguments).shape;
    return std::vector<int>{shape.ranks, shape.ranks_per_node, shape.nodes, shape.gpu_share};
  };
  using Counts = std::vector<int>;
  EXPECT_EQ(counts({}), (Counts{1, 0, 0, 0}));
  EXPECT_EQ(counts({"--ranks", "5"}), (Counts{5, 0, 0, 0}));
  EXPECT_EQ(counts({"--nodes", "3"}), (Counts{3, 1, 3, 0}));
  EXPECT_EQ(counts({"--nodes", "3", "--ranks-per-node", "4"}), (Counts{12, 4, 3, 0}));
  EXPECT_EQ(counts({"--ranks-per-node", "4"}), (Counts{4, 4, 0, 0}));
  EXPECT_EQ(counts({"--ranks", "7", "--ranks-per-node", "4", "--nodes", "2"}), (Counts{7, 4, 2, 0}));
  EXPECT_EQ(counts({"--ranks", "8", "--nodes", "2"}), (Counts{8, 0, 2, 0}));
  EXPECT_EQ(counts({"--gpus", "8"}), (Counts{8, 0, 0, 1000}));
  EXPECT_EQ(counts({"--gpus", "16", "--nodes", "2", "--ranks-per-node", "8"}), (Counts{16, 8, 2, 1000}));
  EXPECT_EQ(counts({"--ranks", "2", "--gpus-per-rank", "8"}), (Counts{2, 0, 0, 8000}));
}

TEST(JobFlags, AGangMayRunWithSeveralNumbersOfRanks) {
  using Counts = std::vector<std::int32_t>;
  const auto listed = spec_of({"--ranks", "16,8,4", "--gpus-per-rank", "1"}).shape;
  EXPECT_EQ(listed.ranks, 16);
  EXPECT_EQ(listed.rank_counts, (Counts{16, 8, 4}));
  const auto range = spec_of({"--ranks", "4:6", "--nodes", "3"}).shape;
  EXPECT_EQ(range.ranks, 6);
  EXPECT_EQ(range.rank_counts, (Counts{6, 5, 4}));
  EXPECT_EQ(spec_of({"--ranks", "2:4", "--nodes", "4"}).shape.ranks_per_node, 1);
  EXPECT_EQ(spec_of({"--ranks", "8"}).shape.rank_counts, Counts{}) << "one number is the plain form";
  EXPECT_EQ(why_flags({"--ranks", "16:4"}), "run: --ranks : '16:4' is not a range of ranks");
  EXPECT_EQ(why_flags({"--ranks", "4,2", "--gpus", "4"}),
            "gpus : is short for ranks of one GPU each: leave out ranks");
  EXPECT_EQ(why_flags({"--ranks", "4,2", "--nodes", "5"}), "nodes : 5 are more than the 4 ranks");
}

TEST(JobFlags, CountsThatContradict) {
  EXPECT_EQ(why_flags({"--gpus", "8", "--ranks", "8"}),
            "gpus : is short for ranks of one GPU each: leave out ranks");
  EXPECT_EQ(why_flags({"--gpus", "8", "--gpus-per-rank", "1"}),
            "gpus : is short for ranks of one GPU each: leave out gpus-per-rank");
  EXPECT_EQ(why_flags({"--nodes", "3", "--ranks", "2"}), "nodes : 3 are more than the 2 ranks");
  EXPECT_EQ(why_flags({"--nodes", "2", "--ranks-per-node", "4", "--ranks", "9"}),
            "ranks : 9 do not fit: 2 nodes with 4 each hold 8");
  EXPECT_EQ(why_flags({"--nodes", "1000", "--ranks-per-node", "101"}),
            "ranks : a job has at most 100000 ranks, not 101000");
  EXPECT_EQ(why_flags({"--gpu-model", "H100"}), "gpu-model : says which GPUs, and the job asks for none");
  EXPECT_EQ(why_flags({"--gpu-memory", "80G"}), "gpu-memory : says which GPUs, and the job asks for none");
}

TEST(JobFlags, EveryNumberIsBounded) {
  struct Bounds {
    const char* flag;
    const char* low;
    const char* high;
  };
  for (const Bounds& bounds :
       {Bounds{"ranks", "0", "100001"}, Bounds{"ranks-per-node", "0", "100001"},
        Bounds{"nodes", "0", "100001"}, Bounds{"gpus", "0", "100001"}, Bounds{"cpus-per-rank", "0", "10001"},
        Bounds{"priority", "-1001", "1001"}, Bounds{"restarts", "-1", "1001"},
        Bounds{"restart-on-failure", "-1", "1001"}}) {
    const std::string flag = "--" + std::string(bounds.flag);
    EXPECT_EQ(
        why_flags({flag + "=" + bounds.low}).find("run: " + flag + " : " + bounds.low + " is less than"), 0U)
        << flag;
    EXPECT_EQ(
        why_flags({flag + "=" + bounds.high}).find("run: " + flag + " : " + bounds.high + " is more than"),
        0U)
        << flag;
  }
}

TEST(JobFlags, BadValuesNameTheFlag) {
  EXPECT_EQ(why_flags({"--name", "a/b"}), "run: --name : 'a/b' is not a name");
  EXPECT_EQ(why_flags({"--gpus-per-rank", "1.5"}), "run: --gpus-per-rank : '1.5' is not a number of GPUs");
  EXPECT_EQ(why_flags({"--memory-per-rank", "x"}), "run: --memory-per-rank : 'x' is not a size");
  EXPECT_EQ(why_flags({"--gpu-model", "a/b"}), "run: --gpu-model : 'a/b' is not a name");
  EXPECT_EQ(why_flags({"--gpu-memory", "x"}), "run: --gpu-memory : 'x' is not a size");
  EXPECT_EQ(why_flags({"--queue", "a b"}), "run: --queue : 'a b' is not a name");
  EXPECT_EQ(why_flags({"--time", "x"}), "run: --time : 'x' is not a time limit");
  EXPECT_EQ(why_flags({"--grace", "x"}), "run: --grace : 'x' is not a duration");
  EXPECT_EQ(why_flags({"--array", "x"}), "run: --array : 'x' is not an array");
  EXPECT_EQ(why_flags({"--sync", ""}), "run: --sync : a path is missing");
  EXPECT_EQ(why_flags({"--output", ""}), "run: --output : a path is missing");
  EXPECT_EQ(why_flags({"--workdir", ""}), "run: --workdir : a path is missing");
  EXPECT_EQ(why_flags({"--env", "A"}), "env : 'A' is not of the form K=V");
  EXPECT_EQ(why_flags({"--after", "x"}), "after : 'x' is not the number of a job");
  EXPECT_EQ(why_flags({"--after-success", "0"}), "after-success : '0' is not the number of a job");
}

TEST(JobFlags, Arrays) {
  const auto found = specs({"--array", "1,3,5%2", "--name", "sweep"});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ(found->at(2).array, (cluster::ArrayPart{{}, 5, 3, 2}));
  EXPECT_EQ(found->at(0).array->index, 1);
  EXPECT_EQ(found->at(0).name, "sweep");
  EXPECT_EQ(why_flags({"--array", "0-9999"}, {"bash", "-c", std::string(100'000, 'x')}), "fine")
      << "they share it";
}

TEST(JobFlags, TheCommandIsBounded) {
  EXPECT_EQ(why_flags({}, {}), "there is no command to run");
  EXPECT_EQ(why_flags({}, {""}), "there is no command to run");
  EXPECT_EQ(why_flags({}, Words(10'000, "x")), "fine");
  EXPECT_EQ(why_flags({}, Words(10'001, "x")), "command : has more than 10000 words");
  EXPECT_EQ(why_flags({}, {"x", std::string(command_word_bytes_max, 'x')}), "fine");
  EXPECT_EQ(why_flags({}, {"x", std::string(command_word_bytes_max + 1, 'x')}),
            "command : has a word of 128 KiB; Linux starts no program with one of 128 KiB or more");
  EXPECT_EQ(why_flags({}, Words(11, std::string(100'000, 'x'))), "command : is larger than 1 MiB");
  EXPECT_EQ(why_flags({}, {std::string("a\0b", 3)}), "command : holds a NUL byte");
}

TEST(JobFlags, ListsAreBounded) {
  Draft draft;
  draft.command = {"x"};
  draft.env.assign(1001, "A=1");
  EXPECT_EQ(draft.finish().error().text(), "env : has more than 1000 entries");
  draft.env = {"A=" + std::string(128 << 10, 'x')};
  EXPECT_EQ(draft.finish().error().text(), "env : is larger than 128 KiB");
  draft.env.clear();
  draft.after.assign(600, "1");
  draft.after_success.assign(401, "1");
  EXPECT_EQ(draft.finish().error().text(), "after : a job waits for at most 1000 others");
}

TEST(JobFlags, TheDefaultNameIsMadeOfTheCommand) {
  EXPECT_EQ(specs({}, {"./a+b"})->front().name, "a_b");
  EXPECT_EQ(specs({}, {"dir/"})->front().name, "job");
}

TEST(JobFlags, SeveralModelsMeanAnyOfThem) {
  EXPECT_EQ(parse_models("H100").value(), "H100");
  EXPECT_EQ(parse_models("A100,H100").value(), "A100|H100");
  for (const char* wrong : {"", ",", "A100,", "A100,,H100", "A100|H100"})
    EXPECT_FALSE(parse_models(wrong)) << wrong;
}

}  // namespace
}  // namespace tutti::jobfile
