#include "base/config/flags.hpp"

#include <gtest/gtest.h>

namespace tutti::config {
namespace {

struct Run : testing::Test {
  std::int64_t ranks = 1;
  double gpus_per_rank = 0;
  bool detach = false;
  std::string name = "none";
  std::vector<std::string> env;
  Duration time{};
  Bytes memory;
  std::vector<std::string> command;
  Flags flags{"run", "[flags] -- COMMAND", "Submits a job and streams its logs."};

  void SetUp() override {
    flags.add("ranks", ranks, "how many ranks the gang has", {.min = 1, .max = 1000});
    flags.add("gpus-per-rank", gpus_per_rank, "whole or a share, such as 0.25");
    flags.add("detach", detach, "do not wait");
    flags.add("name", name, "what to call the job");
    flags.add("env", env, "K=V for every rank");
    flags.add("time", time, "time limit");
    flags.add("memory-per-rank", memory, "memory limit");
    flags.add_rest("COMMAND", command, "what each rank runs", false);
  }

  std::string parse(const std::vector<std::string>& arguments) {
    const auto parsed = flags.parse(arguments);
    return parsed ? "fine" : parsed.error().text() + " / " + parsed.error().remedy();
  }
  std::string read(std::string_view yaml) {
    const auto document = parse_document(yaml, "job.yaml");
    if (!document) return document.error().text();
    const auto result = flags.read(*document);
    return result ? "fine" : result.error().text() + " / " + result.error().remedy();
  }
};

TEST_F(Run, TakesEveryType) {
  EXPECT_EQ(
      parse({"--ranks", "4", "--gpus-per-rank=0.25", "--detach", "--name", "a b", "--env", "A=1", "--env",
             "B=2", "--time", "1h30m", "--memory-per-rank", "16G", "--", "python3", "train.py", "--lr", "1"}),
      "fine");
  EXPECT_EQ(ranks, 4);
  EXPECT_EQ(gpus_per_rank, 0.25);
  EXPECT_TRUE(detach);
  EXPECT_EQ(name, "a b");
  EXPECT_EQ(env, (std::vector<std::string>{"A=1", "B=2"}));
  EXPECT_EQ(time, 90min);
  EXPECT_EQ(memory, gib(16));
  EXPECT_EQ(command, (std::vector<std::string>{"python3", "train.py", "--lr", "1"}));
}

TEST_F(Run, TheRestIsAnotherProgramsCommandLine) {
  EXPECT_EQ(parse({"--ranks", "2", "echo", "--ranks", "9", "--", "--help"}), "fine");
  EXPECT_EQ(ranks, 2);
  EXPECT_FALSE(flags.help_wanted());
  EXPECT_EQ(command, (std::vector<std::string>{"echo", "--ranks", "9", "--", "--help"}));
}

TEST_F(Run, DefaultsStay) {
  EXPECT_EQ(parse({}), "fine");
  EXPECT_EQ(ranks, 1);
  EXPECT_EQ(name, "none");
}

TEST_F(Run, LastOneWins) {
  EXPECT_EQ(parse({"--ranks", "2", "--ranks", "3"}), "fine");
  EXPECT_EQ(ranks, 3);
}

TEST_F(Run, BadLinesSayWhatAndWhatToDo) {
  const std::string advice = " / `tutti help run` explains the command";
  EXPECT_EQ(parse({"--rnaks", "4"}), "run : unknown flag '--rnaks' / did you mean '--ranks'?");
  EXPECT_EQ(parse({"--frobnicate=1"}), "run : unknown flag '--frobnicate'" + advice);
  EXPECT_EQ(parse({"--ranks", "four"}), "run: --ranks : 'four' is not a whole number / ");
  EXPECT_EQ(parse({"--ranks", "0"}), "run: --ranks : 0 is less than 1 / ");
  EXPECT_EQ(parse({"--ranks", "-3"}), "run: --ranks : -3 is less than 1 / ");
  EXPECT_EQ(parse({"--ranks", "1001"}), "run: --ranks : 1001 is more than 1000 / ");
  EXPECT_EQ(parse({"--ranks", "99999999999999999999"}),
            "run: --ranks : '99999999999999999999' is not a number of at most 64 bits / ");
  EXPECT_EQ(parse({"--gpus-per-rank", "nan"}), "run: --gpus-per-rank : 'nan' is not a number / ");
  EXPECT_EQ(parse({"--time", "soon"}).find("run: --time : 'soon' is not a duration / write a number"), 0U);
  EXPECT_NE(parse({"--ranks"}).find("--ranks"), std::string::npos);
  EXPECT_NE(parse({"--ranks"}), "fine");
}

TEST_F(Run, HelpWinsAndListsEveryFlag) {
  EXPECT_EQ(parse({"--help"}), "fine");
  EXPECT_TRUE(flags.help_wanted());
  const std::string help = flags.help();
  EXPECT_EQ(help.find("usage: tutti run [flags] -- COMMAND\n"), 0U) << help;
  for (const char* flag :
       {"--ranks N", "--detach", "--env TEXT", "--time TIME", "--memory-per-rank SIZE", "--help"}) {
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  }
}

TEST_F(Run, FilesUseTheSameWords) {
  EXPECT_EQ(read("ranks: 4\ngpus-per-rank: 0.5\ndetach: true\nenv: {A: 1, B: x y}\ntime: 2h\n"), "fine");
  EXPECT_EQ(ranks, 4);
  EXPECT_EQ(gpus_per_rank, 0.5);
  EXPECT_TRUE(detach);
  EXPECT_EQ(env, (std::vector<std::string>{"A=1", "B=x y"}));
  EXPECT_EQ(time, 2h);
  EXPECT_EQ(read("env: [C=3]\n"), "fine");
  EXPECT_EQ(env.back(), "C=3");
}

TEST_F(Run, BadFilesNameFileLineAndKey) {
  EXPECT_EQ(read("name: x\nrnaks: 4\n"), "job.yaml:2: rnaks : unknown key / did you mean 'ranks'?");
  EXPECT_EQ(read("name: x\nranks: four\n"), "job.yaml:2: ranks : 'four' is not a whole number / ");
  EXPECT_EQ(read("ranks: [1, 2]\n"), "job.yaml:1: ranks : expected one value / ");
  EXPECT_EQ(read("ranks:\n"), "job.yaml:1: ranks : expected one value / ");
  EXPECT_EQ(read("env:\n  - A=1\n  - [B]\n"), "job.yaml:3: env : expected a list of plain values / ");
}

TEST(Words, AreTakenInOrder) {
  std::string first;
  std::string second;
  bool json = false;
  Flags flags("show", "JOB [RANK]", "Shows a job.");
  flags.add_word("JOB", first, "which job");
  flags.add_word("RANK", second, "which rank", false);
  flags.add("json", json, "for scripts");
  const auto parse = [&](std::vector<std::string> arguments) {
    const auto parsed = flags.parse(arguments);
    return parsed ? "fine" : parsed.error().text();
  };
  EXPECT_EQ(parse({"7", "--json"}), "fine");
  EXPECT_EQ(first, "7");
  EXPECT_TRUE(json) << "flags may stand behind words";
  EXPECT_EQ(parse({"7", "1"}), "fine");
  EXPECT_EQ(second, "1");
  EXPECT_EQ(parse({"--", "-7"}), "fine");
  EXPECT_EQ(first, "-7");
  EXPECT_EQ(parse({}), "show : missing JOB");
  EXPECT_EQ(parse({"1", "2", "3"}), "show : unexpected word '3'");
}

TEST(Words, ManyOfThemWithFlagsBetween) {
  std::vector<std::string> jobs;
  bool array = false;
  Flags flags("cancel", "JOB…", "Ends jobs.");
  flags.add_words("JOB", jobs, "ids of jobs");
  flags.add("array", array, "the whole array");
  const auto parse = [&](std::vector<std::string> arguments) {
    jobs.clear();
    const auto parsed = flags.parse(arguments);
    return parsed ? "fine" : parsed.error().text();
  };
  EXPECT_EQ(parse({"7", "--array", "8"}), "fine");
  EXPECT_EQ(jobs, (std::vector<std::string>{"7", "8"}));
  EXPECT_TRUE(array);
  EXPECT_EQ(parse({"7", "--", "-8"}), "fine");
  EXPECT_EQ(jobs.back(), "-8");
  EXPECT_EQ(parse({"--array"}), "cancel : missing JOB");
  EXPECT_EQ(parse({"7", "--arary"}), "cancel : unknown flag '--arary'");
  EXPECT_NE(flags.help().find("ids of jobs"), std::string::npos);
}

}  // namespace
}  // namespace tutti::config
