// The command line as a user meets it: what is printed where, and with which exit code.
#include <gtest/gtest.h>

#include "support/process.hpp"

namespace tutti {
namespace {

using support::run;
using support::tutti_program;

TEST(Cli, TellsItsVersion) {
  const auto version = run({tutti_program, "--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.find("tutti 0."), 0U) << version.out;
  EXPECT_EQ(version.err, "");
  const auto json = run({tutti_program, "version", "--json"});
  EXPECT_EQ(json.out.find("{\"version\":\"0."), 0U) << json.out;
}

TEST(Cli, HelpListsCommandsAndExplainsOne) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{tutti_program},
                                                {tutti_program, "help"},
                                                {tutti_program, "--help"},
                                                {tutti_program, "-h"}}) {
    const auto help = run(words);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("\n  version "), std::string::npos) << help.out;
  }
  const auto by_word = run({tutti_program, "help", "version"});
  const auto by_flag = run({tutti_program, "version", "--help"});
  EXPECT_EQ(by_word.exit_code, 0);
  EXPECT_EQ(by_word.out.find("usage: tutti version\n"), 0U) << by_word.out;
  EXPECT_EQ(by_word.out, by_flag.out);
}

TEST(Cli, WrongUsageNamesTheNearestMatch) {
  const auto command = run({tutti_program, "verison"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_EQ(command.out, "");
  EXPECT_EQ(command.err,
            "tutti: unknown command 'verison' : there is no such command\n  did you mean 'version'?\n");
  const auto unlike = run({tutti_program, "frobnicate"});
  EXPECT_EQ(
      unlike.err,
      "tutti: unknown command 'frobnicate' : there is no such command\n  `tutti help` lists all commands\n");
  const auto flag = run({tutti_program, "version", "--jsno"});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_EQ(flag.err, "tutti: version : unknown flag '--jsno'\n  did you mean '--json'?\n");
  const auto early = run({tutti_program, "--verison"});
  EXPECT_EQ(early.exit_code, 2);
  EXPECT_NE(early.err.find("did you mean '--version'?"), std::string::npos) << early.err;
  EXPECT_EQ(run({tutti_program, "help", "verison"}).exit_code, 2);
  EXPECT_EQ(run({tutti_program, "version", "extra"}).exit_code, 2);
  EXPECT_EQ(run({tutti_program, "version", "--log-level", "loud"}).exit_code, 2);
}

TEST(Cli, TheApiIsThatOfTheControllerOrOfAnEngine) {
  for (const auto& [program, page] : {std::pair<std::string, std::string>{"controller", "GET /jobs"},
                                      {"engine", "POST [/openai]/v1/completions"},
                                      {"script", "GET /v2/health/live"}}) {
    const auto listed = run({tutti_program, "api", program, "--markdown"});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_NE(listed.out.find("\n| `" + page), std::string::npos) << listed.out;
  }
  const auto wrong = run({tutti_program, "api", "jobs"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.err,
            "tutti: command line : 'jobs' answers nothing\n"
            "  the requests are those of controller, engine, script or gateway\n");
}

TEST(Cli, AFullDiskIsAFailureAndSaysSo) {
  const auto full = run({tutti_program, "--version"}, {.env = {}, .stdout_to = "/dev/full"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.err, "tutti: standard output : cannot be written: No space left on device\n");
}

TEST(Cli, TuttiNeverLinksLibtorch) {
  const auto needed = run({"readelf", "-d", tutti_program});
  ASSERT_EQ(needed.exit_code, 0) << needed.err;
  EXPECT_NE(needed.out.find("NEEDED"), std::string::npos);
  EXPECT_EQ(needed.out.find("libtorch"), std::string::npos) << needed.out;
  EXPECT_EQ(needed.out.find("libc10"), std::string::npos) << needed.out;
}

TEST(Worker, ChecksItsDevices) {
  const std::string worker = TUTTI_BUILD_DIR "/bin/tutti-worker";
  if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
  const auto check = run({worker, "check"});
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_NE(check.out.find("matrix products are exact on cpu"), std::string::npos) << check.out;
  const auto wrong = run({worker, "chekc"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.err, "tutti-worker: command line : unknown word 'chekc'\n  did you mean 'check'?\n");
}

TEST(Worker, RefusesNumbersThatAreNone) {
  const std::string worker = TUTTI_BUILD_DIR "/bin/tutti-worker";
  if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
  for (const char* bytes : {"many", "5x", "", "-1", "1.5", "99999999999999999999"}) {
    const auto wrong = run({worker, "train", "/nowhere", bytes});
    EXPECT_EQ(wrong.exit_code, 78) << wrong.err;
    EXPECT_EQ(wrong.err, "tutti-worker: command line : '" + std::string(bytes) + "' cannot be BYTES\n");
  }
}

// The build itself: what a module does not declare, it cannot include.
TEST(Build, AnUndeclaredIncludeDoesNotCompile) {
  const auto compiles = [&](const std::string& header) {
    const std::string command = "echo '#include \"" + header +
                                "\"' | " TUTTI_CXX " -std=c++20 -fsyntax-only -I" TUTTI_BUILD_DIR
                                "/include/tutti_base -x c++ -";
    return run({"bash", "-c", command}).exit_code == 0;
  };
  EXPECT_TRUE(compiles("base/result.hpp"));
  EXPECT_FALSE(compiles("config/flags.hpp"));
  EXPECT_FALSE(compiles("hash/hash.hpp"));
}

}  // namespace
}  // namespace tutti
