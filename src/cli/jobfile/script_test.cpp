#include "cli/jobfile/script.hpp"

#include <gtest/gtest.h>

namespace tutti::jobfile {
namespace {

using Words = std::vector<std::string>;

Words words(std::string_view line) {
  auto split = split_words(line);
  return split ? *split : Words{split.error().message()};
}

std::string why_script(std::string_view text) {
  const auto file = parse_script(text, "train.sh");
  return file ? "fine" : file.error().text();
}

TEST(SplitWords, LikeAShell) {
  EXPECT_EQ(words("  --a b\t--c=d "), (Words{"--a", "b", "--c=d"}));
  EXPECT_EQ(words("--name='a \"b' \"c 'd\" e\\ f \"g\\\"h\" ''"),
            (Words{"--name=a \"b", "c 'd", "e f", "g\"h", ""}));
  EXPECT_EQ(words("--a 1 # why"), (Words{"--a", "1"}));
  EXPECT_EQ(words("--a=#1 a#b"), (Words{"--a=#1", "a#b"}));
  EXPECT_EQ(words("a\\"), (Words{"a\\"}));
  EXPECT_EQ(words(""), Words{});
  EXPECT_EQ(words("'a"), (Words{"a quote is not closed"}));
}

TEST(Script, IsTheCommandOfEveryRank) {
  const std::string text =
      "#!/bin/bash\n"
      "# trains the model\n"
      "#TUTTI --ranks 4 --time 2h   # a long one\n"
      "\n"
      "#TUTTI --env A=1 --env 'B=x y'\n"
      "  # indented\n"
      "python3 train.py \"$@\"\n";
  const auto file = parse_script(text, "train.sh");
  ASSERT_TRUE(file.ok()) << file.error().text();
  const auto specs = file->draft.finish();
  ASSERT_TRUE(specs.ok()) << specs.error().text();
  const auto& spec = specs->front();
  EXPECT_EQ(spec.name, "train.sh");
  EXPECT_EQ(spec.command, (Words{"bash", "-c", text, "train.sh"}));
  EXPECT_EQ(spec.shape.ranks, 4);
  EXPECT_EQ(spec.time_limit, 2h);
  EXPECT_EQ(spec.env, (Words{"A=1", "B=x y"}));
  EXPECT_FALSE(spec.slurm_variables);
  EXPECT_TRUE(file->warnings.empty());
}

TEST(Script, Shells) {
  const auto shell = [](const std::string& first_line) {
    const auto file = parse_script(first_line + "\ntrue\n", "x.sh");
    if (!file) return Words{file.error().text()};
    return Words(file->draft.command.begin(), file->draft.command.end() - 3);
  };
  EXPECT_EQ(shell("#!/bin/bash"), Words{"bash"});
  EXPECT_EQ(shell("#! /bin/sh"), Words{"sh"});
  EXPECT_EQ(shell("#!/usr/bin/env bash"), Words{"bash"});
  EXPECT_EQ(shell("#!/usr/bin/env -S bash -eu"), (Words{"bash", "-eu"}));
  EXPECT_EQ(shell("#!/bin/bash -l -e"), (Words{"bash", "-l", "-e"}));
  EXPECT_EQ(shell("true"), Words{"bash"});
  EXPECT_EQ(shell("#!/usr/bin/python3"),
            Words{"x.sh:1 : 'python3' is not a shell, and only a shell's script is a job"});
  EXPECT_EQ(shell("#!"), Words{"x.sh:1 : '' is not a shell, and only a shell's script is a job"});
  EXPECT_EQ(parse_script("#!/usr/bin/env python3\n", "train.py").error().remedy(),
            "run it as a command: tutti run --sync . -- python3 train.py");
}

TEST(Script, TuttiLinesHoldOverSlurmLines) {
  const auto file = parse_script("#!/bin/bash\n#TUTTI --ranks 2\n#SBATCH -n 4 -t 10\necho\n", "a.sh");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->draft.rank_counts, std::vector<std::int32_t>{2});
  EXPECT_EQ(file->draft.time_limit, 10min);
  EXPECT_TRUE(file->draft.slurm_variables);
}

TEST(Script, LinesThatAreNoFlags) {
  EXPECT_EQ(
      why_script("#!/bin/bash\n##SBATCH --bad\n# SBATCH --bad\n#SBATCHX --bad\n#TUTTIX\n#TUTTI\n#SBATCH\n"),
      "fine");
}

TEST(Script, LinesBelowTheTopAreNotRead) {
  const auto file = parse_script("#!/bin/bash\necho\n#SBATCH --bad\n#TUTTI --bad\n", "a.sh");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->warnings, (Words{"a.sh:3: #SBATCH : not read, because it stands below the first command",
                                   "a.sh:4: #TUTTI : not read, because it stands below the first command"}));
  EXPECT_FALSE(file->draft.slurm_variables);
}

TEST(Script, SrunGetsAWarning) {
  const auto file = parse_script("#!/bin/bash\n#SBATCH -n 2\nsrun a\nif true; then\n  srun b\nfi\n", "a.sh");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->warnings,
            (Words{"a.sh:3: srun : every rank runs this script already; write the command without srun",
                   "a.sh:5: srun : every rank runs this script already; write the command without srun"}));
  EXPECT_TRUE(parse_script("#!/bin/bash\nsrun a\n", "a.sh")->warnings.empty());
}

TEST(Script, ErrorsNameFileLineAndFlag) {
  EXPECT_EQ(why_script("#!/bin/bash\n\n#TUTTI --ranks four\n"),
            "train.sh:3: --ranks : 'four' is not a whole number");
  EXPECT_EQ(why_script("#!/bin/bash\n#TUTTI --rnaks 4\n"), "train.sh:2 : unknown flag '--rnaks'");
  EXPECT_EQ(parse_script("#TUTTI --rnaks 4\n", "a.sh").error().remedy(), "did you mean '--ranks'?");
  EXPECT_EQ(why_script("#TUTTI ranks\n"), "train.sh:1 : unexpected word 'ranks'");
  EXPECT_EQ(parse_script("#TUTTI ranks\n", "a.sh").error().remedy(), "`tutti help run` explains the flags");
  EXPECT_EQ(why_script("#TUTTI --help\n"), "train.sh:1 : unknown flag '--help'");
  EXPECT_EQ(why_script("#TUTTI --env A\n"), "train.sh:1: --env : 'A' is not of the form K=V");
  EXPECT_EQ(why_script("#TUTTI --after A\n"), "train.sh:1: --after : 'A' is not the number of a job");
  EXPECT_EQ(why_script("#TUTTI --after-success A\n"),
            "train.sh:1: --after-success : 'A' is not the number of a job");
  EXPECT_EQ(why_script("#TUTTI --name 'a\n"), "train.sh:1 : a quote is not closed");
}

TEST(Script, TheTextIsBounded) {
  EXPECT_EQ(why_script(""), "train.sh : the script is empty");
  EXPECT_EQ(why_script(std::string_view("#!/bin/sh\n\0", 11)), "train.sh : this is not a text file");
  EXPECT_EQ(why_script("#!/bin/bash\r\necho\r\n"),
            "train.sh:1 : the lines end as on Windows, which a shell does not read");
  EXPECT_EQ(why_script("#!/bin/bash\n" + std::string(131072, '#')),
            "train.sh : the script is larger than 128 KiB, the most that Linux passes to a shell");
  std::string many;
  for (int line = 0; line < 1001; ++line) many += "#TUTTI\n";
  EXPECT_EQ(why_script(many), "train.sh:1001 : more than 1000 lines of flags");
}

}  // namespace
}  // namespace tutti::jobfile
