// A checkpoint of any mesh, loaded by any other one and saved again, holds the same bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "comm/ranks_test.hpp"
#include "learn/checkpoint/all_tensors_test.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/manifest.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/initial_values.hpp"
#include "learn/train/saver.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

model::Shape shape_of(std::string_view family) {
  return model::make_shape(family, {.vocabulary = 61,
                                    .layers = 4,
                                    .hidden = 32,
                                    .heads = 4,
                                    .kv_heads = family == "gpt2" ? 4 : 2,
                                    .head_size = family == "qwen3" ? 6 : 0,
                                    .intermediate = 96,
                                    .context = 16});
}

// Weights as a new model has them; moments that tell every element from every other one.
Parameters::Source recognisable_values() {
  return [weights = initial_values(3)](Kind kind, const model::Tensor& tensor, const checkpoint::Box& box,
                                       std::span<float> out) {
    weights(Kind::weight, tensor, box, out);
    for (float& value : out)
      value = value * 3 + (kind == Kind::first_moment ? 1.0F : kind == Kind::weight ? 0.0F : 2.0F);
  };
}

struct Way {
  plan::Mesh mesh;
  Zero zero = Zero::none;
};

// Fills a rank's part, and reads no more for it than the files that hold something of it, each once.
void load(Parameters& parameters, const std::string& path) {
  const auto opened = require(checkpoint::Checkpoint::open(path));
  std::set<std::size_t> needed;
  parameters.fill(
      [&](Kind kind, const model::Tensor& tensor, const checkpoint::Box& box, std::span<float> out) {
        const std::string name = stored_name(kind, tensor.name);
        for (const checkpoint::Place& place : opened.tensors().at(name).places) {
          if (checkpoint::overlap(place.box, box)) needed.insert(place.file);
        }
        require(opened.read(name, box, std::as_writable_bytes(out)));
      },
      true);
  const auto files = require(checkpoint::load_manifest(path)).files;
  std::uint64_t needed_bytes = 0;
  for (const std::size_t file : needed) {
    EXPECT_LE(files[file].bytes, checkpoint::block_bytes) << "a file is read as a whole";
    needed_bytes += files[file].bytes;
  }
  EXPECT_EQ(opened.bytes_read(), needed_bytes) << needed.size() << " of " << files.size() << " files";
}

// Each rank fills its part from the source and saves it as a checkpoint of that step.
void save(const Way& way, const model::Shape& shape, const std::string& folder, std::int64_t step,
          const std::string& load_from) {
  comm::run_threads(way.mesh.size(), comm::Transport::automatic, [&](comm::Communicator& world) {
    const auto done = caught([&] {
      Saver saver({.folder = folder, .kept = 100}, world);
      Groups groups = Groups::make(world, way.mesh);
      Transformer model({.setup = Setup::make(shape, groups, 2, 16, at::kCPU), .keeping = {.zero = way.zero}},
                        groups);
      if (load_from.empty()) {
        model.parameters().fill(recognisable_values(), true);
      } else {
        load(model.parameters(), load_from);
      }
      model.parameters().publish();
      saver.begin(model.parameters(),
                  {.step = step, .mesh = way.mesh.text(), .model_config = model::config_json(shape)});
      saver.provide_loss(1.0);
      require(saver.finish());
    });
    EXPECT_TRUE(done.ok()) << done.error().text();
  });
}

std::map<std::string, std::vector<float>> tensors_of(const std::string& path) {
  return checkpoint::all_tensors(checkpoint::Checkpoint::open(path));
}

TEST(Resharding, ThereAndBackIsTheSame) {
  std::string name = (fs::temp_directory_path() / "resharding_test_XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const Way cube{{.data = 2, .tensor = 2, .pipeline = 2}};
  const std::vector<Way> others{{{}},
                                {{.tensor = 2}},
                                {{.data = 2, .pipeline = 2}},
                                {{.data = 2}, Zero::optimizer},
                                {{.data = 3}, Zero::parameters},
                                {{.data = 2, .tensor = 2}, Zero::gradients},
                                {{.pipeline = 4}}};
  for (const std::string family : {"gpt2", "llama", "qwen2", "qwen3"}) {
    const auto shape = shape_of(family);
    const std::string folder = name + "/" + family;
    ASSERT_TRUE(checkpoint::claim(folder, 0).ok());
    std::int64_t step = 1;
    save(cube, shape, folder, step, "");
    const auto expected = tensors_of(checkpoint::checkpoint_path(folder, step));
    EXPECT_EQ(
        expected.size(), 3 * [&] {
          std::size_t count = 0;
          for (const auto& unit : model::units(shape)) count += unit.tensors.size();
          return count;
        }());
    for (const Way& other : others) {
      save(other, shape, folder, step + 1, checkpoint::checkpoint_path(folder, step));
      EXPECT_EQ(tensors_of(checkpoint::checkpoint_path(folder, step + 1)), expected) << other.mesh.text();
      save(cube, shape, folder, step + 2, checkpoint::checkpoint_path(folder, step + 1));
      EXPECT_EQ(tensors_of(checkpoint::checkpoint_path(folder, step + 2)), expected)
          << "back from " << other.mesh.text();
      step += 2;
    }
  }
  fs::remove_all(name);
}

}  // namespace
}  // namespace tutti::train
