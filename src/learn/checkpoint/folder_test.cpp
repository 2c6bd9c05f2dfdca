#include "learn/checkpoint/folder.hpp"

#include <atomic>
#include <thread>

#include "learn/checkpoint/made_checkpoint_test.hpp"
#include "learn/checkpoint/read.hpp"

namespace tutti::checkpoint {
namespace {

class Folder : public CheckpointTest {
 protected:
  std::vector<std::int64_t> steps() const { return steps_in(folder()).value(); }
};

using Steps = std::vector<std::int64_t>;

TEST_F(Folder, BelongsToTheNewestAttempt) {
  const std::string deep = path("run/checkpoints");
  ASSERT_TRUE(claim(deep, 2)) << "it is made, with those above it";
  EXPECT_TRUE(claim(deep, 2)) << "again is fine";
  const auto older = claim(deep, 1);
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().message(), "attempt 1 is fenced: attempt 2 has claimed " + deep);
  EXPECT_FALSE(begin(deep, 100, 1));
  EXPECT_TRUE(claim(deep, 3));
  EXPECT_EQ(read_text("run/checkpoints/attempt"), "3\n");
}

TEST_F(Folder, OfAFinishedJobIsTakenByTheNextWhateverItsAttempts) {
  ASSERT_TRUE(claim(folder(), {7, 12, "east"})) << "job 12 was restarted seven times";
  ASSERT_TRUE(claim(folder(), {0, 13, "east"})) << "a job that comes after it begins at attempt 0";
  EXPECT_EQ(*claimed_by(folder()).value(), Fence(0, 13, "east"));
  EXPECT_FALSE(check_claim(folder(), {8, 12, "east"}));
  EXPECT_TRUE(check_claim(folder(), {1, 13, "east"}));
  EXPECT_EQ(*claimed_by(folder()).value(), Fence(0, 13, "east")) << "a question claims nothing";
  const auto older = claim(folder(), {8, 12, "east"});
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().message(),
            "job 12, attempt 8 is fenced: job 13, attempt 0 has claimed " + folder());
  EXPECT_FALSE(begin(folder(), 100, {8, 12, "east"}));
  const auto part = begin(folder(), 100, {0, 13, "east"});
  ASSERT_TRUE(part);
  EXPECT_EQ(*part, path(".step-00000100.job-13.attempt-0000.part"));
  // Of another cluster's number nothing is known but that it came later.
  ASSERT_TRUE(claim(folder(), {0, 2, "west"}));
  EXPECT_FALSE(begin(folder(), 100, {0, 13, "east"})) << "who was replaced writes nothing more";
  EXPECT_FALSE(exists(".step-00000100.job-13.attempt-0000.part"));
}

TEST_F(Folder, OfAJobWithAHigherNumberIsTakenByWhoMayPassItOver) {
  ASSERT_TRUE(claim(folder(), {2, 13, "east"}, "abc123.json"));
  EXPECT_EQ(*claimed_as(folder()), "abc123.json");
  const auto refused = claim(folder(), {0, 5, "east"}, "", Fence(7, 12, "east"));
  ASSERT_FALSE(refused) << "it knew of another one";
  EXPECT_NE(refused.error().remedy().find("an older copy"), std::string::npos) << refused.error().remedy();
  EXPECT_NE(refused.error().remedy().find(path("attempt")), std::string::npos) << refused.error().remedy();
  ASSERT_TRUE(claim(folder(), {0, 5, "east"}, "", Fence(0, 13, "east")));
  EXPECT_EQ(*claimed_by(folder()).value(), Fence(0, 5, "east"));
  EXPECT_EQ(*claimed_as(folder()), "");
  EXPECT_TRUE(begin(folder(), 100, {0, 5, "east"}));
  EXPECT_FALSE(begin(folder(), 100, {2, 13, "east"}));
}

TEST_F(Folder, OfRanksThatDidNotKnowTheirClusterIsTakenByThoseThatDo) {
  ASSERT_TRUE(claim(folder(), {3, 12}));
  ASSERT_TRUE(claim(folder(), {4, 12, "east"})) << "its next attempt, after its cluster was renewed";
  EXPECT_TRUE(same_job({3, 12}, {4, 12, "east"}));
  EXPECT_FALSE(begin(folder(), 100, {3, 12})) << "who was replaced writes nothing more";
  EXPECT_FALSE(claim(folder(), {9, 99})) << "and does not come back";
  EXPECT_FALSE(same_job({4, 12, "west"}, {4, 12, "east"}));
}

TEST_F(Folder, OfAnEarlierTuttiIsUnderstood) {
  write_text("attempt", "5\n");
  EXPECT_FALSE(claim(folder(), 4));
  EXPECT_TRUE(claim(folder(), {0, 1})) << "a job comes after ranks that nobody submitted";
  EXPECT_EQ(read_text("attempt"), "0 1\n");
}

TEST_F(Folder, RemembersThatItHadCheckpoints) {
  EXPECT_FALSE(had_step(folder()).value());
  ASSERT_TRUE(write_small_checkpoint(folder(), 100));
  ASSERT_TRUE(write_small_checkpoint(folder(), 200));
  EXPECT_EQ(*had_step(folder()).value(), 200);
  const auto away = move_away(folder());
  ASSERT_TRUE(away);
  EXPECT_EQ(*away, folder() + ".old-1");
  EXPECT_FALSE(had_step(folder()).value());
  EXPECT_TRUE(Checkpoint::open(*away, 200)) << "nothing is lost";
  std::filesystem::remove_all(*away);
  std::filesystem::remove(*away + ".committed");
}

TEST_F(Folder, OfAnAttemptThatCannotBeReadIsNotTaken) {
  write_text("attempt", "three\n");
  const auto claimed = claim(folder(), 4);
  ASSERT_FALSE(claimed);
  EXPECT_NE(claimed.error().message().find("attempt: it is no number"), std::string::npos);
}

TEST_F(Folder, ShowsACheckpointWhenItIsWhole) {
  ASSERT_TRUE(claim(folder(), 2));
  const auto part = begin(folder(), 100, 2);
  ASSERT_TRUE(part);
  EXPECT_EQ(*part, path(".step-00000100.attempt-0002.part"));
  EXPECT_TRUE(steps().empty());
  ASSERT_TRUE(write_small_checkpoint(folder(), 100, 2));
  EXPECT_EQ(names(), (std::vector<std::string>{"attempt", "lock", "step-00000100"}));
  EXPECT_EQ(steps(), Steps{100});
}

TEST_F(Folder, LosesWhatOlderAttemptsLeftUnfinished) {
  for (const std::int64_t attempt : {1, 2, 3})
    std::filesystem::create_directory(path(".step-00000100.attempt-000" + std::to_string(attempt) + ".part"));
  ASSERT_TRUE(claim(folder(), 1)) << "what others left goes";
  ASSERT_TRUE(begin(folder(), 100, 1));
  for (const std::int64_t attempt : {2, 3})
    std::filesystem::create_directory(path(".step-00000100.attempt-000" + std::to_string(attempt) + ".part"));
  write_text(".step-00000100.attempt-0001.part/rank-00000.safetensors", "half");
  std::filesystem::create_directory(path(".step-00000050.removed"));
  ASSERT_TRUE(write_small_checkpoint(folder(), 50, 1));
  ASSERT_TRUE(claim(folder(), 3));
  EXPECT_EQ(names(), (std::vector<std::string>{".step-00000100.attempt-0003.part", "attempt", "lock",
                                               "step-00000050"}));
}

TEST_F(Folder, TakesNothingFromAnAttemptThatIsFenced) {
  ASSERT_TRUE(claim(folder(), 1));
  const auto part = begin(folder(), 100, 1);
  ASSERT_TRUE(part);
  const auto record = write_file(*part, 0, {});
  ASSERT_TRUE(record);
  ASSERT_TRUE(claim(folder(), 2)) << "the gang was started anew, and the old rank does not know";
  const auto committed = commit(folder(), 1, {.step = 100, .attempt = 1}, std::vector{*record});
  ASSERT_FALSE(committed);
  EXPECT_EQ(committed.error().message(), "attempt 1 is fenced: attempt 2 has claimed " + folder());
  EXPECT_FALSE(write_file(*part, 1, {})) << "its folder is gone";
  EXPECT_TRUE(steps().empty());
}

// Its disk was unmounted, or somebody has moved it, and another folder lies at its path.
TEST_F(Folder, ThatIsNotTheOneThatWasClaimedTakesNothing) {
  const Fence fence{1, 12, "east"};
  const std::string run = path("run");
  const std::string checkpoints = run + "/checkpoints";
  ASSERT_TRUE(claim(checkpoints, fence));
  const auto part = begin(checkpoints, 100, fence);
  ASSERT_TRUE(part);
  const auto record = write_file(*part, 0, {});
  ASSERT_TRUE(record);
  std::filesystem::rename(run, path("away"));
  const auto refused = [&](const Result<>& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::failed) << "it can be put back";
    EXPECT_EQ(
        result.error().text(),
        checkpoints +
            " : it is not the folder that job 12, attempt 1 has claimed: was it unmounted or moved away?");
  };
  const auto begun = [&]() -> Result<> {
    auto again = begin(checkpoints, 200, fence);
    if (!again) return again.error();
    return {};
  };
  refused(begun());
  EXPECT_FALSE(exists("run")) << "nothing is made anew";
  std::filesystem::create_directories(checkpoints);
  refused(begun());
  refused(commit(checkpoints, fence, {.step = 100, .attempt = 1}, std::vector{*record}));
  write_text("run/checkpoints/attempt", "0 12 east\n");
  refused(begun());
  EXPECT_TRUE(steps_in(checkpoints)->empty());
  std::filesystem::remove_all(run);
  std::filesystem::rename(path("away"), run);
  EXPECT_TRUE(begun());
  EXPECT_TRUE(commit(checkpoints, fence, {.step = 100, .attempt = 1}, std::vector{*record}));
}

TEST_F(Folder, KeepsAStepThatIsThereAlready) {
  ASSERT_TRUE(write_small_checkpoint(folder(), 100, 0));
  const std::string before = read_text("step-00000100/manifest.json");
  ASSERT_TRUE(claim(folder(), 1));
  EXPECT_TRUE(write_small_checkpoint(folder(), 100, 1)) << "a later attempt came as far again";
  EXPECT_EQ(read_text("step-00000100/manifest.json"), before);
  EXPECT_EQ(names(), (std::vector<std::string>{"attempt", "lock", "step-00000100"}));

  flip("step-00000100/manifest.json", 50);
  const auto again = write_small_checkpoint(folder(), 100, 1);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().text().find("step 100 is there already"), std::string::npos)
      << again.error().text();
  EXPECT_EQ(again.error().remedy(), "remove " + path("step-00000100"));
  const auto aside = set_aside(folder(), 100, "a bit of it is another one");
  ASSERT_TRUE(aside);
  EXPECT_EQ(*aside, path("step-00000100.damaged-1"));
  EXPECT_EQ(read_text("step-00000100.damaged-1/damaged.txt"), "a bit of it is another one\n");
  EXPECT_TRUE(write_small_checkpoint(folder(), 100, 1));
  EXPECT_EQ(*set_aside(folder(), 100, "again"), path("step-00000100.damaged-2"));
  EXPECT_TRUE(steps().empty());
  EXPECT_FALSE(set_aside(folder(), 99, "")) << "there is none";
}

// The checkpoint has appeared, and the disk failed before the note of it was there.
TEST_F(Folder, NotesAStepThatIsTriedAgain) {
  const std::string note = folder() + ".committed";
  std::filesystem::create_directory(note);
  EXPECT_FALSE(write_small_checkpoint(folder(), 100));
  EXPECT_EQ(steps(), Steps{100});
  std::filesystem::remove(note);
  ASSERT_TRUE(write_small_checkpoint(folder(), 100));
  EXPECT_TRUE(std::filesystem::exists(note));
  EXPECT_EQ(*had_step(folder()).value(), 100);
}

TEST_F(Folder, TakesOnlyWholeTensors) {
  Prng prng(1);
  const Made matrix = make_tensor("model/matrix", {4, 6}, prng);
  std::vector<Rank> ranks(2);
  ranks[0].hold(matrix, {{0, 0}, {2, 6}});
  ranks[1].hold(matrix, {{2, 0}, {1, 6}});
  const auto missing = write_checkpoint(folder(), {.step = 100}, ranks);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().text(), "step 100: tensor 'model/matrix' : 6 of its 24 elements are in no piece");
  ranks[1].hold(matrix, {{3, 0}, {1, 6}});
  ranks.emplace_back().hold(matrix, {{3, 0}, {1, 6}});
  const auto twice = write_checkpoint(folder(), {.step = 100}, ranks);
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().text().find("overlap"), std::string::npos);
  EXPECT_TRUE(steps().empty());
  ranks.pop_back();
  EXPECT_TRUE(write_checkpoint(folder(), {.step = 100}, ranks)) << "the next try succeeds";
}

TEST_F(Folder, TakesOnlyFilesThatAreThere) {
  ASSERT_TRUE(claim(folder(), 0));
  const auto part = begin(folder(), 100, 0);
  ASSERT_TRUE(part);
  const auto record = write_file(*part, 0, {});
  ASSERT_TRUE(record);
  std::filesystem::resize_file(*part + "/rank-00000.safetensors", record->bytes - 1);
  EXPECT_FALSE(commit(folder(), 0, {.step = 100}, std::vector{*record}));
  std::filesystem::remove(*part + "/rank-00000.safetensors");
  EXPECT_FALSE(commit(folder(), 0, {.step = 100}, std::vector{*record}));
  EXPECT_TRUE(steps().empty());
}

TEST_F(Folder, IsPrunedFromTheOldEnd) {
  for (const std::int64_t step : {100, 20, 3, 123456789}) ASSERT_TRUE(write_small_checkpoint(folder(), step));
  ASSERT_TRUE(prune(folder(), 3));
  EXPECT_EQ(steps(), (Steps{20, 100, 123456789}));
  ASSERT_TRUE(prune(folder(), 0));
  EXPECT_EQ(steps(), (Steps{123456789})) << "the newest stays";
  EXPECT_EQ(names(), (std::vector<std::string>{"attempt", "lock", "step-123456789"}));
}

TEST_F(Folder, CountsOnlyWhatCanBeReadWhenItIsPruned) {
  for (const std::int64_t step : {10, 20, 30}) ASSERT_TRUE(write_small_checkpoint(folder(), step));
  flip("step-00000030/manifest.json", 50);
  ASSERT_TRUE(prune(folder(), 1));
  EXPECT_EQ(steps(), (Steps{20, 30})) << "the last that can be read";
}

TEST_F(Folder, ListsItsCheckpoints) {
  EXPECT_TRUE(list(path("missing")).value().empty());
  for (const std::int64_t step : {20, 10, 30}) ASSERT_TRUE(write_small_checkpoint(folder(), step, 4));
  flip("step-00000020/manifest.json", 50);
  std::filesystem::create_directory(path("step-00000040"));
  std::filesystem::rename(path("step-00000030"), path("step-00000031"));
  std::filesystem::create_directory(path("step-7"));
  const auto all = list(folder());
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 4U);
  const Listed& good = all->at(0);
  EXPECT_EQ(good.step, 10);
  EXPECT_EQ(good.path, path("step-00000010"));
  EXPECT_EQ(good.problem, "");
  EXPECT_EQ(good.files, 2U);
  EXPECT_EQ(good.bytes, std::filesystem::file_size(path("step-00000010/rank-00000.safetensors")) * 2);
  EXPECT_EQ(good.attempt, 4);
  EXPECT_EQ(good.mesh, "2x1x1");
  EXPECT_GT(good.written_at, Instant(std::chrono::hours(24 * 365 * 50)));
  EXPECT_EQ(all->at(1).problem,
            path("step-00000020") + " : the manifest is damaged: its content does not fit its hash");
  EXPECT_EQ(all->at(2).problem, path("step-00000031") + " : its manifest is of step 30");
  EXPECT_EQ(all->at(3).problem, path("step-00000040") + " : it has no manifest.json");
}

TEST_F(Folder, IsListedAndPrunedAtTheSameTime) {
  std::atomic<bool> done = false;
  std::atomic<int> problems = 0;
  std::thread lister([&] {
    while (!done) {
      const auto all = list(folder());
      if (!all) ++problems;
      for (const Listed& entry : all ? *all : std::vector<Listed>()) {
        if (!entry.problem.empty()) ++problems;
      }
    }
  });
  for (std::int64_t step = 1; step <= 40; ++step) {
    EXPECT_TRUE(write_small_checkpoint(folder(), step));
    EXPECT_TRUE(prune(folder(), 2));
  }
  done = true;
  lister.join();
  EXPECT_EQ(problems, 0);
  EXPECT_EQ(steps(), (Steps{39, 40}));
}

TEST_F(Folder, IsClaimedByManyOneAfterTheOther) {
  std::vector<std::thread> claimers;
  std::atomic<int> newest_failed = 0;
  for (std::int64_t attempt = 0; attempt < 8; ++attempt) {
    claimers.emplace_back([&, attempt] {
      for (int round = 0; round < 20; ++round) {
        if (!claim(folder(), attempt) && attempt == 7) ++newest_failed;
      }
    });
  }
  for (auto& claimer : claimers) claimer.join();
  EXPECT_EQ(newest_failed, 0);
  EXPECT_EQ(read_text("attempt"), "7\n");
}

}  // namespace
}  // namespace tutti::checkpoint
