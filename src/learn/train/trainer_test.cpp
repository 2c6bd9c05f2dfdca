#include "learn/train/trainer.hpp"

#include <sys/mount.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>

#include "base/exit_codes.hpp"
#include "base/prng.hpp"
#include "base/scarcity/scarcity.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/dataset/order.hpp"
#include "learn/recipe/recipe.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/leave.hpp"
#include "learn/train/resume.hpp"
#include "learn/train/run_plan.hpp"
#include "learn/train/run_test.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

TEST_F(TrainerTest, GoesOnWithTheSameBits) {
  for (const char* mesh : {"1", "dp2 tp2", "pp2"}) {
    recipe_.parallel = mesh;
    const std::string whole = prepare(std::string("whole ") + mesh, recipe_);
    ASSERT_TRUE(run(whole, mesh).ok());
    const std::string broken = prepare(std::string("broken ") + mesh, recipe_);
    auto first = run(broken, mesh, 0, 7);
    ASSERT_TRUE(first.ok()) << first.error().text();
    EXPECT_EQ(*first, Ending::stopped);
    auto second = run(broken, mesh, 1);
    ASSERT_TRUE(second.ok()) << second.error().text();
    EXPECT_EQ(*second, Ending::finished);
    EXPECT_EQ(tensors_of(whole, 12), tensors_of(broken, 12)) << mesh;
    const auto expected = steps_of(whole);
    for (const auto& [step, line] : steps_of(broken)) {
      EXPECT_EQ(line.loss, expected.at(step).loss) << mesh << ", step " << step;
      EXPECT_EQ(line.data, expected.at(step).data) << mesh << ", step " << step;
    }
    EXPECT_EQ(steps_of(broken).size(), 12U);
  }
}

TEST_F(TrainerTest, GoesOnWithAnotherMesh) {
  recipe_.zero = 1;
  recipe_.parallel = "dp2 tp2 pp2";
  const std::string whole = prepare("whole", recipe_);
  ASSERT_TRUE(run(whole, recipe_.parallel).ok());
  const std::string shrunk = prepare("shrunk", recipe_);
  ASSERT_TRUE(run(shrunk, recipe_.parallel, 0, 6).ok());
  auto second = run(shrunk, "dp1 tp2 pp2", 1);  // with fewer ranks the same recipe has fewer replicas
  ASSERT_TRUE(second.ok()) << second.error().text();
  EXPECT_EQ(checkpoint::Checkpoint::open(shrunk + "/checkpoints", 12)->state().mesh, "tp2 pp2");
  const auto expected = steps_of(whole);
  for (const auto& [step, line] : steps_of(shrunk)) {
    EXPECT_NEAR(line.loss / expected.at(step).loss, 1.0, 1e-4) << step;
    EXPECT_EQ(line.data, expected.at(step).data) << "other samples than before";
  }
}

TEST_F(TrainerTest, SeesEverySampleOfAnEpochOnce) {
  recipe_.parallel = "dp2";
  const auto data = dataset::Dataset::open(recipe_.data);
  const dataset::Order order{.seed = 1, .samples = (data->tokens() - 1) / 32};
  recipe_.steps = static_cast<std::int64_t>(order.samples) / recipe_.batch;
  const std::string folder = prepare("epoch", recipe_);
  ASSERT_TRUE(run(folder, "dp2").ok());
  std::set<std::uint64_t> seen;
  for (const auto& [step, line] : steps_of(folder)) {
    // The metrics vouch for the ids of a step by a sum over them.
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::uint64_t sample = order.sample(static_cast<std::uint64_t>(step - 1) * 8 + i);
      EXPECT_TRUE(seen.insert(sample).second);
      sum += mixed(sample) & 0xffffffffU;
    }
    EXPECT_EQ(line.data, sum) << "step " << step;
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(recipe_.steps * recipe_.batch));
}

TEST_F(TrainerTest, TakesTheCheckpointBeforeADamagedOne) {
  recipe_.parallel = "dp2";
  const std::string folder = prepare("damaged", recipe_);
  ASSERT_TRUE(run(folder, "dp2", 0, 9).ok());  // leaves checkpoints of 4, 8 and 9
  const auto steps = checkpoint::steps_in(folder + "/checkpoints");
  ASSERT_EQ(*steps, (std::vector<std::int64_t>{4, 8, 9}));
  const std::string newest =
      checkpoint::checkpoint_path(folder + "/checkpoints", 9) + "/rank-00001.safetensors";
  flip_a_byte(newest, static_cast<std::int64_t>(fs::file_size(newest)) - 100);
  const std::string middle =
      checkpoint::checkpoint_path(folder + "/checkpoints", 8) + "/rank-00000.safetensors";
  fs::resize_file(middle, fs::file_size(middle) / 2);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const auto ending = run(folder, "dp2", 1);
  const std::string errors = testing::internal::GetCapturedStderr();
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(ending.ok()) << ending.error().text();
  EXPECT_NE(errors.find("rank-00001.safetensors"), std::string::npos) << errors;
  EXPECT_NE(errors.find("rank-00000.safetensors"), std::string::npos) << errors;
  EXPECT_NE(printed.find("resumed at step 4 "), std::string::npos) << printed;
  EXPECT_TRUE(checkpoint::Checkpoint::open(folder + "/checkpoints", 8)->verify([](auto, auto) {}).ok())
      << "it was saved again";
  for (const char* aside : {"step-00000008.damaged-1", "step-00000009.damaged-1"}) {
    EXPECT_TRUE(fs::exists(fs::path(folder) / "checkpoints" / aside / "manifest.json"))
        << "nothing is deleted";
    EXPECT_TRUE(fs::exists(fs::path(folder) / "checkpoints" / aside / "damaged.txt"));
  }
  EXPECT_EQ(steps_of(folder).size(), 12U);
}

TEST_F(TrainerTest, RefusesAStateThatGivesAnotherLoss) {
  const std::string folder = prepare("diverged", recipe_);
  ASSERT_TRUE(run(folder, "1", 0, 6).ok());
  // A checkpoint that is whole, and says something else than its tensors do.
  auto manifest = checkpoint::load_manifest(folder + "/checkpoints", 6);
  ASSERT_TRUE(manifest.ok());
  manifest->state.loss *= 1.01;
  std::ofstream(checkpoint::checkpoint_path(folder + "/checkpoints", 6) + "/manifest.json")
      << checkpoint::encode(*manifest);
  const auto ending = run(folder, "1", 1);
  ASSERT_FALSE(ending.ok());
  EXPECT_NE(ending.error().text().find("gives a loss of"), std::string::npos) << ending.error().text();
  EXPECT_NE(ending.error().text().find("when it was saved"), std::string::npos);
  EXPECT_EQ(ending.error().code(), ErrorCode::invalid) << "the next attempt would meet it again";
}

// Another model of CPU or GPU rounds in another place: that is no damage.
TEST_F(TrainerTest, AcceptsALossThatAnotherMachineRoundsAnotherWay) {
  const std::string folder = prepare("moved", recipe_);
  ASSERT_TRUE(run(folder, "1", 0, 6).ok());
  auto manifest = checkpoint::load_manifest(folder + "/checkpoints", 6);
  ASSERT_TRUE(manifest.ok());
  manifest->state.loss *= 1 + 3e-6;
  std::ofstream(checkpoint::checkpoint_path(folder + "/checkpoints", 6) + "/manifest.json")
      << checkpoint::encode(*manifest);
  testing::internal::CaptureStdout();
  const auto ending = run(folder, "1", 1);
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(ending.ok()) << ending.error().text();
  EXPECT_NE(printed.find("other CPUs or GPUs than before"), std::string::npos) << printed;
}

TEST_F(TrainerTest, AnOlderAttemptIsFencedAndEndsAtOnce) {
  recipe_.parallel = "dp2";
  const std::string folder = prepare("fenced", recipe_);
  ASSERT_TRUE(checkpoint::claim(folder + "/checkpoints", {5, 12}).ok());
  const auto begin = std::chrono::steady_clock::now();
  const auto all = run_all({.folder = folder, .fence = {4, 12}}, "dp2", [](int) { return false; });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, ends_at_once);
  for (const auto& ending : all) {
    ASSERT_FALSE(ending.ok());
    EXPECT_NE(ending.error().text().find("job 12, attempt 4 is fenced: job 12, attempt 5 has claimed"),
              std::string::npos)
        << ending.error().text();
  }
  // The next job begins to count at 0 again, and goes on.
  const auto next = run(folder, "dp2", {0, 13});
  EXPECT_TRUE(next.ok()) << next.error().text();
}

TEST_F(TrainerTest, ARankThatFailsInAStepEndsTheOthersAtOnceAndIsNamed) {
  recipe_.parallel = "dp2 pp2";
  const std::string folder = prepare("thrown", recipe_);
  std::atomic<int> told = 0;
  std::atomic<int> asked = 0;
  std::chrono::steady_clock::time_point thrown;
  const auto all =
      run_all({.folder = folder, .failing = [&](const Error&) { ++told; }}, "dp2 pp2", [&](int rank) {
        if (rank != 2 || ++asked < 4) return false;
        thrown = std::chrono::steady_clock::now();
        throw std::runtime_error("out of something");
      });
  EXPECT_LT(std::chrono::steady_clock::now() - thrown, ends_at_once);
  EXPECT_GE(told.load(), 4) << "every rank is told before it waits";
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    ASSERT_FALSE(all[rank].ok());
    const std::string text = all[rank].error().text();
    EXPECT_NE(text.find("out of something"), std::string::npos) << text;
    if (rank == 2) continue;
    EXPECT_NE(text.find("rank 2 on node "), std::string::npos) << text;
  }
}

TEST_F(TrainerTest, ThatItIsDoneIsToldBeforeTheFolderIsGivenBack) {
  recipe_.parallel = "dp2";
  recipe_.steps = 4;
  const std::string folder = prepare("leaves", recipe_);
  std::atomic<int> finished = 0;
  std::atomic<int> stopped = 0;
  std::atomic<int> owned = 0;
  RunOptions options{.folder = folder};
  options.leaving = [&](Ending ending) {
    ++(ending == Ending::finished ? finished : stopped);
    if (fs::exists(folder + "/owner")) ++owned;
    EXPECT_TRUE(checkpoint::open_latest(folder + "/checkpoints").value()) << "it is saved";
  };
  const auto all = run_all(options, "dp2", [](int) { return true; });
  ASSERT_TRUE(all.front().ok()) << all.front().error().text();
  EXPECT_EQ(stopped.load(), 2);
  EXPECT_GE(owned.load(), 1) << "rank 0 has it until it leaves";
  ASSERT_TRUE(run_all(options, "dp2", [](int) { return false; }).front().ok());
  EXPECT_EQ(finished.load(), 2);
}

// A disk for a run, on which so many pages are left to fill.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path) : path_(path) {
    fs::create_directories(path);
    mounted_ = mount("tutti-test", path.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  void leave_pages(std::uintmax_t pages) const {
    const std::string filler = path_ + "/filler";
    {
      std::ofstream out(filler, std::ios::binary);
      const std::string page(4096, 'x');
      while (out.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) {}
    }
    fs::resize_file(filler, fs::file_size(filler) - pages * 4096);
  }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST_F(TrainerTest, AFullDiskAtTheStartEndsAllRanksAtOnceAndAsksForALaterAttempt) {
  recipe_.parallel = "dp2";
  // With room for nothing, and for the owner's file alone.
  for (const std::uintmax_t pages : {std::uintmax_t{0}, std::uintmax_t{1}}) {
    const SmallDisk disk((root_ / "full").string());
    if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
    const std::string folder = prepare("full", recipe_);
    disk.leave_pages(pages);
    const auto begin = std::chrono::steady_clock::now();
    const auto all = run_all({.folder = folder}, "dp2", [](int) { return false; });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, ends_at_once);
    ASSERT_FALSE(all.front().ok());
    EXPECT_EQ(exit_code_of(all.front().error()), exit_later) << all.front().error().text();
    for (const auto& ending : all) {
      ASSERT_FALSE(ending.ok());
      EXPECT_NE(ending.error().text().find("No space left on device"), std::string::npos)
          << ending.error().text();
    }
  }
}

TEST_F(TrainerTest, WhatIsInTheWayOfTheMetricsEndsAllRanksAtOnce) {
  recipe_.parallel = "dp2";
  const std::string folder = prepare("in-the-way", recipe_);
  fs::create_directories(folder + "/metrics.jsonl");
  const auto begin = std::chrono::steady_clock::now();
  const auto ending = run(folder, "dp2");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, ends_at_once);
  ASSERT_FALSE(ending.ok());
  EXPECT_NE(ending.error().text().find("metrics.jsonl"), std::string::npos) << ending.error().text();
}

// Something stands in the place of a checkpoint, which cannot appear there, as on a disk without room.
class InTheWay {
 public:
  explicit InTheWay(const std::string& folder, std::int64_t step)
      : path_(checkpoint::checkpoint_path(folder + "/checkpoints", step)) {}
  void come() const { fs::create_directory(path_); }
  void leave() const { fs::remove(path_); }

 private:
  std::string path_;
};

TEST_F(TrainerTest, TheLastCheckpointIsTriedAgainUntilThereIsRoom) {
  recipe_.parallel = "dp2";
  recipe_.steps = 8;
  const std::string folder = prepare("no-room", recipe_);
  const InTheWay thing(folder, 8);
  const std::string progress = folder + "/progress";
  RunOptions options{.folder = folder, .fence = {0, 12}, .progress_file = progress};
  options.last_save = {.pause_first = std::chrono::milliseconds(1), .for_all = std::chrono::hours(1)};
  std::string shown;
  int asked = 0;
  testing::internal::CaptureStdout();
  const auto all = run_all(options, "dp2", [&](int rank) {
    if (rank != 0 || !shown.empty()) return false;
    if (++asked == 5) thing.come();
    const std::string line = read_text(progress);
    if (line.find("the last checkpoint of step 8") == std::string::npos) return false;
    shown = line;
    thing.leave();
    return false;
  });
  const std::string printed = testing::internal::GetCapturedStdout();
  for (const auto& ending : all) {
    ASSERT_TRUE(ending.ok()) << ending.error().text();
    EXPECT_EQ(*ending, Ending::finished);
  }
  EXPECT_NE(shown.find("; it is missing in " + folder + "/checkpoints; tried again in "), std::string::npos)
      << shown;
  EXPECT_NE(printed.find(shown), std::string::npos) << printed;
  EXPECT_NE(read_text(progress).find("checkpoint 8"), std::string::npos)
      << "what is shown then is true again";
  EXPECT_EQ(checkpoint::steps_in(folder + "/checkpoints").value().back(), 8);
  EXPECT_EQ(steps_of(folder).size(), 8U) << "no step is taken twice for it";
}

TEST_F(TrainerTest, ADiskThatNeverTakesTheLastCheckpointAsksForALaterAttempt) {
  recipe_.parallel = "dp2";
  recipe_.steps = 8;
  const std::string folder = prepare("never-room", recipe_);
  const InTheWay thing(folder, 8);
  int asked = 0;
  RunOptions options{.folder = folder, .fence = {0, 12}};
  options.last_save = {.pause_first = std::chrono::milliseconds(1), .for_all = std::chrono::milliseconds(50)};
  const auto all = run_all(options, "dp2", [&](int rank) {
    if (rank == 0 && ++asked == 5) thing.come();
    return false;
  });
  thing.leave();
  ASSERT_FALSE(all.front().ok());
  EXPECT_EQ(all.front().error().code(), ErrorCode::unknown) << "its own word; the others may hear it from it";
  for (const auto& ending : all) {
    ASSERT_FALSE(ending.ok());
    EXPECT_NE(ending.error().text().find("it is missing in " + folder), std::string::npos)
        << ending.error().text();
  }
  // The next attempt says from the start what is safe.
  testing::internal::CaptureStdout();
  options.fence = {1, 12};
  for (const auto& ending : run_all(options, "dp2", [](int) { return false; })) EXPECT_TRUE(ending.ok());
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("resumed at step 4 "), std::string::npos) << printed;
  EXPECT_EQ(printed.find("no checkpoint yet"), std::string::npos) << printed;
  EXPECT_NE(printed.find("left  checkpoint "), std::string::npos) << printed;
}

TEST_F(TrainerTest, WhoWasReplacedWritesNoLineIntoTheMetricsOfTheNext) {
  const std::string folder = prepare("thaws", recipe_);
  std::optional<std::vector<Result<Ending>>> second;
  int asked = 0;
  // The first one stands still in its sixth step, and the next attempt does all the rest.
  const auto first = run_all({.folder = folder, .fence = {0, 12}}, "1", [&](int) {
    if (++asked == 6) second = run_all({.folder = folder, .fence = {1, 12}}, "1", [](int) { return false; });
    return false;
  });
  ASSERT_TRUE(second && second->front().ok()) << second->front().error().text();
  ASSERT_FALSE(first.front().ok()) << "it was replaced";
  EXPECT_EQ(steps_of(folder).size(), 12U);
  EXPECT_EQ(steps_of(folder).rbegin()->first, 12);
}

TEST_F(TrainerTest, AnotherModelThanTheCheckpointsIsRefusedAndNothingIsLost) {
  const std::string folder = prepare("shape", recipe_);
  ASSERT_TRUE(run(folder, "1", {0, 1}, 9).ok());
  const auto before = checkpoint::steps_in(folder + "/checkpoints").value();
  recipe_.layers = 2;
  prepare("shape", recipe_);
  const auto ending = run(folder, "1", {0, 2});
  ASSERT_FALSE(ending.ok());
  EXPECT_NE(ending.error().text().find("another model than the recipe's: layers is 4 there and 2 here"),
            std::string::npos)
      << ending.error().text();
  EXPECT_EQ(ending.error().code(), ErrorCode::invalid);
  EXPECT_EQ(checkpoint::steps_in(folder + "/checkpoints").value(), before);
  recipe_.layers = 4;
  prepare("shape", recipe_);
  EXPECT_TRUE(run(folder, "1", {0, 3}).ok());
}

TEST_F(TrainerTest, ADiskThatDoesNotGiveTheBytesIsNoDamage) {
  recipe_.parallel = "dp2";
  const std::string folder = prepare("unreadable", recipe_);
  ASSERT_TRUE(run(folder, "dp2", 0, 9).ok());
  const auto before = checkpoint::steps_in(folder + "/checkpoints").value();
  const std::string file =
      checkpoint::checkpoint_path(folder + "/checkpoints", before.back()) + "/rank-00001.safetensors";
  fs::rename(file, file + ".away");
  fs::create_symlink(file, file);  // opening it fails, and says nothing of what was written
  const auto ending = run(folder, "dp2", 1);
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().code(), ErrorCode::failed) << "a later attempt may fare better";
  EXPECT_NE(ending.error().text().find("rank-00001.safetensors"), std::string::npos) << ending.error().text();
  EXPECT_EQ(checkpoint::steps_in(folder + "/checkpoints").value(), before);
  fs::remove(file);
  fs::rename(file + ".away", file);
  testing::internal::CaptureStdout();
  ASSERT_TRUE(run(folder, "dp2", 2).ok());
  EXPECT_NE(testing::internal::GetCapturedStdout().find("resumed at step 9 "), std::string::npos);
}

TEST_F(TrainerTest, WantOfMemoryIsNoDamage) {
  recipe_.steps = 4;
  const std::string folder = prepare("scarce", recipe_);
  ASSERT_TRUE(run(folder, "1").ok());
  const std::string checkpoints = folder + "/checkpoints";
  const auto before = checkpoint::steps_in(checkpoints).value();
  const auto shape = model::parse_config(read_text(folder + "/config.json")).value();
  const auto load = [&](std::size_t allocation_bytes_max) {
    std::optional<Result<std::int64_t>> step;
    comm::run_threads(1, comm::Transport::automatic, [&](comm::Communicator& world) {
      Groups alone;
      Transformer model({.setup = Setup::make(shape, alone, 1, shape.context, at::kCPU)}, alone);
      const Scarcity want(allocation_bytes_max);
      step = caught([&] {
        return resume({.checkpoints = checkpoints, .shape = shape}, world, model.parameters(),
                      [](const auto&) {})
            .value()
            .step;
      });
    });
    return *step;
  };
  // All of its tensors are in one block, which does not fit.
  const auto block = fs::file_size(checkpoint::checkpoint_path(checkpoints, 4) + "/rank-00000.safetensors");
  ASSERT_LE(block, checkpoint::block_bytes);
  const auto scarce = load(block - 1);
  ASSERT_FALSE(scarce.ok());
  EXPECT_EQ(scarce.error().code(), ErrorCode::failed) << "a later attempt may fare better";
  EXPECT_NE(scarce.error().text().find("std::bad_alloc"), std::string::npos) << scarce.error().text();
  EXPECT_EQ(checkpoint::steps_in(checkpoints).value(), before) << "nothing is set aside";
  const auto ample = load(std::size_t{1} << 30);
  ASSERT_TRUE(ample.ok()) << ample.error().text();
  EXPECT_EQ(*ample, 4);
}

// A run that began on hosts and is to go on with GPUs, where f32 is not what is chosen.
TEST_F(TrainerTest, ThePrecisionOfARunIsNotForgottenWhileItsCheckpointsCannotBeRead) {
  recipe_.steps = 4;
  ASSERT_EQ(recipe_.precision, "auto");
  const std::string folder = prepare("precision", recipe_);
  ASSERT_TRUE(run(folder, "1").ok());
  const recipe::Submission submission{.recipe = recipe_, .config = read_text(folder + "/config.json")};
  const auto planned = [&] {
    std::optional<Result<std::string>> precision;
    comm::run_threads(1, comm::Transport::automatic, [&](comm::Communicator& world) {
      precision =
          caught([&] { return agree({.folder = folder, .device = 0}, world, &submission).recipe.precision; });
    });
    return *precision;
  };
  EXPECT_EQ(*planned(), "f32");
  const std::string manifest = checkpoint::checkpoint_path(folder + "/checkpoints", 4) + "/manifest.json";
  fs::rename(manifest, manifest + ".away");
  fs::create_symlink(manifest, manifest);
  const auto refused = planned();
  ASSERT_FALSE(refused.ok()) << *refused;
  EXPECT_EQ(refused.error().code(), ErrorCode::failed) << "a later attempt may fare better";
  fs::remove(manifest);
  fs::rename(manifest + ".away", manifest);
  EXPECT_EQ(*planned(), "f32");
}

TEST_F(TrainerTest, ARunThatHadCheckpointsBeginsAnewOnlyWhenTold) {
  const std::string folder = prepare("lost", recipe_);
  ASSERT_TRUE(run(folder, "1", {0, 1}, 6).ok());
  const auto steps = checkpoint::steps_in(folder + "/checkpoints").value();
  for (const std::int64_t step : steps)
    flip_a_byte(checkpoint::checkpoint_path(folder + "/checkpoints", step) + "/manifest.json", 40);
  for (const std::int64_t job : {2, 3}) {
    const auto refused = run(folder, "1", {0, job});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
    EXPECT_NE(refused.error().text().find("the run had a checkpoint of step 6"), std::string::npos)
        << refused.error().text();
  }
  recipe::Submission submission{.recipe = recipe_, .config = read_text(folder + "/config.json")};
  submission.from_scratch = true;
  const std::string path = submit(folder, submission);
  int asked = 0;
  auto begun = run_all({.folder = folder, .fence = {0, 4}, .submission = path}, "1",
                       [&](int) { return ++asked >= 5; });
  ASSERT_TRUE(begun.front().ok()) << begun.front().error().text();
  EXPECT_TRUE(fs::exists(folder + "/checkpoints.old-1/step-00000006.damaged-1"));
  EXPECT_TRUE(fs::exists(folder + "/metrics.jsonl.old-1"));
  EXPECT_EQ(steps_of(folder).size(), 5U);
  // The next attempt of the same job goes on with what the first has made.
  begun = run_all({.folder = folder, .fence = {1, 4}, .submission = path}, "1", [](int) { return false; });
  ASSERT_TRUE(begun.front().ok()) << begun.front().error().text();
  EXPECT_EQ(steps_of(folder).size(), 12U);
  EXPECT_FALSE(fs::exists(folder + "/checkpoints.old-2"));
}

TEST_F(TrainerTest, AnOlderJobThatComesBackChangesNothingOfWhatANewerOneHasMade) {
  recipe_.steps = 4;
  recipe_.checkpoint_every = 2;
  const std::string folder = prepare("comes-back", recipe_);
  recipe::Submission submission{.recipe = recipe_, .config = read_text(folder + "/config.json")};
  submission.from_scratch = submission.take_over = true;
  submission.recipe.learning_rate = 1e-5;
  const std::string path = submit(folder, submission);
  const auto stop_at_once = [](int) { return true; };
  RunOptions older{.folder = folder, .fence = {0, 12, "east"}, .submission = path};
  const auto begun = run_all(older, "1", stop_at_once);
  ASSERT_TRUE(begun.front().ok()) << begun.front().error().text();
  prepare("comes-back", recipe_);
  ASSERT_TRUE(run(folder, "1", {0, 13, "east"}).ok());
  const std::string recipe = read_text(folder + "/recipe.json");
  const auto unchanged = [&] {
    EXPECT_EQ(checkpoint::steps_in(folder + "/checkpoints").value().back(), 4);
    EXPECT_EQ(steps_of(folder).size(), 4U);
    EXPECT_FALSE(fs::exists(folder + "/checkpoints.old-2"));
    EXPECT_EQ(*checkpoint::claimed_by(folder + "/checkpoints").value(), checkpoint::Fence(0, 13, "east"));
    EXPECT_EQ(read_text(folder + "/recipe.json"), recipe);
  };
  older.fence.attempt = 1;
  const auto back = run_all(older, "1", stop_at_once);
  ASSERT_FALSE(back.front().ok());
  EXPECT_EQ(exit_code_of(back.front().error()), exit_final) << back.front().error().text();
  unchanged();
  // The same where it had the folder already when the newer one claimed it.
  for (const bool from_scratch : {true, false}) {
    submission.from_scratch = from_scratch;
    comm::run_threads(1, comm::Transport::automatic, [&](comm::Communicator& world) {
      const auto agreed = caught([&] { agree(older, world, &submission); });
      ASSERT_FALSE(agreed.ok());
      EXPECT_NE(agreed.error().text().find("job 12, attempt 1 is fenced: job 13, attempt 0 has claimed"),
                std::string::npos)
          << agreed.error().text();
    });
    unchanged();
  }
}

TEST_F(TrainerTest, TwoRunsInOneFolderAreOne) {
  recipe_.steps = 4000;
  const std::string folder = prepare("shared", recipe_);
  std::optional<std::vector<Result<Ending>>> second;
  int asked = 0;
  const auto first = run_all({.folder = folder, .fence = {0, 12}}, "1", [&](int) {
    if (!second && ++asked > 3)
      second = run_all({.folder = folder, .fence = {0, 13}}, "1", [](int) { return false; });
    return second.has_value();
  });
  ASSERT_TRUE(first.front().ok()) << first.front().error().text();
  ASSERT_FALSE(second->front().ok());
  EXPECT_NE(second->front().error().text().find("job 12 (attempt 0, on node "), std::string::npos)
      << second->front().error().text();
  EXPECT_NE(second->front().error().text().find("trains in this folder since "), std::string::npos);
  steps_of(folder);  // no step is there twice
}

TEST_F(TrainerTest, ARunThatDivergesIsStoppedForGood) {
  recipe_.parallel = "dp2";
  recipe_.learning_rate = 900;
  recipe_.weight_decay = 900;
  recipe_.warmup = 0;
  recipe_.clip = 0;
  recipe_.steps = 200;
  recipe_.bad_steps_max = 3;
  const std::string folder = prepare("diverges", recipe_);
  const auto ending = run(folder, "dp2");
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().code(), ErrorCode::invalid) << "the next attempt would diverge too";
  EXPECT_NE(ending.error().text().find("not finite in 3 steps in a row"), std::string::npos)
      << ending.error().text();
  const std::string metrics = read_text(folder + "/metrics.jsonl");
  EXPECT_NE(metrics.find("\"skipped\":0"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\"skipped\":2"), std::string::npos) << metrics;
}

TEST_F(TrainerTest, SaysWhatIsMissing) {
  const auto nothing = run((root_ / "nowhere").string(), "1");
  ASSERT_FALSE(nothing.ok());
  EXPECT_NE(nothing.error().text().find("recipe.json"), std::string::npos);
  recipe_.data = (root_ / "no data").string();
  const std::string folder = (root_ / "dry").string();
  fs::create_directories(folder);
  std::ofstream(folder + "/recipe.json") << recipe::json_of(recipe_);
  std::ofstream(folder + "/config.json")
      << R"({"model_type":"gpt2","vocab_size":257,"n_layer":1,"n_embd":8,"n_head":1,"n_positions":32})";
  const auto dry = run(folder, "1");
  ASSERT_FALSE(dry.ok());
  EXPECT_NE(dry.error().text().find("no data"), std::string::npos) << dry.error().text();
}

}  // namespace
}  // namespace tutti::train
