#include "serve/lora/adapter.hpp"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "serve/lora/adapter_config.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve::lora {
namespace {

model::Shape small(const std::string& type) {
  model::Shape shape = model::make_shape(type, {.vocabulary = 101,
                                                .layers = 2,
                                                .hidden = 64,
                                                .heads = 4,
                                                .kv_heads = type == "gpt2" ? 4 : 2,
                                                .intermediate = 96,
                                                .context = 128});
  return shape;
}

constexpr const char* least = R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["q_proj"]})";

// `least` with one more key, or with another value for one that it has.
std::string with(const std::string& key, const std::string& value) {
  std::string text = least;
  const std::string name = "\"" + key + "\":";
  const auto at = text.find(name);
  if (at == std::string::npos) return text.insert(text.size() - 1, "," + name + value);
  const auto from = at + name.size();
  const auto end = key == "target_modules" ? text.size() - 1 : text.find(',', from);
  return text.replace(from, end - from, value);
}

TEST(AdapterConfig, SaysHowMuchIsAdded) {
  const auto plain = parse_adapter_config(least);
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_EQ(*plain, (AdapterConfig{.rank = 4, .scale = 2, .targets = {"q_proj"}}));
  EXPECT_EQ(parse_adapter_config(with("use_rslora", "true"))->scale, 4);
  EXPECT_EQ(parse_adapter_config(with("lora_alpha", "0.5"))->scale, 0.125);
  EXPECT_TRUE(parse_adapter_config(with("target_modules", "\"all-linear\""))->targets.empty());
}

TEST(AdapterConfig, PassesOverWhatChangesNothing) {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"use_dora", "false"},
                                                        {"modules_to_save", "null"},
                                                        {"rank_pattern", "{}"},
                                                        {"bias", "\"none\""},
                                                        {"init_lora_weights", "\"gaussian\""},
                                                        {"init_lora_weights", "true"},
                                                        {"lora_dropout", "0.05"},
                                                        {"qalora_group_size", "16"},
                                                        {"a_key_of_next_year", "false"}})
    EXPECT_TRUE(parse_adapter_config(with(key, value))) << key;
}

TEST(AdapterConfig, RefusesByNameWhatIsNotComputed) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"peft_type", "\"LOHA\""},
           {"peft_type", "7"},
           {"r", "0"},
           {"r", "-1"},
           {"r", "513"},
           {"r", "4.5"},
           {"r", "99999999999999999999"},
           {"lora_alpha", "0"},
           {"lora_alpha", "1e300"},
           {"lora_alpha", "\"8\""},
           {"use_rslora", "1"},
           {"use_dora", "true"},
           {"modules_to_save", R"(["lm_head"])"},
           {"rank_pattern", R"({"q_proj":8})"},
           {"alpha_pattern", R"({"q_proj":8})"},
           {"bias", "\"all\""},
           {"lora_bias", "true"},
           {"init_lora_weights", "\"pissa\""},
           {"layer_replication", "[[0,1]]"},
           {"target_parameters", R"(["mlp.experts.gate_up_proj"])"},
           {"trainable_token_indices", "[1]"},
           {"target_modules", "[]"},
           {"target_modules", "[1]"},
           {"target_modules", "7"},
           {"a_key_of_next_year", "true"}}) {
    const auto config = parse_adapter_config(with(key, value));
    ASSERT_FALSE(config) << key << " " << value;
    EXPECT_EQ(config.error().code(), ErrorCode::invalid);
    EXPECT_NE(config.error().text().find("'" + key + "'"), std::string::npos) << config.error().text();
  }
  for (const char* text : {"", "[]", "{", "{}", R"({"peft_type":"LORA"})", R"({"peft_type":"LORA","r":4})"})
    EXPECT_FALSE(parse_adapter_config(text)) << text;
}

// B·A of what is read is what was written, for tensors that are fused and turned elsewhere, too: of the whole
// model, and of the rows and columns that a rank has of it.
void expect_as_made(const model::Shape& whole, const serve::Part& rank) {
  const MadeAdapter made(whole, {.rank = 5, .alpha = 3, .by_root = true});
  const auto opened = Adapter::open(made.path(), whole);
  ASSERT_TRUE(opened) << opened.error().text();
  const Adapter adapter = opened->of_part(whole, rank);
  EXPECT_EQ(adapter.rank(), 5);
  const model::Shape shape = shape_of_part(whole, rank);
  const std::int64_t query = rank.rank * shape.heads * whole.head_size;
  const std::int64_t key = rank.rank * whole.kv_heads / rank.count * whole.head_size;
  const std::int64_t inner = rank.rank * shape.intermediate;
  struct Place {
    Part part;
    std::string name;
    std::int64_t first_row = 0;
    std::int64_t first_column = 0;
  };
  for (std::int64_t layer = 0; layer < whole.layers; ++layer) {
    const model::LayerNames names = model::names_of_layer(whole, layer);
    std::vector<Place> all{
        {Part::queries, names.queries, query, 0},    {Part::keys, names.keys, key, 0},
        {Part::values, names.values, key, 0},        {Part::output, names.output, 0, query},
        {Part::up, names.feed_forward.up, inner, 0}, {Part::down, names.feed_forward.down, 0, inner}};
    if (whole.gated) all.push_back({Part::gate, names.feed_forward.gate, inner, 0});
    for (const auto& [part, name, first_row, first_column] : all) {
      const PartSize size = size_of(shape, part);
      ASSERT_TRUE(adapter.has(layer, part)) << name;
      std::vector<float> a(static_cast<std::size_t>(5 * size.columns));
      std::vector<float> b(static_cast<std::size_t>(size.rows * 5));
      ASSERT_TRUE(adapter.read_shrink(layer, part, a));
      ASSERT_TRUE(adapter.read_expand(layer, part, b));
      const std::vector<double>& expected = made.changes().at(model::weight_of(name));
      for (std::int64_t row = 0; row < size.rows; ++row) {
        for (std::int64_t column = 0; column < size.columns; ++column) {
          double sum = 0;
          for (std::int64_t at = 0; at < 5; ++at)
            sum += static_cast<double>(b[static_cast<std::size_t>(row * 5 + at)]) *
                   static_cast<double>(a[static_cast<std::size_t>(at * size.columns + column)]);
          const std::int64_t at = (first_row + row) * size_of(whole, part).columns + first_column + column;
          ASSERT_NEAR(sum, expected[static_cast<std::size_t>(at)], 1e-6) << name;
        }
      }
    }
    EXPECT_EQ(adapter.has(layer, Part::gate), whole.gated);
  }
}

TEST(Adapter, ReadsWhatPeftWrites) {
  for (const char* type : {"llama", "gpt2"}) expect_as_made(small(type), {});
}

TEST(Adapter, ARankHasItsRowsOfBAndItsColumnsOfA) {
  for (const char* type : {"llama", "gpt2"}) {
    for (const serve::Part rank : {serve::Part{0, 2}, {1, 2}, {0, 4}, {1, 4}, {3, 4}}) {
      SCOPED_TRACE(std::string(type) + ", rank " + std::to_string(rank.rank) + " of " +
                   std::to_string(rank.count));
      expect_as_made(small(type), rank);
    }
  }
}

TEST(Adapter, ChangesWhatItNamesAlone) {
  const model::Shape shape = small("llama");
  const MadeAdapter made(shape, {.targets = {"q_proj", "v_proj"}});
  const auto adapter = Adapter::open(made.path(), shape);
  ASSERT_TRUE(adapter) << adapter.error().text();
  for (const Part part : {Part::keys, Part::output, Part::gate, Part::up, Part::down})
    EXPECT_FALSE(adapter->has(1, part));
  EXPECT_TRUE(adapter->has(1, Part::queries));
  EXPECT_TRUE(adapter->has(1, Part::values));
}

TEST(Adapter, ARouterAndExpertsStayAsTheyAre) {
  model::Shape shape = small("qwen3_moe");
  shape.experts = {.count = 4, .chosen = 2, .intermediate = 32};
  MadeAdapter made(shape, {.targets = {"q_proj"}});
  EXPECT_TRUE(Adapter::open(made.path(), shape));
  made.tensors.push_back({"base_model.model.model.layers.0.mlp.gate.lora_A.weight", {}, {4, 64}, {}});
  made.tensors.back().type = safetensors::Type::i8;
  made.write_tensors();
  const auto adapter = Adapter::open(made.path(), shape);
  ASSERT_FALSE(adapter);
  EXPECT_NE(adapter.error().text().find("mlp.gate.lora_A"), std::string::npos) << adapter.error().text();
}

TEST(Adapter, IsRefusedByNameIfItsFolderLies) {
  const model::Shape shape = small("llama");
  const std::string odd = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight";
  using Tensors = std::vector<MadeAdapter::Written>;
  const auto find = [&](Tensors& all) -> MadeAdapter::Written& {
    return *std::find_if(all.begin(), all.end(), [&](const auto& tensor) { return tensor.name == odd; });
  };
  struct Lie {
    const char* what;
    std::function<void(Tensors&)> bend;
  };
  const std::vector<Lie> lies{
      {"half of a pair is missing", [&](Tensors& all) { std::swap(find(all), all.back()), all.pop_back(); }},
      {"another shape", [&](Tensors& all) { std::swap(find(all).shape[0], find(all).shape[1]); }},
      {"another rank",
       [&](Tensors& all) {
         find(all).shape[1] = 2;
         find(all).values.resize(96 * 2);
       }},
      {"another number of dimensions",
       [&](Tensors& all) {
         find(all).shape = {96, 2, 2};
       }},
      {"another type", [&](Tensors& all) { find(all).type = safetensors::Type::i32; }},
      {"DoRA's vector",
       [&](Tensors& all) {
         find(all).name = "base_model.model.model.layers.1.mlp.up_proj.lora_magnitude_vector";
       }},
      {"a layer that there is not",
       [&](Tensors& all) { find(all).name = "base_model.model.model.layers.2.mlp.up_proj.lora_B.weight"; }},
      {"the head", [&](Tensors& all) { find(all).name = "base_model.model.lm_head.lora_B.weight"; }},
      {"the embedding",
       [&](Tensors& all) { find(all).name = "base_model.model.model.embed_tokens.lora_B.weight"; }},
      {"a norm", [&](Tensors& all) { find(all).name = "base_model.model.model.norm.lora_B.weight"; }},
      {"a name without an end", [&](Tensors& all) { find(all).name = "base_model.model..lora_B.weight"; }},
      {"another's prefix",
       [&](Tensors& all) { find(all).name = "model.layers.1.mlp.up_proj.lora_B.weight"; }},
      {"nothing at all", [&](Tensors& all) { all.clear(); }},
  };
  for (const Lie& lie : lies) {
    MadeAdapter made(shape, {});
    lie.bend(made.tensors);
    made.write_tensors();
    const auto adapter = Adapter::open(made.path(), shape);
    ASSERT_FALSE(adapter) << lie.what;
    EXPECT_EQ(adapter.error().code(), ErrorCode::invalid) << lie.what;
    EXPECT_NE(adapter.error().text().find(made.path()), std::string::npos) << adapter.error().text();
  }

  MadeAdapter made(shape, {.targets = {"q_proj"}});
  made.write("adapter_config.json",
             R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["q_proj","o_proj"]})");
  EXPECT_FALSE(Adapter::open(made.path(), shape)) << "o_proj has no tensors";
  made.write("adapter_config.json", R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["proj"]})");
  EXPECT_FALSE(Adapter::open(made.path(), shape)) << "a module's name ends at a dot";
  made.write("adapter_config.json", R"({"peft_type":"LORA","r":8,"lora_alpha":8})");
  EXPECT_FALSE(Adapter::open(made.path(), shape)) << "another rank than the tensors'";
  made.write_config();
  ASSERT_TRUE(Adapter::open(made.path(), shape));
  EXPECT_FALSE(Adapter::open(made.path(), small("gpt2"))) << "another model";
  std::filesystem::resize_file(made.path() + "/adapter_model.safetensors", 1000);
  EXPECT_FALSE(Adapter::open(made.path(), shape));
  std::filesystem::remove(made.path() + "/adapter_model.safetensors");
  EXPECT_EQ(Adapter::open(made.path(), shape).error().code(), ErrorCode::invalid);
  EXPECT_EQ(Adapter::open(made.path() + "/nowhere", shape).error().code(), ErrorCode::invalid);
}

TEST(Adapter, NumbersThatAreNoneAreRefused) {
  const model::Shape shape = small("llama");
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max()}) {
    MadeAdapter made(shape, {});
    made.tensors[1].values[3] = wrong;
    made.write_tensors();
    const auto adapter = Adapter::open(made.path(), shape);
    ASSERT_TRUE(adapter) << adapter.error().text();
    std::vector<float> floats(64 * 4);
    EXPECT_FALSE(adapter->read_expand(0, Part::queries, floats)) << "scaled, the largest float is infinite";
  }
}

}  // namespace
}  // namespace tutti::serve::lora
