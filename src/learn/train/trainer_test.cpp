#include "learn/train/trainer.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "base/json/parse.hpp"
#include "base/prng.hpp"
#include "comm/ranks_test.hpp"
#include "learn/checkpoint/all_tensors_test.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/dataset/order.hpp"
#include "learn/dataset/writer.hpp"
#include "learn/recipe/recipe.hpp"
#include "learn/tokenizer/tokenizer.hpp"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

// A run in a folder of its own, with data to learn from.
class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    std::string name = (fs::temp_directory_path() / "trainer_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    const auto tokenizer = tokenizer::Tokenizer::bytes();
    auto writer = dataset::Writer::create({.folder = (root_ / "data").string(),
                                           .tokenizer_json = tokenizer.json(),
                                           .vocabulary = tokenizer.vocabulary(),
                                           .end_of_text = *tokenizer.end_of_text()});
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    std::string text;
    for (int line = 0; line < 400; ++line)
      text += "line " + std::to_string(line * 37 % 101) + " of a text to learn\n";
    ASSERT_TRUE(writer->add_document(tokenizer.encode(text)).ok());
    ASSERT_TRUE(writer->finish().ok());
    recipe_.data = (root_ / "data").string();
    recipe_.layers = 4;
    recipe_.hidden = 32;
    recipe_.heads = 4;
    recipe_.context = 32;
    recipe_.batch = 8;
    recipe_.steps = 12;
    recipe_.warmup = 3;
    recipe_.learning_rate = 3e-3;
    recipe_.checkpoint_every = 4;
    recipe_.checkpoints_kept = 10;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string prepare(const std::string& name, const recipe::Recipe& recipe) {
    const fs::path folder = root_ / name;
    fs::create_directories(folder);
    std::ofstream(folder / "recipe.json") << recipe::json_of(recipe);
    const auto data = dataset::Dataset::open(recipe.data);
    const auto shape = recipe::shape_of(recipe, "", data->vocabulary());
    std::ofstream(folder / "config.json") << model::config_json(*shape);
    return folder.string();
  }

  // All ranks of a run until it ends; `stop_at` asks it to stop once that many steps are in the metrics.
  Result<Ending> run(const std::string& folder, const std::string& mesh, std::int64_t attempt = 0,
                     std::int64_t stop_at = -1) {
    const auto parsed = plan::parse_mesh(mesh);
    Result<Ending> ending = failed("no rank ran");
    std::mutex mutex;
    comm::run_threads(parsed->size(), comm::Transport::automatic, [&](comm::Communicator& world) {
      at::set_num_threads(1);
      const int rank = world.rank();
      auto mine = train({.folder = folder, .attempt = attempt, .ranks_of_node = parsed->size()}, world, [&] {
        return stop_at >= 0 && rank == 0 && steps_of(folder).size() + 1 >= static_cast<std::size_t>(stop_at);
      });
      const std::lock_guard lock(mutex);
      if (rank == 0 || !mine) ending = mine;
    });
    return ending;
  }

  struct Line {
    double loss;
    std::uint64_t data;
  };
  static std::map<std::int64_t, Line> steps_of(const std::string& folder) {
    std::map<std::int64_t, Line> lines;
    std::ifstream in(folder + "/metrics.jsonl");
    std::string text;
    while (std::getline(in, text)) {
      json::Value line = *json::parse(text);
      const Line read{line["loss"].number().value(), line["data"].count().value()};
      EXPECT_TRUE(lines.emplace(line["step"].whole().value(), read).second) << "a step is there twice";
    }
    return lines;
  }

  static std::map<std::string, std::vector<float>> tensors_of(const std::string& folder, std::int64_t step) {
    return checkpoint::all_tensors(checkpoint::Checkpoint::open(folder + "/checkpoints", step));
  }

  void flip_a_byte(const std::string& file, std::int64_t place) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(place);
    const char byte = static_cast<char>(stream.get());
    stream.seekp(place);
    stream.put(static_cast<char>(byte ^ 1));
  }

  fs::path root_;
  recipe::Recipe recipe_;
};

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
  EXPECT_EQ(steps_of(folder).size(), 12U);
}

TEST_F(TrainerTest, RefusesAStateThatGivesAnotherLoss) {
  const std::string folder = prepare("diverged", recipe_);
  ASSERT_TRUE(run(folder, "1", 0, 6).ok());
  // A checkpoint that is whole, and says something else than its tensors do.
  auto manifest = checkpoint::load_manifest(folder + "/checkpoints", 6);
  ASSERT_TRUE(manifest.ok());
  manifest->state.loss += 0.001;
  std::ofstream(checkpoint::checkpoint_path(folder + "/checkpoints", 6) + "/manifest.json")
      << checkpoint::encode(*manifest);
  const auto ending = run(folder, "1", 1);
  ASSERT_FALSE(ending.ok());
  EXPECT_NE(ending.error().text().find("gives a loss of"), std::string::npos) << ending.error().text();
  EXPECT_NE(ending.error().text().find("when it was saved"), std::string::npos);
}

TEST_F(TrainerTest, AnOlderAttemptIsFenced) {
  const std::string folder = prepare("fenced", recipe_);
  ASSERT_TRUE(checkpoint::claim(folder + "/checkpoints", 5).ok());
  const auto ending = run(folder, "1", 4);
  ASSERT_FALSE(ending.ok());
  EXPECT_NE(ending.error().text().find("attempt"), std::string::npos) << ending.error().text();
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
