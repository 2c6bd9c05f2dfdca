// `tutti checkpoint` as a user meets it, on checkpoints that two ranks have written.
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/import.hpp"
#include "learn/checkpoint/write.hpp"
#include "learn/model/shape.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "support/process.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::Finished;
using support::has;
using support::read_text;
using support::run;
using support::tutti_program;
using support::write_text;

const model::Shape tiny = [] {
  auto shape = model::make_shape("llama", {.vocabulary = 257,
                                           .layers = 1,
                                           .hidden = 8,
                                           .heads = 2,
                                           .kv_heads = 1,
                                           .intermediate = 16,
                                           .context = 4});
  shape.tied = true;
  return shape;
}();

// A run's folder with the checkpoints of steps 100 and 200.
class CheckpointCommand : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(checkpoint::claim(checkpoints(), 0));
    save(100, std::numeric_limits<double>::quiet_NaN());
    save(200, 2.5);
  }

  std::string run_folder() const { return folder_.path(); }
  std::string checkpoints() const { return run_folder() + "/checkpoints"; }
  std::string file(const std::string& name) const { return run_folder() + "/" + name; }

  static Finished tutti(std::vector<std::string> words) {
    words.insert(words.begin(), {tutti_program, "checkpoint"});
    return run(words);
  }

  // Flips a bit in the middle of a file.
  static void damage(const std::string& path) {
    std::string content = read_text(path);
    char& letter = content.at(content.size() / 2);
    letter = static_cast<char>(letter ^ 1);
    write_text(path, content);
  }

  // Each number of a tensor is its index; rank 0 has the first half of each, rank 1 the rest.
  void save(std::int64_t step, double loss, const std::string& recipe = "",
            const model::Shape& shape = tiny) const {
    std::vector<checkpoint::FileRecord> records;
    const auto part = checkpoint::begin(checkpoints(), step, 0);
    ASSERT_TRUE(part) << part.error().text();
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::vector<float>> memory;
      std::vector<checkpoint::Piece> pieces;
      for (const auto& unit : model::units(shape)) {
        for (const auto& tensor : unit.tensors) add_half(tensor, rank, memory, pieces);
      }
      auto record = checkpoint::write_file(*part, rank, pieces);
      ASSERT_TRUE(record) << record.error().text();
      records.push_back(std::move(*record));
    }
    const checkpoint::State state{.step = step,
                                  .mesh = "2x1x1",
                                  .loss = loss,
                                  .recipe = recipe,
                                  .model_config = model::config_json(shape)};
    const auto committed = checkpoint::commit(checkpoints(), 0, state, records);
    ASSERT_TRUE(committed) << committed.error().text();
  }

 private:
  static void add_half(const model::Tensor& tensor, int rank, std::vector<std::vector<float>>& memory,
                       std::vector<checkpoint::Piece>& pieces) {
    const std::int64_t middle = tensor.elements() / 2;
    std::int64_t at = rank == 0 ? 0 : middle;
    const std::int64_t end = rank == 0 ? middle : tensor.elements();
    for (const auto& box : checkpoint::boxes_of_range(checkpoint::whole(tensor.shape), at, end)) {
      std::vector<float>& numbers = memory.emplace_back();
      for (std::int64_t count = 0; count < box.elements(); ++count)
        numbers.push_back(static_cast<float>(at++));
      pieces.push_back({"model/" + tensor.name, safetensors::Type::f32, tensor.shape, box,
                        std::as_bytes(std::span(numbers))});
    }
  }

  support::TempFolder folder_;
};

TEST_F(CheckpointCommand, ListsWhatIsThere) {
  for (const std::string& path : {run_folder(), checkpoints()}) {
    const auto list = tutti({"ls", path});
    EXPECT_EQ(list.exit_code, 0) << list.err;
    const auto lines = support::lines_of(list.out);
    ASSERT_EQ(lines.size(), 3U) << list.out;
    EXPECT_TRUE(lines[0].starts_with("STEP  SIZE")) << list.out;
    EXPECT_TRUE(lines[1].starts_with("100 ")) << list.out;
    EXPECT_TRUE(lines[2].starts_with("200 ") && has(lines[2], "2x1x1  2.5 ")) << list.out;
  }
  const auto one = tutti({"ls", checkpoints() + "/step-00000100", "--json"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  const json listed = json::parse(one.out);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["step"], 100);
  EXPECT_EQ(listed[0]["files"], 2);
  EXPECT_EQ(listed[0]["mesh"], "2x1x1");
  EXPECT_TRUE(listed[0]["next_loss"].is_null());
  EXPECT_GT(listed[0]["bytes"], 1000);

  damage(checkpoints() + "/step-00000100/manifest.json");
  const auto damaged = tutti({"ls", run_folder()});
  EXPECT_EQ(damaged.exit_code, 0) << "it lists; verify judges";
  EXPECT_TRUE(has(damaged.out, "damaged: ")) << damaged.out;
  EXPECT_TRUE(has(json::parse(tutti({"ls", run_folder(), "--json"}).out)[0]["problem"].get<std::string>(),
                  "damaged"));
}

TEST_F(CheckpointCommand, AFolderWhoseNameIsNoTextIsListedToo) {
  const std::string odd = file("odd\xff");
  std::filesystem::copy(checkpoints(), odd, std::filesystem::copy_options::recursive);
  for (const char* what : {"ls", "verify"}) {
    const auto told = tutti({what, odd, "--json"});
    EXPECT_EQ(told.exit_code, 0) << told.err;
    const json list = json::parse(told.out, nullptr, false);
    ASSERT_EQ(list.size(), 2U) << told.out;
    EXPECT_TRUE(has(list[0]["path"].get<std::string>(), "/odd")) << told.out;
  }
}

TEST_F(CheckpointCommand, VerifiesEveryByte) {
  const auto sound = tutti({"verify", run_folder()});
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_TRUE(has(sound.out, "step 100 is sound: ")) << sound.out;
  EXPECT_TRUE(has(sound.out, " in 2 files\n")) << sound.out;
  EXPECT_EQ(sound.err, "") << "progress is for terminals";

  damage(checkpoints() + "/step-00000200/rank-00001.safetensors");
  const auto damaged = tutti({"verify", run_folder()});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_TRUE(has(damaged.out, "step 100 is sound")) << damaged.out;
  EXPECT_FALSE(has(damaged.out, "step 200")) << damaged.out;
  EXPECT_TRUE(has(damaged.err, "step-00000200 : rank-00001.safetensors: block 0 is damaged")) << damaged.err;
  EXPECT_EQ(tutti({"verify", checkpoints() + "/step-00000100"}).exit_code, 0);

  const auto as_json = tutti({"verify", checkpoints(), "--json"});
  EXPECT_EQ(as_json.exit_code, 1);
  const json list = json::parse(as_json.out);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["sound"], true);
  EXPECT_EQ(list[1]["sound"], false);
  EXPECT_TRUE(has(list[1]["problem"].get<std::string>(), "rank-00001.safetensors")) << as_json.out;
}

TEST_F(CheckpointCommand, ExportsTheNewestForHuggingFace) {
  const std::string tokenizer = tokenizer::Tokenizer::bytes().json();
  write_text(file("tokenizer.json"), tokenizer);
  write_text(file("tokenizer_config.json"), R"({"chat_template":"{{ messages[0]['content'] }}"})");
  const auto done = tutti({"export", run_folder(), "--format", "hf", "--out", file("out"), "--type", "bf16",
                           "--tokenizer", file("tokenizer.json")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "step 200 is in " + file("out") + "\n");
  EXPECT_EQ(read_text(file("out/tokenizer.json")), tokenizer);
  EXPECT_EQ(read_text(file("out/chat_template.jinja")), "{{ messages[0]['content'] }}");
  EXPECT_EQ(*model::parse_config(read_text(file("out/config.json"))), tiny);
  const auto weights = checkpoint::ForeignWeights::open(file("out"), tiny);
  ASSERT_TRUE(weights) << weights.error().text();
  std::vector<float> row(8);
  ASSERT_TRUE(weights->read("model.embed_tokens.weight", {{9, 0}, {1, 8}}, row));
  EXPECT_EQ(row, (std::vector<float>{72, 73, 74, 75, 76, 77, 78, 79})) << "BF16 holds them exactly";

  const auto none = tutti({"export", run_folder(), "--out", file("none")});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_TRUE(has(none.err, "there is no tokenizer with it")) << none.err;
  const auto bytes =
      tutti({"export", run_folder(), "--format", "gguf", "--out", file("m.gguf"), "--tokenizer", "bytes"});
  EXPECT_EQ(bytes.exit_code, 0) << bytes.err;
  EXPECT_TRUE(has(read_text(file("m.gguf")), "tokenizer.ggml.tokens"));
  EXPECT_FALSE(has(read_text(file("m.gguf")), "tokenizer.chat_template"));
  write_text(file("chat_template.jinja"), "{{ own }}");
  const auto chat = tutti({"export", run_folder(), "--format", "gguf", "--out", file("chat.gguf"),
                           "--tokenizer", file("tokenizer.json")});
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_TRUE(has(read_text(file("chat.gguf")), "tokenizer.chat_template"));
  EXPECT_TRUE(has(read_text(file("chat.gguf")), "{{ own }}")) << "the file of its own counts";

  const auto again = tutti({"export", run_folder(), "--out", file("out")});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(has(again.err, "is not empty")) << again.err;
  damage(checkpoints() + "/step-00000100/rank-00000.safetensors");
  const auto damaged = tutti({"export", checkpoints() + "/step-00000100", "--out", file("damaged")});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_TRUE(has(damaged.err, "rank-00000.safetensors: block 0 is damaged")) << damaged.err;
  EXPECT_FALSE(std::filesystem::exists(file("damaged")));
}

TEST_F(CheckpointCommand, ATokenizerThatIsNotTheRunsIsToldOf) {
  const json whole = json::parse(tokenizer::Tokenizer::bytes().json());
  json smaller = whole;
  smaller["added_tokens"] = json::array();
  json other = whole;
  std::swap(other["model"]["vocab"]["a"], other["model"]["vocab"]["b"]);
  write_text(file("whole.json"), whole.dump());
  write_text(file("smaller.json"), smaller.dump());
  write_text(file("other.json"), other.dump());
  int count = 0;
  const auto told = [&](const std::string& tokenizer) {
    const auto done = tutti({"export", run_folder(), "--out", file("out" + std::to_string(++count)),
                             "--tokenizer", file(tokenizer)});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.err;
  };
  EXPECT_EQ(told("whole.json"), "");
  EXPECT_TRUE(has(told("smaller.json"), "smaller.json has 256 tokens, and the model 257"));

  // A model with room for more tokens than it was taught, and the data that says which.
  write_text(file("text.txt"), "abc abc abc abc abc abc abc abc");
  const auto packed = run({tutti_program, "data", "pack", file("text.txt"), "--tokenizer", file("whole.json"),
                           "--out", file("data")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  model::Shape roomy = tiny;
  roomy.vocabulary = 300;
  save(300, 2.5, json{{"data", file("data")}}.dump(), roomy);
  EXPECT_EQ(told("whole.json"), "");
  EXPECT_TRUE(has(told("smaller.json"), "smaller.json has 256 tokens, and that of the run's data 257"));
  EXPECT_TRUE(has(told("other.json"), "other.json is not that of the run's data: token "));
}

TEST_F(CheckpointCommand, ToldSomethingElseSaysWhatItWants) {
  const auto refused = [](const std::vector<std::string>& words, const std::string& why, int exit_code = 2) {
    const auto done = tutti(words);
    EXPECT_EQ(done.exit_code, exit_code) << done.err;
    EXPECT_TRUE(has(done.err, why)) << done.err;
    EXPECT_EQ(done.out, "");
  };
  refused({}, "ls|verify|export");
  refused({"ls"}, "DIR");
  refused({"list", run_folder()}, "one of: ls, verify, export");
  refused({"ls", file("missing")}, "there is no folder " + file("missing"));
  refused({"export", run_folder()}, "--out DIR");
  refused({"export", run_folder(), "--out", file("out"), "--type", "f8"}, "one of: f32, bf16, f16");
  refused({"export", run_folder(), "--out", file("out"), "--format", "onnx"}, "one of: hf, gguf");
  refused({"export", run_folder(), "--out", file("out"), "--tokenizer", file("none")}, "there is no file ");
  write_text(file("odd.json"), "{}");
  refused({"export", run_folder(), "--out", file("out"), "--tokenizer", file("odd.json")}, "odd.json");
  // One token more than the model has.
  json larger = json::parse(tokenizer::Tokenizer::bytes().json());
  larger["added_tokens"].push_back({{"id", 257},
                                    {"content", "<|more|>"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  write_text(file("larger.json"), larger.dump());
  for (const char* format : {"hf", "gguf"})
    refused({"export", run_folder(), "--out", file("out"), "--format", format, "--tokenizer",
             file("larger.json")},
            "it has 258 tokens, and the model 257");
  std::filesystem::create_directory(file("empty"));
  EXPECT_TRUE(has(tutti({"ls", file("empty")}).err, "there is no checkpoint in "));
  refused({"verify", file("empty")}, "there is no checkpoint in ", 1);
  EXPECT_EQ(json::parse(tutti({"ls", file("empty"), "--json"}).out), json::array());
}

}  // namespace
}  // namespace tutti
