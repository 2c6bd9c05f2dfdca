#include "node/rank/rank_folder.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "node/rank/folder_test.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

RankSpec full_spec() {
  return {.command = {"python3", "train.py", "", "a b\n"},
          .env = {"PATH=/usr/bin", "EMPTY="},
          .workdir = "/tmp",
          .cgroup = "tutti-n1-7.0.3",
          .cpus = 12,
          .memory = gib(64),
          .grace = 90s,
          .log_bytes_max = mib(8),
          .output = "/tmp/out.log",
          .checkpoints = "/shared/7",
          .has_saved = true,
          .open_files = 1024,
          .owner = "ann",
          .isolation = Isolation{.account = {.name = "ann",
                                             .uid = 1234,
                                             .gid = 1235,
                                             .groups = {1235, 44},
                                             .home = "/srv/ann",
                                             .shell = "/bin/sh"},
                                 .places = PrivatePlaces{.folder = "/var/lib/tutti/places/7.0",
                                                         .memory = "/dev/shm/tutti-7.0"},
                                 .filters_devices = true,
                                 .gpus = {"GPU-1", "GPU-2"}},
          .secrets = 3};
}

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string content_of(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

class RankFolder : public FolderTest {};

TEST_F(RankFolder, ASpecificationIsReadAsItWasWritten) {
  ASSERT_TRUE(write_spec(folder(), full_spec()));
  const auto spec = read_spec(folder());
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(*spec, full_spec());
}

TEST_F(RankFolder, AVerdictIsTextOfBoundedLength) {
  write(progress_path(folder()), "step 3/10");
  EXPECT_EQ(read_progress(folder()), "step 3/10");
  EXPECT_EQ(read_verdict(folder()), "");
  write(verdict_path(folder()), "rank 3 on node n2 died\xff");
  EXPECT_EQ(read_verdict(folder()), "rank 3 on node n2 died\xEF\xBF\xBD");
  write(verdict_path(folder()), std::string(verdict_bytes_max + 1, 'x'));
  EXPECT_EQ(read_verdict(folder()), "");
}

// What is in its hands is not believed to make its rank another one's, root's least of all.
TEST_F(RankFolder, ASpecificationThatMakesARankRootIsRefused) {
  RankSpec spec = full_spec();
  spec.isolation->account.uid = 0;
  EXPECT_FALSE(write_spec(folder(), spec));
}

TEST_F(RankFolder, WhatARankSaysInAFolderOfItsOwnIsReadThereAndNoLinkIsFollowed) {
  Account account = full_spec().isolation->account;
  account.uid = geteuid();
  account.gid = getegid();
  ASSERT_TRUE(make_said_folder(folder(), account));
  const std::string said = said_folder(folder());
  write(progress_path(said), "step 3/10");
  write(progress_path(folder()), "somebody else");
  EXPECT_EQ(read_progress(folder()), "step 3/10");
  write(path("secret"), "a secret");
  ASSERT_EQ(symlink(path("secret").c_str(), verdict_path(said).c_str()), 0);
  EXPECT_EQ(read_verdict(folder()), "");
  ASSERT_EQ(unlink(verdict_path(said).c_str()), 0);
  ASSERT_EQ(link(path("secret").c_str(), verdict_path(said).c_str()), 0);
  EXPECT_EQ(read_verdict(folder()), "") << "another name of somebody's file";
  write(progress_path(said), std::string(verdict_bytes_max + 1, 'x'));
  EXPECT_EQ(read_progress(folder()), "");
}

TEST_F(RankFolder, AMissingSpecificationIsAFailure) { EXPECT_FALSE(read_spec(folder())); }

TEST_F(RankFolder, SpecificationsOfTheVersionsBeforeAreRead) {
  RankSpec spec = full_spec();
  spec.isolation.reset();
  ASSERT_TRUE(write_spec(folder(), spec));
  std::string content = content_of(path("spec"));
  const auto expect_read_as = [&](const char* version) {
    content.replace(std::string_view("tutti rank ").size(), 1, version);
    write(path("spec"), content);
    const auto read_back = read_spec(folder());
    ASSERT_TRUE(read_back.ok()) << read_back.error().text();
    EXPECT_EQ(*read_back, spec);
  };
  content.resize(content.size() - sizeof(std::int64_t));
  spec.secrets = 0;
  expect_read_as("5");
  content.resize(content.size() - sizeof(std::int64_t));
  expect_read_as("4");
  content.resize(content.size() - sizeof(std::int64_t) - spec.owner.size());
  spec.owner.clear();
  expect_read_as("3");
  content.resize(content.size() - 2 * sizeof(std::int64_t));
  spec.has_saved = false;
  spec.open_files = 0;
  expect_read_as("2");
}

// Every length but the right one, and garbage in the place of each byte of the lengths and the mark.
TEST_F(RankFolder, ADamagedSpecificationIsRefused) {
  ASSERT_TRUE(write_spec(folder(), full_spec()));
  const std::string whole = content_of(path("spec"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(path("spec"), whole.substr(0, length));
    ASSERT_FALSE(read_spec(folder())) << length;
  }
  write(path("spec"), whole + "x");
  EXPECT_FALSE(read_spec(folder()));
  for (std::size_t at = 0; at < 21; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    write(path("spec"), damaged);
    ASSERT_FALSE(read_spec(folder())) << at;
  }
}

TEST_F(RankFolder, AnOversizedSpecificationIsRefused) {
  RankSpec spec = full_spec();
  spec.env.push_back("BIG=" + std::string(spec_bytes_max, 'x'));
  EXPECT_FALSE(write_spec(folder(), spec));
  write(path("spec"), std::string(spec_bytes_max + 1, 'x'));
  const auto read_back = read_spec(folder());
  ASSERT_FALSE(read_back);
  EXPECT_NE(read_back.error().text().find("larger than"), std::string::npos);
}

TEST_F(RankFolder, ASpecificationThatNoShimCouldFollowIsRefused) {
  const auto refused = [this](auto change) {
    RankSpec spec = full_spec();
    change(spec);
    return !write_spec(folder(), spec).ok();
  };
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.command.clear(); }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.command[1] = std::string("a\0b", 3); }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.env[0] = "no equals sign"; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.env[0] = ""; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.workdir = ""; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.cgroup = "../../etc"; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.cgroup = ".."; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.cpus = -1; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.memory = Bytes(-1); }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.grace = -1s; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.open_files = -1; }));
  EXPECT_TRUE(refused([](RankSpec& spec) { spec.log_bytes_max = Bytes(0); }));
}

TEST_F(RankFolder, AnExitIsReadAsItWasWritten) {
  const auto before = read_exit(folder());
  ASSERT_TRUE(before);
  EXPECT_FALSE(*before);
  ASSERT_TRUE(write_exit(folder(), {.exit_code = 137, .detail = "two\nlines"}));
  const auto exit = read_exit(folder());
  ASSERT_TRUE(exit && *exit);
  EXPECT_EQ(**exit, (RankExit{.exit_code = 137, .detail = "two\nlines"}));
  const RankExit fault{.exit_code = 126, .detail = "not mounted", .node_fault = true};
  ASSERT_TRUE(write_exit(folder(), fault));
  EXPECT_EQ(**read_exit(folder()), fault);
  const RankExit signalled{.exit_code = 137, .detail = "", .by_signal = true};
  ASSERT_TRUE(write_exit(folder(), signalled));
  EXPECT_EQ(**read_exit(folder()), signalled);
  const RankExit missing{.exit_code = 127, .detail = "not there", .no_program = true};
  ASSERT_TRUE(write_exit(folder(), missing));
  EXPECT_EQ(**read_exit(folder()), missing);
  write(path("exit"), "137\n");
  EXPECT_EQ(**read_exit(folder()), (RankExit{.exit_code = 137, .detail = ""})) << "of an earlier version";
  write(path("exit"), "1000\nforged");
  EXPECT_FALSE(read_exit(folder()));
  write(path("exit"), "not a number\n");
  EXPECT_FALSE(read_exit(folder()));
}

TEST_F(RankFolder, AShimIsReadAsItWasWritten) {
  const auto before = read_shim(folder());
  ASSERT_TRUE(before);
  EXPECT_FALSE(*before);
  ASSERT_TRUE(write_shim(folder(), {.pid = 42, .start_time = 77}));
  const auto shim = read_shim(folder());
  ASSERT_TRUE(shim && *shim);
  EXPECT_EQ(**shim, (ShimProcess{.pid = 42, .start_time = 77}));
  for (const std::string damaged : {"", "42", "-1 77", "42 77 1", "x y"}) {
    write(path("shim"), damaged);
    EXPECT_FALSE(read_shim(folder())) << damaged;
  }
}

TEST_F(RankFolder, ACopyHasNotTheShimOfItsOriginal) {
  ASSERT_TRUE(write_shim(folder(), {.pid = 42, .start_time = 77}));
  const std::string copy = folder() + ".copy";
  std::filesystem::copy(folder(), copy);
  const auto shim = take_over(copy);
  ASSERT_TRUE(shim);
  EXPECT_FALSE(*shim);
  std::filesystem::remove_all(copy);
  write(path("shim"), "42 77\n");  // as earlier versions wrote it
  const auto earlier = read_shim(folder());
  ASSERT_TRUE(earlier && *earlier);
}

TEST_F(RankFolder, ATakeOverFindsTheShimOrKeepsALateOneOut) {
  const auto none = take_over(folder());
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  EXPECT_TRUE(is_given_up(folder()));
}

TEST_F(RankFolder, ATakeOverDoesNotGiveUpARankThatHasItsShim) {
  ASSERT_TRUE(write_shim(folder(), {.pid = 42, .start_time = 77}));
  const auto shim = take_over(folder());
  ASSERT_TRUE(shim && *shim);
  EXPECT_EQ(**shim, (ShimProcess{.pid = 42, .start_time = 77}));
  EXPECT_FALSE(is_given_up(folder()));
}

TEST(IsAlive, TellsAProcessFromALaterOneOfTheSamePid) {
  const auto status = read_process(getpid());
  ASSERT_TRUE(status);
  EXPECT_TRUE(is_alive({.pid = getpid(), .start_time = status->start_time}));
  EXPECT_FALSE(is_alive({.pid = getpid(), .start_time = status->start_time - 1}));
}

TEST(IsAlive, AProcessThatEndedAndWaitsToBeReapedIsNot) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto status = read_process(child);
  ASSERT_TRUE(status);
  const ShimProcess shim{.pid = child, .start_time = status->start_time};
  EXPECT_TRUE(is_alive(shim));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(is_alive(shim));
  EXPECT_TRUE(is_gone(shim));
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_alive(shim));
  EXPECT_TRUE(is_gone(shim));
}

// Somebody who runs would be taken for one that has ended, and what he has be given to others.
TEST(IsGone, WhoCannotBeLookedAtIsNot) {
  const auto status = read_process(getpid());
  ASSERT_TRUE(status);
  const ShimProcess self{.pid = getpid(), .start_time = status->start_time};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool alive = is_alive(self);
  const bool gone = is_gone(self);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(alive) << "nor is it known to live";
  EXPECT_FALSE(gone);
  EXPECT_FALSE(is_gone(self));
  EXPECT_TRUE(is_gone({.pid = getpid(), .start_time = status->start_time - 1})) << "another one";
  EXPECT_TRUE(is_gone({}));
}

}  // namespace
}  // namespace tutti::rank
