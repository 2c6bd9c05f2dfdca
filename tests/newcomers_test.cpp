// What people type who come from elsewhere or guess, and what they are told.
#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::has;
using support::TestCluster;
using support::write_text;

TEST(Newcomers, WordsOfOtherToolsAreAnsweredWithOurs) {
  const auto said = [](const std::string& word) { return support::run({support::tutti_program, word}).err; };
  EXPECT_TRUE(has(said("describe"), "`tutti show JOB`")) << said("describe");
  EXPECT_TRUE(has(said("torchrun"), "`tutti run --gpus N -- COMMAND`")) << said("torchrun");
  EXPECT_TRUE(has(said("cordon"), "`tutti drain NODE`")) << said("cordon");
}

TEST(Newcomers, AnIdThatCannotBeWrittenIsInTheError) {
  TestCluster cluster;
  write_text(cluster.file("job.yaml"), "command: [\"true\"]\n");
  const std::vector<std::vector<std::string>> all{{"run", "--detach", "--", "true"},
                                                  {"submit", cluster.file("job.yaml")}};
  for (std::size_t at = 0; at < all.size(); ++at) {
    std::vector<std::string> words{support::tutti_program};
    words.insert(words.end(), all[at].begin(), all[at].end());
    const auto full = support::run(words, {.env = cluster.env(), .stdout_to = "/dev/full"});
    EXPECT_EQ(full.exit_code, 1);
    EXPECT_TRUE(has(full.err, "job " + std::to_string(at + 1) + " is submitted")) << full.err;
  }
}

TEST(Newcomers, FilesAndFlagsInTheWrongPlaceArePointedElsewhere) {
  const TestCluster cluster;
  const auto refused = [&](const std::vector<std::string>& words, const std::string& part) {
    const auto done = cluster.tutti(words);
    EXPECT_EQ(done.exit_code, 2) << done.err;
    EXPECT_TRUE(has(done.err, part)) << done.err;
    EXPECT_EQ(done.out, "");
  };
  const std::string job = cluster.file("job.yaml");
  const std::string recipe = cluster.file("recipe.yaml");
  write_text(job, "command: [\"true\"]\n");
  write_text(recipe, "run: run\ndata: data\nsteps: 10\n");
  refused({"submit", "--gpus", "3", job}, "`gpus: ...`");
  refused({"submit", job, "--gpus", "3"}, "takes no further words");
  refused({"submit", recipe}, "`tutti train " + recipe + "`");
  refused({"train", job}, "`tutti submit " + job + "`");
}

TEST(Newcomers, WithAllNodesDrainedADryRunSaysSo) {
  const TestCluster cluster(1, 1);
  ASSERT_EQ(cluster.tutti({"drain", "n1"}).exit_code, 0);
  const auto tried = cluster.tutti({"run", "--gpus", "1", "--dry-run", "--", "true"});
  EXPECT_TRUE(has(tried.err, "all nodes are drained; `tutti resume NODE`")) << tried.out << tried.err;
}

TEST(Newcomers, SeveralStatesAndElementsOfAnArray) {
  const TestCluster cluster(1, 1);
  const std::string array = cluster.submit({"--array", "4-5"}, "[ $TUTTI_ARRAY_INDEX = 4 ] || exit 3");
  cluster.tutti({"wait", "--array", array});
  const auto count = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> words{"jobs"};
    words.insert(words.end(), flags.begin(), flags.end());
    return cluster.json(words).size();
  };
  EXPECT_EQ(count({"--state", "failed"}), 1U);
  EXPECT_EQ(count({"--state", "failed", "--state", "succeeded"}), 2U);
  EXPECT_EQ(count({"--state", "failed,succeeded"}), 2U);
  EXPECT_EQ(cluster.tutti({"jobs", "--state", "failed,odd"}).exit_code, 2);
  EXPECT_EQ(cluster.json({"show", array + "[5]"}).value("state", ""), "failed");
  EXPECT_EQ(cluster.tutti({"logs", array + "[5]"}).exit_code, 0);
  EXPECT_EQ(cluster.tutti({"wait", array + "[5]"}).exit_code, 3);
  const auto none = cluster.tutti({"show", array + "[6]"});
  EXPECT_TRUE(has(none.err, "there is no such element")) << none.err;
}

}  // namespace
}  // namespace tutti
