#include "cli/jobfile/slurm.hpp"

#include <gtest/gtest.h>

#include "cli/jobfile/script.hpp"

namespace tutti::jobfile {
namespace {

using Words = std::vector<std::string>;

// A script of #SBATCH lines with these words.
Result<JobFile> parse(const std::vector<std::string>& lines) {
  std::string text = "#!/bin/bash\n";
  for (const auto& line : lines) text += "#SBATCH " + line + "\n";
  return parse_script(text + "echo hello\n", "train.sh");
}

std::string why_slurm(const std::vector<std::string>& lines) {
  const auto file = parse(lines);
  return file ? "fine" : file.error().text();
}
std::string remedy(const std::string& line) { return parse({line}).error().remedy(); }

cluster::JobSpec slurm_spec(const std::vector<std::string>& lines) {
  const auto file = parse(lines);
  EXPECT_TRUE(file.ok()) << file.error().text();
  if (!file) return {};
  const auto specs = file->draft.finish();
  EXPECT_TRUE(specs.ok()) << specs.error().text();
  return specs ? specs->front() : cluster::JobSpec{};
}

// Ranks, ranks per node, nodes, thousandths of GPUs per rank.
std::vector<int> counts(const std::vector<std::string>& lines) {
  const auto shape = slurm_spec(lines).shape;
  return {shape.ranks, shape.ranks_per_node, shape.nodes, shape.gpu_share};
}
using Counts = std::vector<int>;

TEST(Slurm, NodesAndTasks) {
  EXPECT_EQ(counts({"--nodes=4"}), (Counts{4, 1, 4, 0}));
  EXPECT_EQ(counts({"-N 4"}), (Counts{4, 1, 4, 0}));
  EXPECT_EQ(counts({"-N4"}), (Counts{4, 1, 4, 0}));
  EXPECT_EQ(counts({"--nodes 2 --ntasks-per-node=8"}), (Counts{16, 8, 2, 0}));
  EXPECT_EQ(counts({"--ntasks=6"}), (Counts{6, 0, 0, 0}));
  EXPECT_EQ(counts({"-n 6", "-N 2"}), (Counts{6, 0, 2, 0}));
  EXPECT_EQ(counts({"-n 8 --ntasks-per-node 4"}), (Counts{8, 4, 0, 0}));
}

TEST(Slurm, GpusOfANodeAreDividedAmongItsRanks) {
  EXPECT_EQ(counts({"--gres=gpu:8"}), (Counts{1, 1, 0, 8000}));
  EXPECT_EQ(counts({"--gres=gpu"}), (Counts{1, 1, 0, 1000}));
  EXPECT_EQ(counts({"--nodes=2", "--gres=gpu:h100:8"}), (Counts{2, 1, 2, 8000}));
  EXPECT_EQ(counts({"--nodes=2", "--gres=gpu:8", "--ntasks-per-node=8"}), (Counts{16, 8, 2, 1000}));
  EXPECT_EQ(counts({"--nodes=2", "--gpus-per-node=8", "--ntasks-per-node=4"}), (Counts{8, 4, 2, 2000}));
  EXPECT_EQ(counts({"--ntasks=4 --gres=gpu:4"}), (Counts{4, 4, 0, 1000}));
  EXPECT_EQ(counts({"--nodes=2 --ntasks=8 --gres=gpu:4"}), (Counts{8, 4, 2, 1000}));
  EXPECT_EQ(slurm_spec({"--gres=gpu:h100:8"}).shape.gpu_model, "h100");
  EXPECT_EQ(slurm_spec({"--gpus-per-node=a100:2"}).shape.gpu_model, "a100");
}

TEST(Slurm, GpusInAllAndPerTask) {
  EXPECT_EQ(counts({"--gpus=8"}), (Counts{1, 0, 0, 8000}));
  EXPECT_EQ(counts({"-G 8 -n 4"}), (Counts{4, 0, 0, 2000}));
  EXPECT_EQ(counts({"-G h100:16 -N 2"}), (Counts{2, 1, 2, 8000}));
  EXPECT_EQ(counts({"-n 4 --gpus-per-task=2"}), (Counts{4, 0, 0, 2000}));
  EXPECT_EQ(counts({"-n 4 --gpus-per-task=h100:1"}), (Counts{4, 0, 0, 1000}));
  EXPECT_EQ(counts({"-n 4 --gres=gpu:8 --gpus-per-task=2"}), (Counts{4, 4, 0, 2000}));
}

TEST(Slurm, GpusThatDoNotDivide) {
  EXPECT_EQ(why_slurm({"-N 2", "--gres=gpu:8", "--ntasks-per-node=3"}),
            "train.sh:3: --gres : 8 GPUs do not divide evenly among the ranks of a node");
  EXPECT_EQ(why_slurm({"-N 2 -n 5 --gpus-per-node=6"}),
            "train.sh:2: --gpus-per-node : 6 GPUs do not divide evenly among the ranks of a node");
  EXPECT_EQ(why_slurm({"-n 3 -G 8"}), "train.sh:2: -G : 8 GPUs do not divide evenly among 3 ranks");
  EXPECT_EQ(why_slurm({"-n 4 --gres=gpu:8", "--gpus-per-task=1"}),
            "train.sh:2: --gres : 8 GPUs do not agree with the other lines about GPUs");
  EXPECT_EQ(why_slurm({"--gres=gpu:2000"}), "train.sh:2: --gres : 2000 GPUs are more than 1000 a rank");
  EXPECT_EQ(why_slurm({"--gres=nvme:1"}),
            "train.sh:2: --gres : 'nvme:1' is not a kind of resource that tutti knows");
  EXPECT_EQ(why_slurm({"--gres=gpu:h100:x"}), "train.sh:2: --gres : 'x' is not a whole number");
  EXPECT_EQ(why_slurm({"--gres=gpu:h/1:8"}), "train.sh:2: --gres : 'h/1' is not a name");
  EXPECT_EQ(why_slurm({"--gpus="}), "train.sh:2: --gpus : a name is missing");
}

TEST(Slurm, CpusAndMemory) {
  EXPECT_EQ(slurm_spec({"--cpus-per-task=12"}).shape.cpus, 12);
  EXPECT_EQ(slurm_spec({"-c 12"}).shape.cpus, 12);
  EXPECT_EQ(slurm_spec({"--mem=64G"}).shape.memory, gib(64));
  EXPECT_EQ(slurm_spec({"--mem=64GB"}).shape.memory, gib(64));
  EXPECT_EQ(slurm_spec({"--mem=64g"}).shape.memory, gib(64));
  EXPECT_EQ(slurm_spec({"--mem=4096"}).shape.memory, gib(4));
  EXPECT_EQ(slurm_spec({"--mem=1024kb"}).shape.memory, mib(1));
  EXPECT_EQ(slurm_spec({"--mem=0"}).shape.memory, Bytes(0));
  EXPECT_EQ(slurm_spec({"--mem=64G", "--ntasks-per-node=4"}).shape.memory, gib(16));
  EXPECT_EQ(slurm_spec({"--mem=64G", "-N2", "-n 6"}).shape.memory, Bytes(gib(64).count() / 3));
  EXPECT_EQ(why_slurm({"--mem=lots"}), "train.sh:2: --mem : 'lots' is not a size");
}

TEST(Slurm, TheRest) {
  const auto found = slurm_spec({"--time=1-12:00:00", "--job-name=\"my job\"", "--output=logs/%x-%A_%a.%j",
                                 "--partition=gpu", "--dependency=afterok:1:2,afterany:3"});
  EXPECT_EQ(found.time_limit, 36h);
  EXPECT_EQ(found.name, "my job");
  EXPECT_EQ(found.output, "logs/%x-%A_%a.%j");
  EXPECT_EQ(found.queue, "gpu");
  EXPECT_EQ(found.after,
            (std::vector<cluster::Dependency>{
                {cluster::JobId(3), false}, {cluster::JobId(1), true}, {cluster::JobId(2), true}}));
  EXPECT_TRUE(found.slurm_variables);
  const auto letters = slurm_spec({"-t 90 -J j -o out -p queue -d afterany:4"});
  EXPECT_EQ(letters.time_limit, 90min);
  EXPECT_EQ(letters.name, "j");
  EXPECT_EQ(letters.output, "out");
  EXPECT_EQ(letters.queue, "queue");
  EXPECT_EQ(letters.after.size(), 1U);
  EXPECT_EQ(parse({"--array=0-9%2"})->draft.finish()->size(), 10U);
  EXPECT_EQ(parse({"-a 1,3"})->draft.array.indices.size(), 2U);
}

TEST(Slurm, IgnoredWithAWarning) {
  const auto file = parse({"--export=ALL", "--mail-type=END --mail-user=a@b.c", "--account=x", "-A x",
                           "--qos=high", "-q high", "--error=e.log", "-e e.log"});
  ASSERT_TRUE(file.ok()) << file.error().text();
  ASSERT_EQ(file->warnings.size(), 9U);
  EXPECT_EQ(file->warnings[0],
            "train.sh:2: --export : ignored; write a line #TUTTI --env NAME=VALUE, or --env NAME");
  EXPECT_EQ(file->warnings[2], "train.sh:3: --mail-user : ignored; tutti has nothing like it");
  EXPECT_EQ(file->warnings[8],
            "train.sh:9: -e : ignored; write a line #TUTTI --output FILE, which gets both");
}

TEST(Slurm, UnknownOptions) {
  EXPECT_EQ(why_slurm({"-N 2", "--gers=gpu:8"}), "train.sh:3: --gers : unknown option");
  EXPECT_EQ(remedy("--gers=gpu:8"), "did you mean '--gres'?");
  EXPECT_EQ(remedy("--tme 5"), "did you mean '--time'?");
  EXPECT_EQ(why_slurm({"-x 5"}), "train.sh:2: -x : unknown option");
  EXPECT_EQ(remedy("--frobnicate=5"), "remove the line, or write a #TUTTI line");
  EXPECT_EQ(why_slurm({"--"}), "train.sh:2: -- : unknown option");
}

TEST(Slurm, BadWords) {
  EXPECT_EQ(why_slurm({"nodes=2"}), "train.sh:2 : unexpected word 'nodes=2'");
  EXPECT_EQ(why_slurm({"-"}), "train.sh:2 : unexpected word '-'");
  EXPECT_EQ(why_slurm({"--nodes"}), "train.sh:2: --nodes : a value is missing");
  EXPECT_EQ(why_slurm({"--nodes=2-4"}), "train.sh:2: --nodes : '2-4' is a range");
  EXPECT_EQ(why_slurm({"--nodes=0"}), "train.sh:2: --nodes : 0 is less than 1");
  EXPECT_EQ(why_slurm({"--ntasks=x"}), "train.sh:2: --ntasks : 'x' is not a whole number");
  EXPECT_EQ(why_slurm({"--ntasks-per-node=100001"}),
            "train.sh:2: --ntasks-per-node : 100001 is more than 100000");
  EXPECT_EQ(why_slurm({"-c 0"}), "train.sh:2: -c : 0 is less than 1");
  EXPECT_EQ(why_slurm({"--time=soon"}), "train.sh:2: --time : 'soon' is not a time limit");
  EXPECT_EQ(why_slurm({"--job-name=a/b"}), "train.sh:2: --job-name : 'a/b' is not a name");
  EXPECT_EQ(why_slurm({"--output="}), "train.sh:2: --output : a path is missing");
  EXPECT_EQ(why_slurm({"--array=x"}), "train.sh:2: --array : 'x' is not an array");
  EXPECT_EQ(why_slurm({"--partition=a,b"}), "train.sh:2: --partition : 'a,b' is not a name");
  EXPECT_EQ(why_slurm({"-d singleton"}), "train.sh:2: -d : 'singleton' is not a dependency that tutti knows");
  EXPECT_EQ(why_slurm({"-d afterok"}), "train.sh:2: -d : 'afterok' is not a dependency that tutti knows");
  EXPECT_EQ(why_slurm({"-d afterok:x"}), "train.sh:2: -d : 'x' is not the number of a job");
  EXPECT_EQ(why_slurm({"--job-name=\"open"}), "train.sh:2 : a quote is not closed");
}

}  // namespace
}  // namespace tutti::jobfile
