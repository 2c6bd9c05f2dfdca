#include "cli/jobfile/job_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/prng.hpp"

namespace tutti::jobfile {
namespace {

using Words = std::vector<std::string>;

std::string why_file(std::string_view yaml) {
  const auto file = parse_job_file(yaml, "job.yaml");
  return file ? "fine" : file.error().text() + " / " + file.error().remedy();
}

TEST(JobFile, EveryKey) {
  const auto file = parse_job_file(
      "name: my job\nranks: 16\nranks-per-node: 8\nnodes: 2\ngpus-per-rank: 0.5\ncpus-per-rank: 4\n"
      "memory-per-rank: 16G\ngpu-model: H100\ngpu-memory: 80G\nqueue: research\npriority: -5\ntime: 1:30:00\n"
      "env:\n  A: 1\n  B: x y\nsync: code\nrestarts: 7\nrestart-on-failure: 2\ngrace: 1m\narray: 0-9%3\n"
      "after: 3\nafter-success: [4, 5]\noutput: out.log\nworkdir: /data\ncommand: [python3, train.py]\n",
      "job.yaml");
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file->draft.sync_folder, "code");
  const auto specs = file->draft.finish();
  ASSERT_TRUE(specs.ok()) << specs.error().text();
  ASSERT_EQ(specs->size(), 10U);
  const auto& spec = specs->at(4);
  EXPECT_EQ(spec.name, "my job");
  EXPECT_EQ(spec.shape, (sched::Shape{.ranks = 16,
                                      .ranks_per_node = 8,
                                      .nodes = 2,
                                      .gpu_share = 500,
                                      .cpus = 4,
                                      .memory = gib(16),
                                      .gpu_model = "H100",
                                      .gpu_memory = gib(80)}));
  EXPECT_EQ(spec.env, (Words{"A=1", "B=x y"}));
  EXPECT_EQ(spec.priority, -5);
  EXPECT_EQ(spec.time_limit, 90min);
  EXPECT_EQ(spec.after.size(), 3U);
  EXPECT_EQ(spec.array, (cluster::ArrayPart{{}, 4, 10, 3}));
  EXPECT_EQ(spec.command, (Words{"python3", "train.py"}));
  EXPECT_FALSE(spec.slurm_variables);
}

TEST(JobFile, AStringIsRunByBash) {
  const auto file = parse_job_file("command: |\n  cd code\n  python3 train.py \"$@\"\n", "gpt+2.yaml");
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file->draft.command, (Words{"bash", "-c", "cd code\npython3 train.py \"$@\"\n", "gpt_2"}));
  EXPECT_EQ(file->draft.finish()->front().name, "gpt_2");
  EXPECT_EQ(parse_job_file("command: [python3]\n", "a.yml")->draft.finish()->front().name, "python3");
}

TEST(JobFile, TheCommandLineOverridesTheFile) {
  auto file = parse_job_file("ranks: 2\nname: a\nenv: [A=1, B=1]\ncommand: [x]\n", "job.yaml");
  ASSERT_TRUE(file.ok());
  config::Flags flags("run", "", "");
  file->draft.declare(flags);
  ASSERT_TRUE(flags.parse(Words{"--ranks", "4", "--env", "A=2"}).ok());
  const auto spec = file->draft.finish()->front();
  EXPECT_EQ(spec.shape.ranks, 4);
  EXPECT_EQ(spec.name, "a");
  EXPECT_EQ(spec.env, (Words{"B=1", "A=2"}));
}

TEST(JobFile, SeveralNumbersOfRanks) {
  using Counts = std::vector<std::int32_t>;
  const auto counts = [](std::string_view ranks) {
    const auto file = parse_job_file("command: [x]\nranks: " + std::string(ranks) + "\n", "job.yaml");
    EXPECT_TRUE(file.ok()) << file.error().text();
    return file->draft.finish()->front().shape.rank_counts;
  };
  EXPECT_EQ(counts("4:6"), (Counts{6, 5, 4}));
  EXPECT_EQ(counts("16,8,4"), (Counts{16, 8, 4}));
  EXPECT_EQ(counts("8"), Counts{});
  const auto script = parse_job_file("#!/bin/bash\n#SBATCH -n 8\n#TUTTI --ranks 8,4\necho\n", "job.sh");
  ASSERT_TRUE(script.ok()) << script.error().text();
  EXPECT_EQ(script->draft.finish()->front().shape.rank_counts, (Counts{8, 4}));
}

TEST(JobFile, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(why_file("name: a\nrnaks: 4\n"), "job.yaml:2: rnaks : unknown key / did you mean 'ranks'?");
  EXPECT_EQ(why_file("comand: x\n"), "job.yaml:1: comand : unknown key / did you mean 'command'?");
  EXPECT_EQ(why_file("ranks: 0\n"), "job.yaml:1: ranks : 0 is less than 1 / ");
  EXPECT_EQ(why_file("ranks: 4,8\n"),
            "job.yaml:1: ranks : 8 comes after 4 / write the largest number of ranks first: 16,8,4");
  EXPECT_EQ(why_file("env:\n  - A=1\n  - B\n"),
            "job.yaml:3: env : 'B' is not of the form K=V / "
            "K holds letters, digits and '_', and does not begin with a digit");
  EXPECT_EQ(why_file("env:\n  9A: 1\n").find("job.yaml:2: env : '9A=1' is not of the form K=V"), 0U);
  EXPECT_EQ(why_file("env: A\n").find("job.yaml:1: env : 'A' is not of the form K=V"), 0U);
  EXPECT_EQ(why_file("\nafter: [1, x]\n"), "job.yaml:2: after : 'x' is not the number of a job / ");
  EXPECT_EQ(why_file("after-success: 0\n"), "job.yaml:1: after-success : '0' is not the number of a job / ");
  EXPECT_EQ(why_file("command:\n  a: b\n"),
            "job.yaml:2: command : expected one string or a list of words / ");
  EXPECT_EQ(why_file("command:\n"), "job.yaml:1: command : expected one value / ");
  EXPECT_EQ(why_file("time: [1]\n"), "job.yaml:1: time : expected one value / ");
}

TEST(JobFile, TheNameSaysWhatItIs) {
  EXPECT_TRUE(parse_job_file("echo\n", "a.sh").ok());
  EXPECT_TRUE(parse_job_file("#!/bin/sh\necho\n", "job").ok());
  EXPECT_EQ(parse_job_file("echo\n", "job").error().text(), "job : this is neither a YAML file nor a script");
  EXPECT_EQ(parse_job_file(std::string((1 << 20) + 1, '#'), "a.sh").error().text(),
            "a.sh : the file is larger than 1 MiB");
}

TEST(JobFile, ReadsFiles) {
  const std::filesystem::path folder = testing::TempDir() + "tutti_job_file_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "a.yaml") << "command: [x]\n";
  std::ofstream(folder / "a.sh") << "#TUTTI --bad\n";
  EXPECT_EQ(read_job_file(folder / "a.yaml")->draft.command, Words{"x"});
  EXPECT_EQ(read_job_file(folder / "a.sh").error().text(), "a.sh:1 : unknown flag '--bad'");
  EXPECT_EQ(read_job_file(folder).error().message(), "this is a folder, not a file");
  EXPECT_EQ(read_job_file(folder / "absent.sh").error().message(),
            "cannot read " + (folder / "absent.sh").string() + ": No such file or directory");
  ASSERT_EQ(mkfifo((folder / "pipe.sh").c_str(), 0600), 0);
  EXPECT_EQ(read_job_file(folder / "pipe.sh").error().message(),
            "cannot read " + (folder / "pipe.sh").string() + ": it is no file");
  std::filesystem::remove_all(folder);
}

// Whatever stands in the file: an answer, no crash.
TEST(JobFile, TakesAnyBytes) {
  const Words pieces{"#!/bin/bash\n",
                     "#SBATCH ",
                     "#TUTTI ",
                     "--gres=gpu:",
                     "--array=",
                     "--ranks ",
                     "-N",
                     "-n ",
                     "8",
                     "16,8",
                     "4:16",
                     "0-9%",
                     "\n",
                     "'",
                     ": ",
                     "- ",
                     "env",
                     "=",
                     "\\",
                     "--time=1-",
                     "%",
                     "[",
                     "}",
                     "&a",
                     "*a",
                     "\xff",
                     "99999999999999999999"};
  Prng prng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text = prng.chance(0.5) ? "#!/bin/bash\n#SBATCH " : "";
    for (std::uint64_t count = prng.below(12); count > 0; --count) text += pieces[prng.below(pieces.size())];
    for (const char* name : {"a.sh", "a.yaml"}) {
      const auto file = parse_job_file(text, name);
      if (file) (void)file->draft.finish();
    }
  }
}

}  // namespace
}  // namespace tutti::jobfile
