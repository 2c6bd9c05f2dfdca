// A training's run for tests: a folder with data to learn from, and all its ranks as threads.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/json/parse.hpp"
#include "comm/ranks_test.hpp"
#include "learn/checkpoint/all_tensors_test.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/dataset/writer.hpp"
#include "learn/recipe/recipe.hpp"
#include "learn/recipe/submission.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "learn/train/trainer.hpp"

namespace tutti::train {

namespace fs = std::filesystem;

// A run in a folder of its own, with data to learn from.
class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    std::string name = (fs::temp_directory_path() / "trainer_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    pack("data", 400);
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

  void pack(const std::string& name, int lines) {
    const auto tokenizer = tokenizer::Tokenizer::bytes();
    auto writer = dataset::Writer::create({.folder = (root_ / name).string(),
                                           .tokenizer_json = tokenizer.json(),
                                           .vocabulary = tokenizer.vocabulary(),
                                           .end_of_text = *tokenizer.end_of_text()});
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    std::string text;
    for (int line = 0; line < lines; ++line)
      text += "line " + std::to_string(line * 37 % 101) + " of a text to learn\n";
    ASSERT_TRUE(writer->add_document(tokenizer.encode(text)).ok());
    ASSERT_TRUE(writer->finish().ok());
  }

  std::string prepare(const std::string& name, const recipe::Recipe& recipe) {
    const fs::path folder = root_ / name;
    fs::create_directories(folder);
    std::ofstream(folder / "recipe.json") << recipe::json_of(recipe);
    const auto data = dataset::Dataset::open(recipe.data);
    const auto shape = recipe::shape_of(recipe, "", data->vocabulary());
    std::ofstream(folder / "config.json") << model::config_json(*shape);
    return folder.string();
  }

  // All ranks of a run until it ends; `stop_at` asks it to stop in that step of its own.
  Result<Ending> run(const std::string& folder, const std::string& mesh, const checkpoint::Fence& fence = {},
                     std::int64_t stop_at = -1) {
    std::int64_t asked = 0;
    auto all = run_all({.folder = folder, .fence = fence}, mesh,
                       [&](int rank) { return stop_at >= 0 && rank == 0 && ++asked >= stop_at; });
    for (auto& ending : all) {
      if (!ending) return ending;
    }
    return all.front();
  }

  // How each rank ended; `stop` is asked by each.
  // `before` makes the threads of a rank differ from those of others.
  static std::vector<Result<Ending>> run_all(
      RunOptions options, const std::string& mesh, const std::function<bool(int)>& stop,
      const std::function<void(int)>& before = [](int) {}) {
    const int ranks = plan::parse_mesh(mesh)->size();
    std::vector<Result<Ending>> endings(static_cast<std::size_t>(ranks), failed("it did not run"));
    // Quick, and yet with room for a machine that is busy with something else.
    options.ownership.beat_every = std::chrono::milliseconds(20);
    options.ownership.dead_after = std::chrono::seconds(3);
    comm::run_threads(ranks, comm::Transport::automatic, [&](comm::Communicator& world) {
      at::set_num_threads(1);
      const int rank = world.rank();
      before(rank);
      // The line is the run's alone, as in a process: what the run closes is closed.
      comm::Communicator line = std::move(world);
      endings[static_cast<std::size_t>(rank)] = train(options, std::move(line), [&] { return stop(rank); });
    });
    return endings;
  }

  std::string submit(const std::string& folder, const recipe::Submission& submission) {
    const std::string path = folder + "/submission.json";
    std::ofstream(path) << recipe::json_of(submission);
    return path;
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
      const Line read{line["loss"].number().value_or(std::nan("")), line["data"].count().value()};
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

  static std::string read_text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // Far below any deadline of an operation, which is a minute here, and far above what a busy machine needs.
  static constexpr auto ends_at_once = std::chrono::seconds(15);

  fs::path root_;
  recipe::Recipe recipe_;
};

}  // namespace tutti::train
