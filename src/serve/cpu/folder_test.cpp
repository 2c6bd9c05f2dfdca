#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include "learn/safetensors/header.hpp"
#include "serve/cpu/families_test.hpp"
#include "serve/cpu/model.hpp"
#include "serve/cpu/reference_test.hpp"

namespace tutti::serve::cpu {
namespace {

using safetensors::Type;

// A tensor as a stranger might write it.
struct Written {
  std::string name;
  Type type = Type::f32;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// A folder of Hugging Face, of a small model whose parts a test may bend.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-cpu-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }

  void write_config(const std::string& config) const { std::ofstream(folder_ + "/config.json") << config; }

  // Their tensors, made of ours.
  static std::vector<Written> tensors_of(const model::Shape& shape, const MadeTensors& made, Type type) {
    std::vector<Written> all;
    for (const model::ForeignTensor& theirs : model::foreign_tensors(shape)) {
      Written written{theirs.name, type, theirs.shape, {}};
      for (const std::string& part : theirs.parts) {
        const auto& values = made.at(part).values;
        written.values.insert(written.values.end(), values.begin(), values.end());
      }
      if (theirs.transposed) {
        const auto rows = static_cast<std::size_t>(theirs.shape[1]);
        const auto columns = static_cast<std::size_t>(theirs.shape[0]);
        std::vector<float> turned(written.values.size());
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t column = 0; column < columns; ++column)
            turned[column * rows + row] = written.values[row * columns + column];
        written.values = std::move(turned);
      }
      all.push_back(std::move(written));
    }
    return all;
  }

  void write_tensors(const std::vector<Written>& tensors) const {
    std::vector<safetensors::Entry> entries;
    for (const Written& tensor : tensors) entries.push_back({tensor.name, tensor.type, tensor.shape});
    const safetensors::Layout layout = safetensors::lay_out(entries, {});
    std::string bytes = layout.header;
    for (const Written& tensor : tensors) {
      std::vector<std::byte> values(*safetensors::bytes_of(tensor.type, tensor.shape));
      if (safetensors::is_weight(tensor.type)) safetensors::from_floats(tensor.values, tensor.type, values);
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
    }
    std::ofstream(folder_ + "/model.safetensors", std::ios::binary) << bytes;
  }

  Result<std::unique_ptr<Model>> open() const {
    return open_model(folder_, {.threads = 2, .cache_bytes = 16 << 20});
  }

 private:
  std::string folder_;
};

std::vector<float> last_logits(Model& model) {
  const std::vector<Token> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  const std::vector<BlockId> blocks{1};
  const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 1};
  EXPECT_TRUE(model.step({&chunk, 1}));
  return model.logits(0).value_or({});
}

TEST_F(FolderTest, GivesTheModelThatItHolds) {
  for (const Family& family : small_families()) {
    if (family.name == "gelu" || family.name == "mixture_of_all_weights") continue;
    const MadeTensors made = made_tensors(family.shape);
    write_config(model::config_json(family.shape));
    write_tensors(tensors_of(family.shape, made, Type::f32));
    const auto opened = open();
    ASSERT_TRUE(opened) << family.name << ": " << opened.error().text();
    const auto expected = make_model(family.shape, {.threads = 2, .cache_bytes = 16 << 20}, reader_of(made));
    ASSERT_TRUE(expected) << expected.error().text();
    EXPECT_EQ(last_logits(**opened), last_logits(**expected)) << family.name;
  }
}

TEST_F(FolderTest, TakesHalvesForWhatTheyAre) {
  const model::Shape shape = small_llama();
  MadeTensors made = made_tensors(shape);
  // Numbers that all types hold.
  for (auto& [name, tensor] : made)
    for (float& value : tensor.values) value = std::round(value * 16) / 16;
  write_config(model::config_json(shape));
  const auto expected = make_model(shape, {.threads = 2, .cache_bytes = 16 << 20}, reader_of(made));
  ASSERT_TRUE(expected);
  for (const Type type : {Type::bf16, Type::f16}) {
    write_tensors(tensors_of(shape, made, type));
    const auto opened = open();
    ASSERT_TRUE(opened) << opened.error().text();
    EXPECT_EQ(last_logits(**opened), last_logits(**expected));
  }
}

TEST_F(FolderTest, IsRefusedByNameIfItLies) {
  const model::Shape shape = small_llama();
  const MadeTensors made = made_tensors(shape);
  const auto honest = tensors_of(shape, made, Type::f32);
  const std::string odd = "model.layers.1.mlp.up_proj.weight";
  const auto find = [&](std::vector<Written>& all) -> Written& {
    return *std::find_if(all.begin(), all.end(), [&](const Written& tensor) { return tensor.name == odd; });
  };
  struct Lie {
    const char* what;
    std::string config;
    std::function<void(std::vector<Written>&)> bend;
    std::string said;
  };
  const std::string config = model::config_json(shape);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bent = config;
    const auto at = bent.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return bent.replace(at, from.size(), to);
  };
  const std::vector<Lie> lies{
      {"no configuration of a model", "[]", nullptr, ""},
      {"a model that nobody knows", with("\"llama\"", "\"mamba\""), nullptr, "mamba"},
      {"more layers than there are", with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"), nullptr,
       "model.layers.2."},
      {"layers without end", with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4000000000"), nullptr,
       ""},
      {"a size of nothing", with("\"hidden_size\": 64", "\"hidden_size\": 0"), nullptr, ""},
      {"a size that others do not have", with("\"hidden_size\": 64", "\"hidden_size\": 128"), nullptr,
       "model."},
      {"a tensor is missing", config, [&](auto& all) { std::swap(find(all), all.back()), all.pop_back(); },
       odd},
      {"a tensor of another shape", config,
       [&](auto& all) { std::swap(find(all).shape[0], find(all).shape[1]); }, odd},
      {"a tensor of another type", config, [&](auto& all) { find(all).type = Type::i32; }, odd},
      {"a tensor too many", config,
       [&](auto& all) {
         all.push_back({"model.layers.0.extra", Type::f32, {1}, {1}});
       },
       "model.layers.0.extra"},
  };
  for (const Lie& lie : lies) {
    auto tensors = honest;
    if (lie.bend) lie.bend(tensors);
    write_config(lie.config);
    write_tensors(tensors);
    const auto opened = open();
    ASSERT_FALSE(opened) << lie.what;
    EXPECT_NE(opened.error().text().find(lie.said), std::string::npos)
        << lie.what << ": " << opened.error().text();
  }
  write_config(config);
  write_tensors(honest);
  EXPECT_TRUE(open());
  std::filesystem::resize_file(folder() + "/model.safetensors", 5000);
  EXPECT_FALSE(open());
  std::filesystem::remove(folder() + "/config.json");
  EXPECT_FALSE(open());
}

}  // namespace
}  // namespace tutti::serve::cpu
