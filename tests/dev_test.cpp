// ./dev as a newcomer meets it. Set-up is tried against stand-ins for apt and sudo: nothing is installed.
#include <filesystem>
#include <fstream>

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

// A checkout in which everything is built at once, and ctest only writes down what it is asked to run.
// Without lint: the preset is asan.
class DevTests : public Dev {
 protected:
  void SetUp() override {
    Dev::SetUp();
    for (const char* tool : {"mkdir", "ln", "rm", "find", "touch", "sha256sum", "awk", "mv"}) {
      std::filesystem::create_symlink(std::string("/usr/bin/") + tool, folder_.path() + "/" + tool);
    }
    stand_in("dpkg-query", "shift 3; for package; do echo \"installed $package\"; done");
    stand_in("apt-get", "");
    stand_in("cmake", "");
    stand_in("ctest",
             "if [[ $* == *-N* ]]; then cat \"$TMPDIR/long\"; echo \"Total Tests: $#\"; exit; fi\n"
             "words=$* && echo \"${words/ --output-junit*/}\" >\"$TMPDIR/log\"\n"
             "if [[ $* == *' --output-junit '* ]]; then cat \"$TMPDIR/times\" >\"${*: -1}\"; fi\n"
             "if [[ -f $TMPDIR/fails ]]; then mkdir -p build/asan/Testing/Temporary\n"
             "cat \"$TMPDIR/fails\" >build/asan/Testing/Temporary/LastTestsFailed.log; exit 8; fi");
    for (const char* folder : {"tools", "tests/support", "cmake", "build/asan/bin", "build/asan/lib"})
      std::filesystem::create_directories(checkout() + "/" + folder);
    for (const char* file : {"dev", "README.md", "CMakePresets.json", "tools/packages.txt", "tools/demo"})
      std::filesystem::copy(std::string(TUTTI_SOURCE_DIR "/") + file, checkout() + "/" + file);
    for (const char* file : {"build.ninja", "bin/a_test", "bin/b_test", "bin/system_test", "lib/libx.a"})
      write("build/asan/" + std::string(file), "first");
    write("tests/support/x", "");
    support::write_text(folder_.path() + "/long", "  Test #1: a_test: Some.Hour\n");
    support::write_text(folder_.path() + "/times", "");
    write("cmake/x", "");
  }

  std::string checkout() const { return folder_.path() + "/checkout"; }
  void write(const std::string& file, const std::string& text) {
    support::write_text(checkout() + "/" + file, text);
  }

  // What ctest was asked to run.
  std::string asked(std::vector<std::string> words, int exit_code = 0) {
    words.insert(words.begin(), {folder_.path() + "/bash", checkout() + "/dev", "test", "--preset", "asan"});
    const auto ran = run(words, {.env = {{"PATH", folder_.path()}, {"TMPDIR", folder_.path()}, {"CI", ""}}});
    EXPECT_EQ(ran.exit_code, exit_code) << ran.out << ran.err;
    return logged();
  }
};

TEST_F(DevTests, WhatHasPassedIsNotRunAgainUntilItChanges) {
  EXPECT_EQ(asked({}), "--preset asan\n") << "from nothing, everything";
  EXPECT_EQ(asked({}), "--preset asan -E ^(a_test|b_test|system_test):  -LE long\n");
  write("build/asan/bin/a_test", "second");
  EXPECT_EQ(asked({}), "--preset asan -E ^(b_test|system_test):  -LE long\n");
  write("build/asan/lib/libx.a", "second");
  EXPECT_EQ(asked({}), "--preset asan -E ^(a_test|b_test):  -LE long\n")
      << "the system stands on every library";
  EXPECT_EQ(asked({"--all"}), "--preset asan\n");
}

TEST_F(DevTests, WordsGoToCtest) { EXPECT_EQ(asked({"-R", "x"}), "--preset asan -R x\n"); }

TEST_F(DevTests, AfterAChangeOfMostProgramsWhatTakesMoreThanASecondIsLeft) {
  support::write_text(folder_.path() + "/times",
                      "<testcase name=\"a_test: Some.Hour\" classname=\"x\" time=\"1.5\" status=\"run\">\n"
                      "<testcase name=\"b_test: Some.Case\" classname=\"x\" time=\"0.5\" status=\"run\">\n"
                      "<testcase name=\"b_test: A.Failure\" classname=\"x\" time=\"1.5\" status=\"fail\">\n");
  asked({});
  write("build/asan/bin/a_test", "second");
  EXPECT_EQ(asked({}), "--preset asan -E ^(b_test|system_test):  -LE long\n") << "one program of three";
  write("build/asan/bin/a_test", "third");
  write("build/asan/bin/b_test", "second");
  support::write_text(folder_.path() + "/long",
                      "  Test #1: a_test: Some.Hour\n  Test #2: b_test: Some.Case\n"
                      "  Test #3: b_test: A.Failure\n  Test #4: tidy: the rooms\n");
  EXPECT_EQ(asked({}), "--preset asan -I " + checkout() + "/build/asan/chosen\n");
  EXPECT_EQ(support::read_text(checkout() + "/build/asan/chosen"), "0,0,0,2,3,4\n");
  EXPECT_EQ(asked({"--all"}), "--preset asan\n");
}

TEST_F(DevTests, WhatHasFailedIsRunAgain) {
  support::write_text(folder_.path() + "/fails", "7:b_test: Some.Case\n");
  EXPECT_EQ(asked({}, 8), "--preset asan\n");
  std::filesystem::remove(folder_.path() + "/fails");
  EXPECT_EQ(asked({}), "--preset asan -E ^(a_test|system_test): \n") << "and so are the long ones";
}

TEST_F(DevTests, ALongTestThatIsNewIsRun) {
  asked({});
  support::write_text(folder_.path() + "/long", "  Test #1: a_test: Some.Hour\n  Test #2: b_test: A.Day\n");
  write("build/asan/bin/b_test", "second");
  EXPECT_EQ(asked({}), "--preset asan -E ^(a_test|system_test): \n");
  write("build/asan/bin/b_test", "third");
  EXPECT_EQ(asked({}), "--preset asan -E ^(a_test|system_test):  -LE long\n");
}

TEST_F(DevTests, ARunThatWasCutShortProvesNothing) {
  support::write_text(folder_.path() + "/fails", "");
  asked({}, 8);
  std::filesystem::remove(folder_.path() + "/fails");
  EXPECT_EQ(asked({}), "--preset asan\n");
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
