// ./dev as a newcomer meets it. Set-up is tried against stand-ins for apt and sudo: nothing is installed.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "support/process.hpp"

namespace tutti {
namespace {

using support::Finished;
using support::run;

const std::string dev_script = TUTTI_SOURCE_DIR "/dev";

// A PATH with the ordinary tools and the stand-ins of a test, and nothing else.
class Dev : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* tool :
         {"bash", "env", "sed", "xargs", "comm", "sort", "dirname", "cat", "grep", "echo", "id"}) {
      for (const char* bin : {"/usr/bin/", "/bin/"}) {
        const std::string from = std::string(bin) + tool;
        if (!std::filesystem::exists(from)) continue;
        std::filesystem::create_symlink(from, folder_.path() + "/" + tool);
        break;
      }
    }
  }

  void stand_in(const std::string& name, const std::string& script) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << "#!/usr/bin/env bash\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  Finished dev(const std::vector<std::string>& words) {
    std::vector<std::string> command{folder_.path() + "/bash", dev_script};
    command.insert(command.end(), words.begin(), words.end());
    return run(command, {.env = {{"PATH", folder_.path()}, {"TMPDIR", folder_.path()}}, .stdout_to = ""});
  }

  std::string logged() const {
    std::ifstream file(folder_.path() + "/log");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  support::TempFolder folder_;
};

// A checkout in which everything is built at once; ctest and the programs of tests only write down what they
// are asked to run. Without lint: the preset is asan.
class DevTests : public Dev {
 protected:
  void SetUp() override {
    Dev::SetUp();
    for (const char* tool :
         {"mkdir", "ln", "rm", "find", "touch", "sha256sum", "awk", "mv", "cmp", "paste", "timeout"}) {
      std::filesystem::create_symlink(std::string("/usr/bin/") + tool, folder_.path() + "/" + tool);
    }
    stand_in("dpkg-query", "shift 3; for package; do echo \"installed $package\"; done");
    stand_in("apt-get", "");
    stand_in("cmake", "");
    stand_in("ctest",
             "if [[ $* == *'-N -L long' ]]; then cat \"$TMPDIR/long\"; exit; fi\n"
             "if [[ $* == *-N* ]]; then cat \"$TMPDIR/tests\"; exit; fi\n"
             "while (($#)); do case $1 in\n"
             "  -I) echo \"cases $(<\"$2\")\" >>\"$TMPDIR/log\" ;;\n"
             "  -R) echo \"-R $2\" >>\"$TMPDIR/log\" ;;\n"
             "  --output-junit) cat \"$TMPDIR/times\" >\"$2\" ;;\n"
             "esac; shift; done\n"
             "if [[ -f $TMPDIR/fails ]]; then mkdir -p build/asan/Testing/Temporary\n"
             "cat \"$TMPDIR/fails\" >build/asan/Testing/Temporary/LastTestsFailed.log; exit 8; fi");
    for (const char* folder : {"tools", "tests/support", "cmake", "build/asan/bin", "build/asan/lib"})
      std::filesystem::create_directories(checkout() + "/" + folder);
    for (const char* file : {"dev", "README.md", "CMakePresets.json", "tools/packages.txt", "tools/demo"})
      std::filesystem::copy(std::string(TUTTI_SOURCE_DIR "/") + file, checkout() + "/" + file);
    for (const char* file : {"build.ninja", "lib/libx.a"}) write("build/asan/" + std::string(file), "first");
    for (const char* name : {"a_test", "b_test", "system_test"}) change(name);
    write("tests/support/x", "");
    write("cmake/x", "");
    support::write_text(
        folder_.path() + "/tests",
        "  Test #1: a_test: Some.Hour\n  Test #2: a_test: Some.Case\n  Test #3: b_test: Some.Case\n"
        "  Test #4: system_test: Some.Case\n  Test #5: fuzz_x: the corpus\n"
        "  Test #6: b_test: Some.Seconds\n  Test #7: system_test: Some.Seconds\n");
    support::write_text(folder_.path() + "/long", "  Test #1: a_test: Some.Hour\n");
    support::write_text(
        folder_.path() + "/times",
        "<testcase name=\"b_test: Some.Seconds\" classname=\"x\" time=\"1.5\" status=\"run\">\n"
        "<testcase name=\"b_test: Some.Case\" classname=\"x\" time=\"0.5\" status=\"run\">\n"
        "<testcase name=\"system_test: Some.Seconds\" classname=\"x\" time=\"1.5\" status=\"run\">\n"
        "<testcase name=\"a_test: Some.Case\" classname=\"x\" time=\"1.5\" status=\"fail\">\n");
  }

  std::string checkout() const { return folder_.path() + "/checkout"; }
  void write(const std::string& file, const std::string& text) {
    support::write_text(checkout() + "/" + file, text);
  }
  // Another program of that name, which writes down how it is run.
  void change(const std::string& program, int exit_code = 0) {
    const std::string path = checkout() + "/build/asan/bin/" + program;
    support::write_text(path, "#!/bin/bash\necho \"${0##*/} $*\" >>\"$TMPDIR/log\"\nexit " +
                                  std::to_string(exit_code) + " # " + std::to_string(++changes_) + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  // What was run, in the order of the alphabet.
  std::vector<std::string> asked(std::vector<std::string> words, int exit_code = 0) {
    std::filesystem::remove(folder_.path() + "/log");
    words.insert(words.begin(), {folder_.path() + "/bash", checkout() + "/dev", "test", "--preset", "asan"});
    const auto ran = run(
        words, {.env = {{"PATH", folder_.path()}, {"TMPDIR", folder_.path()}, {"CI", ci_}}, .stdout_to = ""});
    EXPECT_EQ(ran.exit_code, exit_code) << ran.out << ran.err;
    said_ = ran.out + ran.err;
    std::istringstream text(logged());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  int changes_ = 0;
  std::string ci_;
  std::string said_;  // by the last one
};

using Lines = std::vector<std::string>;
const Lines everything{"cases 0,0,0,1,2,3,4,5,6,7"};

// How a program is run in one process, without some of its cases.
std::string whole(const std::string& program, const std::string& without = "") {
  return program + " --gtest_brief=1 --gtest_output=xml:passed/" + program + ".xml" +
         (without.empty() ? "" : " --gtest_filter=-" + without);
}

TEST_F(DevTests, WhatHasPassedIsNotRunAgainUntilItChanges) {
  EXPECT_EQ(asked({}), everything) << "from nothing, a process for each case";
  EXPECT_EQ(asked({}), Lines{"cases 0,0,0,5"});
  change("a_test");
  EXPECT_EQ(asked({}), (Lines{whole("a_test", "Some.Hour"), "cases 0,0,0,5"}));
  write("build/asan/lib/libx.a", "second");
  EXPECT_EQ(asked({}), Lines{"cases 0,0,0,4,5"}) << "the system stands on every library";
  EXPECT_EQ(asked({"--all"}), everything);
}

TEST_F(DevTests, OfTheSystemWhatTakesMoreThanASecondIsLeftUntilOneIsEdited) {
  asked({});
  write("build/asan/lib/libx.a", "second");
  EXPECT_EQ(asked({}), Lines{"cases 0,0,0,4,5"});
  write("tests/support/x", "second");
  EXPECT_EQ(asked({}), Lines{"cases 0,0,0,4,5,7"});
  write("build/asan/lib/libx.a", "third");
  EXPECT_EQ(asked({}), Lines{"cases 0,0,0,4,5"});
}

TEST_F(DevTests, WordsGoToCtest) { EXPECT_EQ(asked({"-R", "x"}), Lines{"-R x"}); }

TEST_F(DevTests, AfterAChangeOfMostProgramsWhatTakesMoreThanASecondIsLeft) {
  asked({});
  change("b_test");
  EXPECT_EQ(asked({}), (Lines{whole("b_test"), "cases 0,0,0,5"})) << "one program of three";
  change("a_test");
  change("b_test");
  EXPECT_EQ(asked({}),
            (Lines{whole("a_test", "Some.Hour"), whole("b_test", "Some.Seconds"), "cases 0,0,0,5"}));
  EXPECT_EQ(asked({"--all"}), everything);
}

TEST_F(DevTests, WhatHasFailedIsRunAgain) {
  support::write_text(folder_.path() + "/fails", "3:b_test: Some.Case\n");
  EXPECT_EQ(asked({}, 8), everything);
  std::filesystem::remove(folder_.path() + "/fails");
  EXPECT_EQ(asked({}), (Lines{whole("b_test"), "cases 0,0,0,5"}));
  change("b_test", 1);
  for (int turn = 0; turn < 2; ++turn) EXPECT_EQ(asked({}, 1), (Lines{whole("b_test"), "cases 0,0,0,5"}));
  change("b_test");
  asked({});
  EXPECT_EQ(asked({}), Lines{"cases 0,0,0,5"});
}

TEST_F(DevTests, ALongTestThatIsNewIsRun) {
  asked({});
  support::write_text(folder_.path() + "/long",
                      "  Test #1: a_test: Some.Hour\n  Test #3: b_test: Some.Case\n");
  change("b_test");
  EXPECT_EQ(asked({}), (Lines{whole("b_test"), "cases 0,0,0,5"}));
  change("b_test");
  EXPECT_EQ(asked({}), (Lines{whole("b_test", "Some.Case"), "cases 0,0,0,5"}));
}

TEST_F(DevTests, WhatIsSkippedIsToldAndALongTestThatIsSkippedHasNotPassed) {
  support::write_text(
      folder_.path() + "/times",
      "<testcase name=\"a_test: Some.Hour\" classname=\"x\" time=\"0.1\" status=\"notrun\">\n");
  asked({});
  EXPECT_NE(said_.find("dev: skipped, 1 in all:\n  a_test: Some.Hour\n"), std::string::npos) << said_;
  write("build/asan/passed/slow", "b_test: Some.Seconds\n");
  support::write_text(folder_.path() + "/times", "");
  support::write_text(checkout() + "/build/asan/bin/a_test",
                      "#!/bin/bash\necho \"${0##*/} $*\" >>\"$TMPDIR/log\"\n"
                      "echo '<testcase name=\"Hour\" status=\"run\" result=\"skipped\" time=\"0\" "
                      "classname=\"Some\">' >passed/a_test.xml\n");
  EXPECT_EQ(asked({}), (Lines{whole("a_test"), "cases 0,0,0,5"})) << "the long one, too";
  EXPECT_NE(said_.find("dev: skipped, 1 in all:\n  a_test: Some.Hour\n"), std::string::npos) << said_;
  change("a_test");
  EXPECT_EQ(asked({}), (Lines{whole("a_test"), "cases 0,0,0,5"}));
  EXPECT_EQ(said_.find("skipped"), std::string::npos) << said_;
  change("a_test");
  EXPECT_EQ(asked({}), (Lines{whole("a_test", "Some.Hour"), "cases 0,0,0,5"})) << "it has passed by now";
}

TEST_F(DevTests, WhereAllCanRunWhatMayBeSkippedIsListedWithAReason) {
  if (geteuid() != 0) GTEST_SKIP() << "root alone can run everything";
  ci_ = "true";
  support::write_text(
      folder_.path() + "/times",
      "<testcase name=\"b_test: Some.Case\" classname=\"x\" time=\"0.1\" status=\"notrun\">\n");
  asked({}, 1);
  EXPECT_NE(said_.find("may not be skipped here:\nb_test: Some.Case\n"), std::string::npos) << said_;
  write("tests/may_skip", "# what may be skipped\nb_test: Some.Case\n");
  asked({}, 1);
  write("tests/may_skip", "# what may be skipped\nb_test: Some.Case  # needs a second moon\n");
  asked({});
  EXPECT_NE(said_.find("dev: skipped, 1 in all:\n  b_test: Some.Case\n"), std::string::npos) << said_;
}

TEST_F(DevTests, ARunThatWasCutShortProvesNothing) {
  support::write_text(folder_.path() + "/fails", "");
  asked({}, 8);
  std::filesystem::remove(folder_.path() + "/fails");
  EXPECT_EQ(asked({}), everything);
}

TEST_F(Dev, HelpExplainsEachCommandInALine) {
  const auto help = dev({"help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"setup", "build", "test", "bench", "demo", "lint", "format", "clean", "help"}) {
    EXPECT_NE(help.out.find("\n  " + std::string(command) + " "), std::string::npos) << command;
  }
}

TEST_F(Dev, UnknownWordsAreWrongUsage) {
  EXPECT_EQ(dev({"biuld"}).exit_code, 2);
  EXPECT_EQ(dev({"build", "fast"}).exit_code, 2);
  EXPECT_EQ(dev({"bench", "nothing"}).exit_code, 2);
}

TEST_F(Dev, SetupWithoutAptPrintsTheListAndStops) {
  const auto setup = dev({"setup"});
  EXPECT_EQ(setup.exit_code, 1);
  EXPECT_NE(setup.err.find("no apt here"), std::string::npos) << setup.err;
  EXPECT_NE(setup.err.find("\n  libtorch-dev\n"), std::string::npos) << setup.err;
  EXPECT_EQ(dev({"test"}).exit_code, 1) << "nothing is built where set-up cannot be done";
}

TEST_F(Dev, SetupInstallsWhatIsMissingAndSaysSo) {
  stand_in("dpkg-query",
           "shift 3; for package; do [[ $package == mold ]] || echo \"installed $package\"; done; exit 1");
  stand_in("apt-get", "echo \"apt-get $*\" >>\"$TMPDIR/log\"");
  stand_in("sudo", "echo sudo >>\"$TMPDIR/log\"; exec \"$@\"");
  const auto setup = dev({"setup"});
  EXPECT_EQ(setup.exit_code, 0) << setup.err;
  EXPECT_EQ(setup.out, "dev: installing mold\n");
  EXPECT_NE(logged().find("install -y -qq --no-install-recommends mold\n"), std::string::npos) << logged();
}

TEST_F(Dev, TheDemoWaitsForNoToolsOfTheTests) {
  stand_in("dpkg-query", "exit 1");
  stand_in("apt-get", "echo \"apt-get $*\" >>\"$TMPDIR/log\"; exit 100");
  stand_in("sudo", "exec \"$@\"");
  EXPECT_NE(dev({"demo"}).exit_code, 0);
  EXPECT_NE(dev({"setup", "programs"}).out.find(" libtorch-dev "), std::string::npos);
  EXPECT_EQ(dev({"setup", "programs"}).out.find("clang-tidy"), std::string::npos);
  EXPECT_EQ(dev({"demo"}).out.find("clang-tidy"), std::string::npos);
  EXPECT_NE(dev({"build"}).out.find("clang-tidy"), std::string::npos);
  EXPECT_EQ(dev({"setup", "everything"}).exit_code, 2);
}

// A nodejs of another maker holds npm, and Debian's cannot be installed beside it.
TEST_F(Dev, WhatAnotherPackageBringsAlongIsNotMissing) {
  stand_in("dpkg-query",
           "shift 2; format=$1; shift\n"
           "if [[ $format == *Provides* ]]; then echo 'installed nodejs-dev, mold (= 1.2), npm'; exit; fi\n"
           "for package; do [[ $package == mold || $package == npm ]] || echo \"installed $package\"; done; "
           "exit 1");
  stand_in("apt-get", "echo called >>\"$TMPDIR/log\"");
  const auto setup = dev({"setup"});
  EXPECT_EQ(setup.exit_code, 0) << setup.err;
  EXPECT_EQ(setup.out + setup.err + logged(), "");
}

TEST_F(Dev, SetupDoesNothingWhenNothingIsMissing) {
  stand_in("dpkg-query", "shift 3; for package; do echo \"installed $package\"; done");
  stand_in("apt-get", "echo called >>\"$TMPDIR/log\"");
  const auto setup = dev({"setup"});
  EXPECT_EQ(setup.exit_code, 0) << setup.err;
  EXPECT_EQ(setup.out + setup.err + logged(), "");
}

TEST_F(Dev, AFailedInstallStopsTheBuild) {
  stand_in("dpkg-query", "exit 1");
  stand_in("apt-get", "echo 'E: Unable to locate package' >&2; exit 100");
  stand_in("sudo", "exec \"$@\"");
  const auto build = dev({"build"});
  EXPECT_NE(build.exit_code, 0);
  EXPECT_NE(build.err.find("Unable to locate package"), std::string::npos) << build.err;
}

}  // namespace
}  // namespace tutti
