// A run of `tutti train` for tests: its data, and checkpoints with weights of one number each, so that who
// has loaded one can tell which. Removed with its object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "learn/checkpoint/foreign.hpp"
#include "learn/checkpoint/made_checkpoint_test.hpp"
#include "learn/dataset/writer.hpp"
#include "learn/recipe/recipe.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "serve/cpu/families_test.hpp"

namespace tutti::serve {

class MadeRun {
 public:
  MadeRun() {
    std::string place = (std::filesystem::temp_directory_path() / "tutti-made-run-XXXXXX").string();
    place_ = mkdtemp(place.data());
    shape_.vocabulary = vocabulary;
    auto data = dataset::Writer::create({.folder = place_ + "/data",
                                         .tokenizer_json = tokenizer::Tokenizer::bytes().json(),
                                         .vocabulary = vocabulary,
                                         .end_of_text = vocabulary - 1});
    EXPECT_TRUE(data && data->add_document(std::vector<std::uint32_t>{1, 2, 3}) && data->finish());
    std::filesystem::create_directory(path());
  }
  MadeRun(const MadeRun&) = delete;
  MadeRun& operator=(const MadeRun&) = delete;
  ~MadeRun() { std::filesystem::remove_all(place_); }

  std::string path() const { return place_ + "/run"; }
  std::string step_path(std::int64_t step) const { return checkpoint::checkpoint_path(checkpoints(), step); }
  const model::Shape& shape() const { return shape_; }

  // As a training saves one, with all weights `number`, and perhaps removes those before it.
  void save(std::int64_t step, float number) const {
    std::vector<checkpoint::Made> made;
    for (const model::Unit& unit : model::units(shape_)) {
      for (const model::Tensor& tensor : unit.tensors) {
        made.push_back({std::string(checkpoint::model_prefix) + tensor.name, tensor.shape,
                        std::vector<float>(static_cast<std::size_t>(tensor.elements()), number)});
      }
    }
    checkpoint::Rank rank;
    for (const checkpoint::Made& tensor : made) rank.hold(tensor, checkpoint::whole(tensor.shape));
    recipe::Recipe recipe;
    recipe.data = place_ + "/data";
    const auto written = checkpoint::write_checkpoint(
        checkpoints(),
        {.step = step, .recipe = recipe::json_of(recipe), .model_config = model::config_json(shape_)},
        {rank});
    EXPECT_TRUE(written) << written.error().text();
  }
  void keep_only_the_newest() const {
    const auto pruned = checkpoint::prune(checkpoints(), 1);
    EXPECT_TRUE(pruned) << pruned.error().text();
  }

 private:
  static constexpr std::int64_t vocabulary = 257;

  std::string checkpoints() const { return path() + "/checkpoints"; }

  std::string place_;
  model::Shape shape_ = cpu::small_llama();
};

}  // namespace tutti::serve
