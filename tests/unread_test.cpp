// What a command says finds nobody who reads it, or no room; and what it is told is not what it asked for.
#include <thread>

#include <gtest/gtest.h>

#include "net/http/server.hpp"
#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::has;
using support::read_text;
using support::TestCluster;

class Unread : public testing::Test {
 protected:
  // The exit code of `tutti WORDS | READER`: that of tutti, "" if it did not end.
  std::string piped(const std::string& words, const std::string& reader) {
    const auto done =
        support::run({"sh", "-c", "{ \"$0\" " + words + "; echo $? >\"$1.code\"; } 2>\"$1.err\" | " + reader,
                      support::tutti_program, cluster_.file("piped")},
                     {.env = cluster_.env(), .stdout_to = "", .timeout = 60s});
    EXPECT_FALSE(done.timed_out) << words;
    return done.timed_out ? "" : read_text(cluster_.file("piped.code"));
  }
  std::string said() const { return read_text(cluster_.file("piped.err")); }
  support::Finished to_a_full_disk(std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = cluster_.env(), .stdout_to = "/dev/full", .timeout = 60s});
  }

  TestCluster cluster_;
};

// They end as `tail -f` does: nobody waits for a job on behalf of a reader that has gone.
TEST_F(Unread, WhoFollowsAQuietJobForNobodyLeaves) {
  const std::string id = cluster_.submit({}, "sleep 600");
  EXPECT_EQ(piped("logs --follow " + id, "true"), "141\n");
  EXPECT_EQ(said(), "");
  EXPECT_EQ(piped("run -- sleep 600", "true"), "141\n");
  EXPECT_TRUE(has(said(), "job 2 : nobody reads its log any more, and it is not followed; `tutti wait 2`"))
      << said();
  EXPECT_EQ(piped("run -- sh -c 'yes & sleep 600'", "head -1"), "141\n");
  EXPECT_TRUE(has(said(), "job 3 : nobody reads its log any more")) << said();
  for (const char* job : {"1", "2", "3"}) {
    EXPECT_NE(cluster_.state(job), "cancelled");
    EXPECT_EQ(cluster_.tutti({"cancel", "--now", job}).exit_code, 0);
  }
}

TEST_F(Unread, AFullDiskEndsWhoeverWouldWriteForEver) {
  const std::string id = cluster_.submit({}, "echo a line; sleep 600");
  ASSERT_TRUE(support::eventually([&] { return cluster_.log(id, 0) == "a line\n"; }));
  for (const auto& words :
       {std::vector<std::string>{"logs", id}, {"logs", id, "--follow"}, {"jobs", "--watch"}}) {
    const auto full = to_a_full_disk(words);
    EXPECT_FALSE(full.timed_out) << words.back();
    EXPECT_EQ(full.exit_code, 1) << words.back();
    EXPECT_EQ(full.err, "tutti: standard output : cannot be written: No space left on device\n")
        << words.back();
  }
  EXPECT_EQ(cluster_.tutti({"cancel", "--now", id}).exit_code, 0);
  // How a job ends is waited for all the same, and what is missing is said then.
  const auto ran = to_a_full_disk({"run", "--", "sh", "-c", "echo a line"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_TRUE(has(ran.err, "standard output : ")) << ran.err;
  EXPECT_EQ(cluster_.state("2"), "succeeded");
}

// A controller of another version, or something else that answers with JSON.
TEST(Answers, ThatAreNoneOfAControllersAreToldAndEndNobody) {
  net::Loop loop;
  std::string body;
  auto server = net::Server::listen(loop, {}, [&](const std::shared_ptr<net::Exchange>& exchange) {
    exchange->answer({.status = 200, .body = body});
  });
  ASSERT_TRUE(server) << server.error().text();
  std::thread thread([&] { loop.run(); });
  const support::TempFolder folder;
  support::write_text(folder.path() + "/token", std::string(64, '0') + "\n");
  const support::RunOptions options{.env = {{"TUTTI_ADDR", "127.0.0.1:" + std::to_string((*server)->port())},
                                            {"TUTTI_TOKEN_FILE", folder.path() + "/token"}}};
  for (const char* answer : {"5", "[]", "{}", R"({"jobs":5,"nodes":5})", R"({"jobs":[{}],"nodes":[{}]})"}) {
    body = answer;
    for (const char* command : {"jobs", "nodes", "status", "queues"}) {
      const auto told = support::run({support::tutti_program, command}, options);
      EXPECT_LE(told.exit_code, 1) << command << " of " << answer << ": " << told.err;
      EXPECT_TRUE(told.exit_code == 0 || has(told.err, "what was answered is not understood")) << told.err;
    }
    const auto shown = support::run({support::tutti_program, "show", "1"}, options);
    EXPECT_EQ(shown.exit_code, 1) << answer;
  }
  loop.stop();
  thread.join();
}

TEST(Answers, OfAFolderThatIsGoneAreWords) {
  TestCluster cluster;
  const auto gone =
      support::run({"sh", "-c", "mkdir \"$1\" && cd \"$1\" && rmdir \"$1\" && exec \"$0\" run -- true",
                    support::tutti_program, cluster.file("gone")},
                   {.env = cluster.env()});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_TRUE(has(gone.err, "the folder that this was called in cannot be named")) << gone.err;
  EXPECT_EQ(cluster.json({"jobs", "--all"}).size(), 0U);
}

}  // namespace
}  // namespace tutti
