// Where a run and what it reads lie: folders that go in mid-run, that one node does not share, that another
// job has claimed.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "base/exit_codes.hpp"
#include "learn/checkpoint/export.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/train/leave.hpp"
#include "learn/train/run_test.hpp"

namespace tutti::train {
namespace {

// Its disk is unmounted or it is moved in mid-run, and a bare folder lies at its path.
TEST_F(TrainerTest, ARunWhoseFolderIsGoneSavesNothingElsewhereAndIsNotDone) {
  recipe_.parallel = "dp2";
  recipe_.steps = 8;
  for (const bool comes_back : {false, true}) {
    const std::string folder = prepare(comes_back ? "back" : "gone", recipe_);
    const std::string away = folder + ".away";
    const std::string progress = folder + ".progress";
    RunOptions options{.folder = folder, .fence = {0, 12}, .progress_file = progress};
    options.last_save = {
        .pause_first = std::chrono::milliseconds(1),
        .for_all = comes_back ? Duration(std::chrono::hours(1)) : std::chrono::milliseconds(50)};
    int asked = 0;
    bool is_back = false;
    const auto all = run_all(options, "dp2", [&](int rank) {
      if (rank != 0) return false;
      if (++asked == 6) {
        while (!fs::exists(folder + "/checkpoints.committed")) std::this_thread::yield();
        fs::rename(folder, away);
        fs::create_directories(folder + "/checkpoints");
      }
      const bool missed = read_text(progress).find("the last checkpoint of step 8") != std::string::npos;
      if (!comes_back || is_back || !missed) return false;
      fs::remove_all(folder);
      fs::rename(away, folder);
      is_back = true;
      return false;
    });
    for (const auto& ending : all) {
      ASSERT_EQ(ending.ok(), comes_back);
      if (comes_back) continue;
      EXPECT_NE(ending.error().text().find("was it unmounted or moved away?"), std::string::npos)
          << ending.error().text();
    }
    const std::string real = comes_back ? folder : away;
    EXPECT_EQ(checkpoint::steps_in(real + "/checkpoints").value().back(), comes_back ? 8 : 4);
    if (comes_back) continue;
    EXPECT_EQ(exit_code_of(all.front().error()), exit_later) << all.front().error().text();
    for (const auto& entry : fs::directory_iterator(folder + "/checkpoints"))
      EXPECT_EQ(entry.path().filename(), "lock")
          << "what the first checkpoint may have left when it was done";
    EXPECT_FALSE(fs::exists(folder + "/owner"));
  }
}

// From here on the paths that do not begin at the root are this thread's own, as on a node of its own.
void go_to(const fs::path& folder) {
  ASSERT_EQ(unshare(CLONE_FS), 0);
  ASSERT_EQ(chdir(folder.c_str()), 0);
}

TEST_F(TrainerTest, RanksThatHaveDifferentThingsAtOnePathAreNamedAndTrainNothing) {
  pack("old", 399);
  recipe_.parallel = "dp2";
  recipe_.steps = 4;
  const std::string folder = prepare("unlike", recipe_);
  const auto config = read_text(folder + "/config.json");
  for (const char* node : {"0", "1"}) {
    fs::create_directories(root_ / node);
    fs::create_directory_symlink(root_ / "data", root_ / node / "same data");
    fs::create_directory_symlink(folder, root_ / node / "same run");
    fs::create_directory_symlink(root_ / (*node == '0' ? "data" : "old"), root_ / node / "data");
    fs::create_directories(root_ / node / "run");
  }
  const auto trained = [&](const std::string& run, const std::string& data) {
    recipe_.data = data;
    RunOptions options{.folder = run,
                       .fence = {0, 12},
                       .submission = submit(root_.string(), {.recipe = recipe_, .config = config})};
    options.ownership.seen_within = run == "run" ? std::chrono::seconds(0) : std::chrono::seconds(60);
    return run_all(
        options, "dp2", [](int) { return false; }, [&](int rank) { go_to(root_ / std::to_string(rank)); });
  };
  for (const auto& [run, data, why] :
       {std::array{"same run", "data", ": data : the dataset is another one"},
        std::array{"run", "same data", ": run : it is not the folder that rank 0"}}) {
    for (const auto& ending : trained(run, data)) {
      ASSERT_FALSE(ending.ok());
      EXPECT_NE(ending.error().text().find("rank 1 on node "), std::string::npos) << ending.error().text();
      EXPECT_NE(ending.error().text().find(why), std::string::npos) << ending.error().text();
    }
  }
  EXPECT_FALSE(fs::exists(root_ / "0/run/checkpoints")) << "nothing was claimed";
  EXPECT_FALSE(checkpoint::open_latest(folder + "/checkpoints").value());
  for (const auto& ending : trained("same run", "same data"))
    EXPECT_TRUE(ending.ok()) << ending.error().text();
}

TEST_F(TrainerTest, RanksThatBeginWithDifferentWeightsAreNamed) {
  recipe_.parallel = "dp2";
  recipe_.steps = 1;
  const std::string first = prepare("first", recipe_);
  ASSERT_TRUE(run(first, "dp2").ok());
  const auto trained = checkpoint::Checkpoint::open(first + "/checkpoints", 1);
  ASSERT_TRUE(trained.ok()) << trained.error().text();
  for (const char* node : {"0", "1"}) {
    fs::create_directories(root_ / node);
    ASSERT_TRUE(checkpoint::export_hf(*trained, (root_ / node / "weights").string(), {}).ok());
  }
  recipe_.weights = "weights";
  const auto begin = [&] {
    return run_all(
        {.folder = prepare("second", recipe_), .fence = {0, 12}}, "dp2", [](int) { return false; },
        [&](int rank) { go_to(root_ / std::to_string(rank)); });
  };
  // The same model, trained for a little longer.
  const std::string file = (root_ / "1/weights/model.safetensors").string();
  flip_a_byte(file, static_cast<std::int64_t>(fs::file_size(file)) - 100);
  for (const auto& ending : begin()) {
    ASSERT_FALSE(ending.ok());
    EXPECT_NE(ending.error().text().find("rank 1 on node "), std::string::npos) << ending.error().text();
    EXPECT_NE(ending.error().text().find(": weights : what the weights begin with is another one there"),
              std::string::npos)
        << ending.error().text();
  }
  flip_a_byte(file, static_cast<std::int64_t>(fs::file_size(file)) - 100);
  for (const auto& ending : begin()) EXPECT_TRUE(ending.ok()) << ending.error().text();
}

// The cluster's store is an older copy, and gives out numbers that it has given out before.
TEST_F(TrainerTest, AJobWithALowerNumberGoesOnWithARunWhoseLastOneItKnewOf) {
  recipe_.steps = 4;
  const std::string folder = prepare("lower", recipe_);
  const std::string checkpoints = folder + "/checkpoints";
  recipe::Submission submission{.recipe = recipe_, .config = read_text(folder + "/config.json")};
  const auto trained = [&](const checkpoint::Fence& fence, const std::string& name) {
    const std::string path = folder + "/" + name;
    std::ofstream(path) << recipe::json_of(submission);
    auto all =
        run_all({.folder = folder, .fence = fence, .submission = path}, "1", [](int) { return false; });
    return all.front();
  };
  ASSERT_TRUE(trained({2, 13, "east"}, "first.json").ok());
  submission.claim = checkpoint::claimed_by(checkpoints).value()->line();
  submission.recipe.steps = 6;
  const auto refused = trained({0, 5, "east"}, "second.json");
  ASSERT_FALSE(refused.ok()) << "nobody has said that it may";
  EXPECT_NE(refused.error().remedy().find("--take-over"), std::string::npos) << refused.error().remedy();
  submission.take_over = true;
  ASSERT_TRUE(trained({0, 5, "east"}, "second.json").ok());
  EXPECT_EQ(checkpoint::steps_in(checkpoints).value().back(), 6);
  // The number of the claim itself, and yet another submission.
  submission.take_over = false;
  submission.from_scratch = true;
  submission.claim = checkpoint::claimed_by(checkpoints).value()->line();
  ASSERT_TRUE(trained({0, 5, "east"}, "third.json").ok());
  EXPECT_TRUE(fs::exists(checkpoints + ".old-1/step-00000006"));
  ASSERT_TRUE(trained({1, 5, "east"}, "third.json").ok());
  EXPECT_FALSE(fs::exists(checkpoints + ".old-2")) << "its next attempt goes on with what it has made";
}

}  // namespace
}  // namespace tutti::train
