#include "learn/checkpoint/export.hpp"

#include <array>
#include <map>

#include "base/json/parse.hpp"
#include "learn/checkpoint/import.hpp"
#include "learn/checkpoint/made_checkpoint_test.hpp"
#include "learn/model/names.hpp"
#include "learn/model/shape.hpp"
#include "learn/safetensors/file.hpp"

namespace tutti::checkpoint {
namespace {

using safetensors::Type;

model::Shape gpt2_shape(bool tied = true) {
  auto shape = model::make_shape(
      "gpt2", {.vocabulary = 17, .layers = 2, .hidden = 8, .heads = 2, .intermediate = 12, .context = 5});
  shape.tied = tied;
  return shape;
}

model::Shape llama_shape(bool tied = false) {
  auto shape = model::make_shape("llama", {.vocabulary = 19,
                                           .layers = 2,
                                           .hidden = 8,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .intermediate = 12,
                                           .context = 5});
  shape.tied = tied;
  return shape;
}

model::Shape qwen_shape(std::string_view family) {
  auto shape = model::make_shape(family, {.vocabulary = 19,
                                          .layers = 3,
                                          .hidden = 8,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_size = 6,
                                          .intermediate = 12,
                                          .context = 5});
  if (family == "qwen3_moe")
    shape.experts = {.count = 4, .chosen = 2, .intermediate = 10, .dense_layers = {1}};
  return shape;
}

float number_at(const safetensors::File& file, const safetensors::Entry& entry, std::uint64_t element) {
  std::array<std::byte, 4> bytes{};
  const std::size_t size = safetensors::size_of(entry.type);
  EXPECT_TRUE(file.read(entry.begin + element * size, std::span(bytes).first(size)));
  float number = 0;
  safetensors::to_floats(entry.type, std::span(bytes).first(size), std::span(&number, 1));
  return number;
}

class Export : public CheckpointTest {
 protected:
  // A checkpoint of a model of random numbers, the rows of its tensors spread over three ranks.
  Checkpoint make(const model::Shape& shape) {
    Prng prng(5);
    std::vector<Rank> ranks(3);
    made_.clear();
    for (const auto& unit : model::units(shape)) {
      for (const auto& tensor : unit.tensors) {
        made_.emplace(tensor.name, make_tensor("model/" + tensor.name, tensor.shape, prng));
        const Box all = whole(tensor.shape);
        const std::int64_t cut = all.elements() / 3;
        for (const Box& box : boxes_of_range(all, 0, cut)) ranks[0].hold(made_.at(tensor.name), box);
        for (const Box& box : boxes_of_range(all, cut, 2 * cut)) ranks[1].hold(made_.at(tensor.name), box);
        for (const Box& box : boxes_of_range(all, 2 * cut, all.elements())) {
          ranks[2].hold(made_.at(tensor.name), box);
        }
      }
    }
    const auto written =
        write_checkpoint(folder(), {.step = ++step_, .model_config = model::config_json(shape)}, ranks);
    EXPECT_TRUE(written) << written.error().text();
    return std::move(*Checkpoint::open(folder(), step_));
  }

  // Every tensor, whole and in parts, is what was made.
  void expect_same(const ForeignWeights& weights) const {
    Prng prng(6);
    for (const auto& [name, made] : made_) {
      for (int round = 0; round < 6; ++round) {
        Box box = whole(made.shape);
        for (std::size_t at = 0; round > 0 && at < made.shape.size(); ++at) {
          box.offset[at] = prng.between(0, made.shape[at] - 1);
          box.extent[at] = prng.between(1, made.shape[at] - box.offset[at]);
        }
        std::vector<float> numbers(static_cast<std::size_t>(box.elements()));
        const auto read = weights.read(name, box, numbers);
        ASSERT_TRUE(read) << read.error().text();
        ASSERT_EQ(numbers, cut(made, box)) << name << box.text();
      }
    }
  }

  std::string why_not(const model::Shape& shape, const std::string& name = "out") const {
    const auto weights = ForeignWeights::open(path(name), shape);
    return weights ? "" : weights.error().text();
  }

  std::map<std::string, Made> made_;
  std::int64_t step_ = 0;
};

TEST_F(Export, ComesBackTheSame) {
  int at = 0;
  for (const auto& shape : {gpt2_shape(), gpt2_shape(false), llama_shape(), llama_shape(true),
                            qwen_shape("qwen2"), qwen_shape("qwen3"), qwen_shape("qwen3_moe")}) {
    const std::string name = "out" + std::to_string(at++);
    const std::string out = path(name);
    const Checkpoint checkpoint = make(shape);
    // Once as it is meant to be, and once with less memory than most tensors need.
    const auto done = export_hf(checkpoint, out, {});
    ASSERT_TRUE(done) << done.error().text();
    const auto slowly = export_hf(checkpoint, out + "slowly", {.floats_at_a_time = 20});
    ASSERT_TRUE(slowly) << slowly.error().text();
    EXPECT_EQ(read_text(name + "/model.safetensors"), read_text(name + "slowly/model.safetensors"));
    const auto weights = ForeignWeights::open(out, shape);
    ASSERT_TRUE(weights) << weights.error().text();
    expect_same(*weights);
    const auto file_alone = ForeignWeights::open(out + "/model.safetensors", shape);
    ASSERT_TRUE(file_alone) << file_alone.error().text();
    expect_same(*file_alone);
  }
}

TEST_F(Export, HasTheNamesAndTheLayoutOfHuggingFace) {
  const Checkpoint checkpoint = make(gpt2_shape());
  ASSERT_TRUE(export_hf(checkpoint, path("out") + "/",
                        {.tokenizer = "{\"tokens\":1}", .chat_template = "{{ messages }}"}));
  EXPECT_EQ(read_text("out/chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(read_text("out/tokenizer.json"), "{\"tokens\":1}");
  json::Value config = *json::parse(read_text("out/config.json"));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["n_embd"], 8);
  EXPECT_EQ(config["torch_dtype"], "float32");
  EXPECT_EQ(*model::parse_config(read_text("out/config.json")), gpt2_shape());

  const auto file = safetensors::File::open(path("out/model.safetensors"));
  ASSERT_TRUE(file) << file.error().text();
  EXPECT_EQ(file->header().metadata, (safetensors::Metadata{{"format", "pt"}}));
  EXPECT_EQ(file->header().entries.size(), 2U + 2 * 12 + 2);
  const auto* fused = file->find("h.1.attn.c_attn.weight");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->shape, (std::vector<std::int64_t>{8, 24}));
  // Theirs is {in, out}: row 3, column 8 + 5 is the key's row 5, column 3.
  EXPECT_EQ(number_at(*file, *fused, 3 * 24 + 8 + 5), made_.at("h.1.attn.k.weight").numbers[5 * 8 + 3]);
  const auto* bias = file->find("h.0.attn.c_attn.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(number_at(*file, *bias, 16 + 2), made_.at("h.0.attn.v.bias").numbers[2]);
  const auto* embedding = file->find("wte.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(number_at(*file, *embedding, 11), made_.at("wte.weight").numbers[11]) << "as it is";

  const Checkpoint with_head = make(gpt2_shape(false));
  ASSERT_TRUE(export_hf(with_head, path("head"), {}));
  const auto head = safetensors::File::open(path("head/model.safetensors"));
  ASSERT_TRUE(head);
  EXPECT_NE(head->find("transformer.wte.weight"), nullptr);
  EXPECT_NE(head->find("lm_head.weight"), nullptr);
}

TEST_F(Export, RoundsToTheNearestNumberOfATypeOf16Bits) {
  const Checkpoint checkpoint = make(llama_shape());
  for (const Type type : {Type::bf16, Type::f16}) {
    const std::string name = type == Type::bf16 ? "bf16" : "f16";
    ASSERT_TRUE(export_hf(checkpoint, path(name), {.type = type}));
    EXPECT_EQ(*json::parse(read_text(name + "/config.json"))->find("torch_dtype"),
              type == Type::bf16 ? "bfloat16" : "float16");
    const auto weights = ForeignWeights::open(path(name), llama_shape());
    ASSERT_TRUE(weights) << weights.error().text();
    const Made& made = made_.at("model.layers.1.mlp.gate_proj.weight");
    std::vector<std::byte> rounded(made.numbers.size() * 2);
    safetensors::from_floats(made.numbers, type, rounded);
    std::vector<float> expected(made.numbers.size());
    safetensors::to_floats(type, rounded, expected);
    std::vector<float> numbers(made.numbers.size());
    ASSERT_TRUE(weights->read("model.layers.1.mlp.gate_proj.weight", whole(made.shape), numbers));
    EXPECT_EQ(numbers, expected);
    EXPECT_NE(numbers, made.numbers);
  }
}

TEST_F(Export, RowsAreReadAsTheFileHasThem) {
  int at = 0;
  for (const auto& shape : {gpt2_shape(), llama_shape(), qwen_shape("qwen3_moe")}) {
    const Checkpoint checkpoint = make(shape);
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      const std::string name = "stored" + std::to_string(at++);
      ASSERT_TRUE(export_hf(checkpoint, path(name), {.type = type}));
      const auto weights = ForeignWeights::open(path(name), shape);
      ASSERT_TRUE(weights) << weights.error().text();
      for (const auto& [tensor, made] : made_) {
        // Without the first row, where there are more.
        const std::int64_t first = made.shape[0] > 1 ? 1 : 0;
        const Box box = rows_of(made.shape, first, made.shape[0] - first);
        std::vector<float> numbers(static_cast<std::size_t>(box.elements()));
        ASSERT_TRUE(weights->read(tensor, box, numbers));
        std::vector<std::byte> expected(numbers.size() * safetensors::size_of(type));
        safetensors::from_floats(numbers, type, expected);
        std::vector<std::byte> bytes(expected.size());
        const auto read = weights->read_stored(tensor, first, box.extent[0], type, bytes);
        ASSERT_TRUE(read) << read.error().text();
        // Where rows of ours are columns of theirs there is none.
        const bool is_turned = shape.model_type == "gpt2" && made.shape.size() == 2 &&
                               tensor != "wte.weight" && tensor != "wpe.weight";
        ASSERT_EQ(*read, !is_turned) << tensor;
        if (*read) {
          EXPECT_EQ(bytes, expected) << tensor;
        }
        const Type other = type == Type::f32 ? Type::bf16 : Type::f32;
        const auto not_read = weights->read_stored(tensor, first, box.extent[0], other, {});
        ASSERT_TRUE(not_read);
        EXPECT_FALSE(*not_read) << tensor;
      }
      const std::string looked_up = model::weight_of(model::names_of(shape).embedding);
      EXPECT_FALSE(weights->read_stored(looked_up, shape.vocabulary, 1, type, {})) << "beyond the last row";
      EXPECT_FALSE(weights->read_stored("nobody", 0, 1, type, {}));
    }
  }
}

TEST_F(Export, IsSplitIntoFilesOfALimitedSize) {
  const Checkpoint checkpoint = make(gpt2_shape());
  ASSERT_TRUE(export_hf(checkpoint, path("out"), {.file_bytes_max = 2000}));
  EXPECT_FALSE(exists("out/model.safetensors"));
  json::Value index = *json::parse(read_text("out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], model::parameters(gpt2_shape()) * 4);
  EXPECT_EQ(index["weight_map"].object()->size(), 28U);
  EXPECT_EQ(index["weight_map"]["wte.weight"].text()->substr(0, 15), "model-00001-of-");
  for (const auto& [name, file] : *index["weight_map"].object()) {
    const auto opened = safetensors::File::open(path("out/" + *file.text()));
    ASSERT_TRUE(opened) << opened.error().text();
    EXPECT_NE(opened->find(name), nullptr) << name;
  }
  const auto weights = ForeignWeights::open(path("out"), gpt2_shape());
  ASSERT_TRUE(weights) << weights.error().text();
  expect_same(*weights);
}

TEST_F(Export, TellsHowFarItIs) {
  const Checkpoint checkpoint = make(llama_shape());
  std::uint64_t last = 0;
  std::uint64_t all = 0;
  const auto note = [&](std::uint64_t done, std::uint64_t of) {
    last = done;
    all = of;
    return true;
  };
  ASSERT_TRUE(export_hf(checkpoint, path("out"), {.progress = note}));
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, static_cast<std::uint64_t>(model::parameters(llama_shape())) * 4);
}

TEST_F(Export, LeavesOffWhenItIsTold) {
  const Checkpoint checkpoint = make(llama_shape());
  const auto stopped =
      export_hf(checkpoint, path("out"), {.progress = [](std::uint64_t, std::uint64_t) { return false; }});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message(), "interrupted");
  EXPECT_FALSE(exists("out"));
  EXPECT_FALSE(exists("out.part"));
}

TEST_F(Export, OverwritesNothingAndLeavesNothingHalf) {
  const Checkpoint checkpoint = make(gpt2_shape());
  std::filesystem::create_directory(path("out"));
  write_text("out/mine", "precious");
  const auto refused = export_hf(checkpoint, path("out"), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), path("out") + " is not empty");
  std::filesystem::create_directory(path("empty"));
  EXPECT_TRUE(export_hf(checkpoint, path("empty"), {}));

  flip("step-00000001/rank-00001.safetensors", -1);
  const auto damaged = export_hf(*Checkpoint::open(folder(), 1), path("damaged"), {});
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().text().find("rank-00001.safetensors: block 0 is damaged"), std::string::npos)
      << damaged.error().text();
  EXPECT_FALSE(exists("damaged"));
  EXPECT_FALSE(exists("damaged.part"));
}

TEST_F(Export, NeedsAModel) {
  ASSERT_TRUE(write_small_checkpoint(folder(), 7));
  const auto without_config = export_hf(*Checkpoint::open(folder(), 7), path("out"), {});
  ASSERT_FALSE(without_config);
  EXPECT_EQ(without_config.error().text(),
            path("step-00000007") + " : the model's configuration is no JSON object");
  Prng prng(1);
  const Made norm = make_tensor("model/ln_f.bias", {9}, prng);
  std::vector<Rank> ranks(1);
  ranks[0].hold(norm, whole({9}));
  ASSERT_TRUE(
      write_checkpoint(folder(), {.step = 8, .model_config = model::config_json(gpt2_shape())}, ranks));
  const auto incomplete = export_hf(*Checkpoint::open(folder(), 8), path("out"), {});
  ASSERT_FALSE(incomplete);
  EXPECT_EQ(incomplete.error().text(),
            path("step-00000008") + ": tensor 'h.0.attn.c_proj.bias' : the checkpoint has none");
}

// ---- and what others have written

class Import : public Export {
 protected:
  // The tensors of a model as Hugging Face would have them, all zeros but for the count of each number.
  std::vector<safetensors::Entry> entries(const model::Shape& shape, Type type = Type::f32) const {
    std::vector<safetensors::Entry> all;
    for (const auto& tensor : model::foreign_tensors(shape)) all.push_back({tensor.name, type, tensor.shape});
    return all;
  }
  void write(const std::string& name, std::vector<safetensors::Entry> tensors) const {
    const auto layout = safetensors::lay_out(std::move(tensors), {});
    write_text(name, layout.header + std::string(layout.file_bytes - layout.header.size(), '\0'));
  }
};

TEST_F(Import, TakesTheLongNamesAndPassesOverBuffers) {
  auto tensors = entries(gpt2_shape(), Type::f16);
  for (auto& tensor : tensors) tensor.name = "transformer." + tensor.name;
  tensors.push_back({"transformer.h.0.attn.bias", Type::u8, {1, 1, 5, 5}});
  tensors.push_back({"transformer.h.1.attn.masked_bias", Type::f32, {}});
  tensors.push_back({"lm_head.weight", Type::f16, {17, 8}});
  write("out", tensors);
  EXPECT_EQ(why_not(gpt2_shape()), "");

  tensors = entries(llama_shape());
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", Type::f32, {1}});
  write("llama", tensors);
  EXPECT_EQ(why_not(llama_shape(), "llama"), "");
}

TEST_F(Import, NamesWhatIsWrong) {
  auto tensors = entries(gpt2_shape());
  const auto changed = [&](auto change) {
    auto copy = tensors;
    change(copy);
    write("out", copy);
    return why_not(gpt2_shape());
  };
  const std::string in = path("out") + ": tensor ";
  EXPECT_EQ(changed([](auto& all) { all.erase(all.begin()); }), in + "'wte.weight' : it is missing");
  EXPECT_EQ(changed([](auto& all) {
              all.front().shape = {17, 9};
            }),
            in + "'wte.weight' : it is [0:17,0:9], and the model asks for [0:17,0:8]");
  EXPECT_EQ(changed([](auto& all) { all.front().type = Type::i32; }),
            in + "'wte.weight' : it is of I32, and F32, F16 or BF16 is known");
  EXPECT_EQ(changed([](auto& all) {
              all.push_back({"h.2.mlp.c_fc.weight", Type::f32, {1}});
            }),
            in + "'h.2.mlp.c_fc.weight' : this model has no such tensor");
  EXPECT_EQ(changed([](auto& all) {
              all.push_back({"transformer.wte.weight", Type::f32, {17, 8}});
            }),
            in + "'wte.weight' : it is there twice");
  write("llama", entries(llama_shape(true)));
  EXPECT_EQ(why_not(llama_shape(), "llama"), path("llama") + ": tensor 'lm_head.weight' : it is missing");
}

TEST_F(Import, ReadsAnIndexOfFilesBesideIt) {
  std::filesystem::create_directory(path("out"));
  EXPECT_EQ(why_not(gpt2_shape()),
            path("out") + " : it has neither model.safetensors nor model.safetensors.index.json");
  for (const char* index :
       {"", "{}", R"({"weight_map":{"a":"../b.safetensors"}})", R"({"weight_map":{"a":1}})"}) {
    write_text("out/model.safetensors.index.json", index);
    EXPECT_EQ(why_not(gpt2_shape()),
              path("out") +
                  ": model.safetensors.index.json : its weight_map is no map from tensors to "
                  "files");
  }
  write_text("out/model.safetensors.index.json", R"({"weight_map":{"a":"b.safetensors"}})");
  EXPECT_EQ(why_not(gpt2_shape()),
            "cannot read " + path("out/b.safetensors") + ": No such file or directory");
  EXPECT_EQ(why_not(gpt2_shape(), "missing"),
            "cannot read " + path("missing") + ": No such file or directory");
}

TEST_F(Import, HasNoOtherTensors) {
  write("out", entries(gpt2_shape()));
  const auto weights = ForeignWeights::open(path("out"), gpt2_shape());
  ASSERT_TRUE(weights) << weights.error().text();
  EXPECT_EQ(weights->read("wte", whole({1}), {}).error().message(), "there is no tensor 'wte'");
  EXPECT_EQ(weights->read("wpe.weight", {{5, 0}, {1, 1}}, {}).error().message(),
            "tensor 'wpe.weight' has no [5:6,0:1]");
}

}  // namespace
}  // namespace tutti::checkpoint
