#include "learn/gguf/export.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <variant>

#include "learn/checkpoint/made_checkpoint_test.hpp"
#include "learn/model/names.hpp"
#include "learn/tokenizer/definition.hpp"
#include "learn/tokenizer/tokenizer.hpp"

namespace tutti::gguf {
namespace {

using checkpoint::Made;
using safetensors::Type;

// A file read as the format's own page describes it, by none of the code under test.
class Reader {
 public:
  using Texts = std::vector<std::string>;
  using Numbers = std::vector<double>;
  using Value = std::variant<double, std::string, Texts, Numbers>;
  struct Entry {
    std::vector<std::uint64_t> sizes;  // the innermost first
    std::uint32_t type = 0;
    std::uint64_t begin = 0;
  };

  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {
    EXPECT_EQ(bytes_.substr(0, 4), "GGUF");
    at_ = 4;
    EXPECT_EQ(take<std::uint32_t>(), 3U);
    const auto tensors = take<std::uint64_t>();
    const auto count = take<std::uint64_t>();
    for (std::uint64_t field = 0; field < count; ++field) {
      const std::string name = text();
      fields[name] = value(take<std::uint32_t>());
    }
    for (std::uint64_t tensor = 0; tensor < tensors; ++tensor) {
      Entry& entry = entries[text()];
      entry.sizes.resize(take<std::uint32_t>());
      for (auto& size : entry.sizes) size = take<std::uint64_t>();
      entry.type = take<std::uint32_t>();
      entry.begin = take<std::uint64_t>();
    }
    const std::uint64_t data = (at_ + 31) / 32 * 32;
    for (auto& [name, entry] : entries) {
      EXPECT_EQ(entry.begin % 32, 0U) << name;
      entry.begin += data;
    }
  }

  std::vector<float> numbers(const std::string& name) const {
    const Entry& entry = entries.at(name);
    std::vector<std::int64_t> shape(entry.sizes.begin(), entry.sizes.end());
    const Type type = entry.type == 0 ? Type::f32 : entry.type == 1 ? Type::f16 : Type::bf16;
    const std::uint64_t size = *safetensors::bytes_of(type, shape);
    EXPECT_LE(entry.begin + size, bytes_.size()) << name;
    std::vector<float> floats(size / safetensors::size_of(type));
    safetensors::to_floats(type, std::as_bytes(std::span(bytes_)).subspan(entry.begin, size), floats);
    return floats;
  }

  std::map<std::string, Value> fields;
  std::map<std::string, Entry> entries;

 private:
  template <class Number>
  Number take() {
    Number number{};
    EXPECT_LE(at_ + sizeof number, bytes_.size());
    if (at_ + sizeof number <= bytes_.size()) std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }
  std::string text() {
    const auto size = take<std::uint64_t>();
    std::string text = bytes_.substr(at_, size);
    at_ += size;
    return text;
  }
  double number(std::uint32_t type) {
    if (type == 4) return take<std::uint32_t>();
    if (type == 5) return take<std::int32_t>();
    if (type == 6) return static_cast<double>(take<float>());
    EXPECT_EQ(type, 7U);
    return take<std::uint8_t>();
  }
  Value value(std::uint32_t type) {
    if (type == 8) return text();
    if (type != 9) return number(type);
    const auto of = take<std::uint32_t>();
    const auto count = take<std::uint64_t>();
    Texts texts;
    Numbers numbers;
    for (std::uint64_t at = 0; at < count; ++at) {
      if (of == 8) {
        texts.push_back(text());
      } else {
        numbers.push_back(number(of));
      }
    }
    if (of == 8) return texts;
    return numbers;
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

model::Shape shape_of(std::string_view family) {
  auto shape = model::make_shape(family, {.vocabulary = 300,
                                          .layers = 2,
                                          .hidden = 8,
                                          .heads = family == "gpt2" ? 2 : 4,
                                          .kv_heads = 2,
                                          .head_size = family == "gpt2"    ? 4
                                                       : family == "qwen2" ? 2
                                                                           : 6,
                                          .intermediate = 12,
                                          .context = 16});
  if (family == "qwen3_moe")
    shape.experts = {.count = 4, .chosen = 2, .intermediate = 10, .dense_layers = {}};
  return shape;
}

class Gguf : public checkpoint::CheckpointTest {
 protected:
  checkpoint::Checkpoint make(const model::Shape& shape) {
    Prng prng(5);
    std::vector<checkpoint::Rank> ranks(1);
    made_.clear();
    for (const auto& unit : model::units(shape)) {
      for (const auto& tensor : unit.tensors) {
        made_.emplace(tensor.name, checkpoint::make_tensor("model/" + tensor.name, tensor.shape, prng));
        ranks[0].hold(made_.at(tensor.name), checkpoint::whole(tensor.shape));
      }
    }
    const auto written = checkpoint::write_checkpoint(
        folder(), {.step = ++step_, .model_config = model::config_json(shape)}, ranks);
    EXPECT_TRUE(written) << written.error().text();
    return std::move(*checkpoint::Checkpoint::open(folder(), step_));
  }

  Reader exported(const model::Shape& shape, const checkpoint::ExportOptions& options = {}) {
    const std::string name = "model" + std::to_string(++files_) + ".gguf";
    const auto done = export_gguf(make(shape), path(name), options);
    EXPECT_TRUE(done) << done.error().text();
    return Reader(read_text(name));
  }

  std::string why_not(const model::Shape& shape, const checkpoint::ExportOptions& options = {}) {
    const auto done = export_gguf(make(shape), path("refused.gguf"), options);
    EXPECT_FALSE(exists("refused.gguf"));
    EXPECT_FALSE(exists("refused.gguf.part"));
    return done ? "" : done.error().text();
  }

  const std::vector<float>& ours(const std::string& name) const { return made_.at(name).numbers; }

  std::map<std::string, Made> made_;
  std::int64_t step_ = 0;
  int files_ = 0;
};

TEST_F(Gguf, HoldsEveryTensorOfEachFamilyOnce) {
  for (const auto family : model::model_types()) {
    auto shape = shape_of(family);
    shape.tied = false;
    shape.window = 0;
    const Reader file = exported(shape);
    std::uint64_t elements = 0;
    for (const auto& [name, entry] : file.entries) {
      std::uint64_t product = 1;
      for (const auto size : entry.sizes) product *= size;
      elements += product;
    }
    EXPECT_EQ(elements, static_cast<std::uint64_t>(model::parameters(shape))) << family;
  }
}

TEST_F(Gguf, WritesMatricesAsTheyAre) {
  const auto shape = shape_of("qwen2");
  const Reader file = exported(shape);
  EXPECT_EQ(std::get<std::string>(file.fields.at("general.architecture")), "qwen2");
  EXPECT_EQ(std::get<double>(file.fields.at("qwen2.attention.head_count_kv")), 2);
  EXPECT_EQ(std::get<double>(file.fields.at("qwen2.attention.key_length")), 2);
  EXPECT_EQ(file.numbers("blk.1.attn_q.weight"), ours("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_EQ(file.numbers("blk.0.ffn_down.weight"), ours("model.layers.0.mlp.down_proj.weight"));
  EXPECT_EQ(file.entries.at("blk.0.ffn_down.weight").sizes, (std::vector<std::uint64_t>{12, 8}));
  EXPECT_EQ(file.numbers("output_norm.weight"), ours("model.norm.weight"));
}

TEST_F(Gguf, PutsQueriesKeysAndValuesOfGpt2IntoOne) {
  const Reader file = exported(shape_of("gpt2"), {.floats_at_a_time = 24});
  auto all = ours("h.1.attn.q.weight");
  for (const char* name : {"h.1.attn.k.weight", "h.1.attn.v.weight"})
    all.insert(all.end(), ours(name).begin(), ours(name).end());
  EXPECT_EQ(file.numbers("blk.1.attn_qkv.weight"), all);
  EXPECT_EQ(file.entries.at("blk.1.attn_qkv.bias").sizes, (std::vector<std::uint64_t>{24}));
}

// What counts is what comes of it: turned by neighbours, their rows give the same products as ours do, turned
// by halves.
TEST_F(Gguf, PairsOfLlamaTurnTheSame) {
  const auto shape = shape_of("llama");
  const Reader file = exported(shape, {.floats_at_a_time = 50});  // a head at a time
  const auto there_q = file.numbers("blk.0.attn_q.weight");
  const auto there_k = file.numbers("blk.0.attn_k.weight");
  const auto& ours_q = ours("model.layers.0.self_attn.q_proj.weight");
  const auto& ours_k = ours("model.layers.0.self_attn.k_proj.weight");
  ASSERT_NE(there_q, ours_q);
  const auto frequencies = model::frequencies(shape.rope, shape.head_size);
  const auto row = [&](const std::vector<float>& matrix, std::size_t at) { return matrix[at * 8]; };
  const auto product = [&](const auto& q, const auto& k, std::size_t head, bool neighbours) {
    double sum = 0;
    for (std::size_t pair = 0; pair < 3; ++pair) {
      const std::size_t first = neighbours ? 2 * pair : pair;
      const std::size_t second = neighbours ? 2 * pair + 1 : pair + 3;
      const double angle = frequencies[pair] * 7;
      const double c = std::cos(angle), s = std::sin(angle);
      const double q0 = row(q, head * 6 + first), q1 = row(q, head * 6 + second);
      const double k0 = row(k, head / 2 * 6 + first), k1 = row(k, head / 2 * 6 + second);
      sum += (q0 * c - q1 * s) * k0 + (q0 * s + q1 * c) * k1;
    }
    return sum;
  };
  for (std::size_t head = 0; head < 4; ++head)
    EXPECT_DOUBLE_EQ(product(there_q, there_k, head, true), product(ours_q, ours_k, head, false)) << head;
  EXPECT_EQ(file.numbers("blk.0.attn_v.weight"), ours("model.layers.0.self_attn.v_proj.weight"));
}

TEST_F(Gguf, StacksExperts) {
  const auto shape = shape_of("qwen3_moe");
  const Reader file = exported(shape, {.type = Type::bf16});
  EXPECT_EQ(file.entries.at("blk.0.ffn_up_exps.weight").sizes, (std::vector<std::uint64_t>{8, 10, 4}));
  EXPECT_EQ(file.entries.at("blk.0.ffn_up_exps.weight").type, 30U);
  EXPECT_EQ(file.entries.at("blk.0.ffn_gate_inp.weight").type, 0U);
  EXPECT_EQ(std::get<double>(file.fields.at("qwen3moe.expert_used_count")), 2);
  const auto all = file.numbers("blk.1.ffn_down_exps.weight");
  const auto& third = ours("model.layers.1.mlp.experts.2.down_proj.weight");
  for (std::size_t at = 0; at < third.size(); ++at)
    EXPECT_NEAR(all[2 * third.size() + at], third[at], 0.01) << at;
}

TEST_F(Gguf, SaysHowPositionsAreStretched) {
  auto shape = shape_of("llama");
  shape.rope = {.kind = model::Rope::Kind::llama3, .theta = 10000, .factor = 8, .original_context = 8};
  const auto factors = exported(shape).numbers("rope_freqs.weight");
  ASSERT_EQ(factors.size(), 3U);
  EXPECT_FLOAT_EQ(factors.back(), 8);
  shape.rope = {.kind = model::Rope::Kind::linear, .factor = 4};
  EXPECT_EQ(std::get<double>(exported(shape).fields.at("llama.rope.scaling.factor")), 4);
  shape = shape_of("qwen3");
  shape.rope = {.kind = model::Rope::Kind::yarn,
                .factor = 4,
                .original_context = 64,
                .attention_factor = 2 * 1.1386294};
  const Reader yarn = exported(shape);
  EXPECT_EQ(std::get<std::string>(yarn.fields.at("qwen3.rope.scaling.type")), "yarn");
  EXPECT_EQ(std::get<double>(yarn.fields.at("qwen3.rope.scaling.factor")), 4);
  EXPECT_EQ(std::get<double>(yarn.fields.at("qwen3.rope.scaling.original_context_length")), 64);
  EXPECT_NEAR(std::get<double>(yarn.fields.at("qwen3.rope.scaling.attn_factor")), 2, 1e-6)
      << "beside 0.1 ln 4 + 1, which is computed there";
  EXPECT_FALSE(yarn.entries.contains("rope_freqs.weight"));
}

TEST_F(Gguf, RefusesWhatWouldBeComputedOtherwise) {
  auto shape = shape_of("mistral");
  shape.window = 8;
  EXPECT_NE(why_not(shape).find("has no sliding window of 8 tokens"), std::string::npos) << why_not(shape);
  shape = shape_of("qwen3_moe");
  shape.experts.dense_layers = {1};
  EXPECT_NE(why_not(shape).find("has no layers without experts"), std::string::npos) << why_not(shape);
  shape = shape_of("qwen2");
  shape.head_size = 6;
  EXPECT_NE(why_not(shape).find("has no heads of 6 numbers each"), std::string::npos) << why_not(shape);
  shape = shape_of("qwen2");
  shape.rope = {.kind = model::Rope::Kind::llama3, .factor = 8, .original_context = 8};
  EXPECT_NE(why_not(shape).find("'qwen2' has no rotary positions of the type llama3"), std::string::npos);
  shape.rope = {.kind = model::Rope::Kind::yarn, .factor = 4, .original_context = 64, .beta_fast = 16};
  EXPECT_NE(why_not(shape).find("has no YaRN but with a beta_fast of 32"), std::string::npos);
  shape.rope = {.kind = model::Rope::Kind::yarn, .factor = 4, .original_context = 64, .truncates = false};
  EXPECT_NE(why_not(shape).find("has no YaRN but with a beta_fast of 32"), std::string::npos);
  shape.rope = {.kind = model::Rope::Kind::yarn, .factor = 4, .original_context = 1};
  shape.head_size = 64;
  shape.hidden = 256;
  EXPECT_NE(why_not(shape).find("has no YaRN from so short a context"), std::string::npos) << why_not(shape);
  shape = shape_of("gpt2");
  EXPECT_NE(why_not(shape, {.tokenizer = "{}"}).find("the tokenizer"), std::string::npos);
  shape.vocabulary = 100;
  const auto learned = tokenizer::write_learned({});
  EXPECT_NE(why_not(shape, {.tokenizer = learned}).find("257 tokens, and the model 100"), std::string::npos);
}

TEST_F(Gguf, NamesTokensAsLlamaCppDoes) {
  const std::vector<tokenizer::Merge> merges{{'t', 'h', 256}, {256, 'e', 257}, {' ', 257, 258}};
  const Reader file = exported(shape_of("gpt2"), {.tokenizer = tokenizer::write_learned(merges)});
  EXPECT_EQ(std::get<std::string>(file.fields.at("tokenizer.ggml.model")), "gpt2");
  EXPECT_EQ(std::get<std::string>(file.fields.at("tokenizer.ggml.pre")), "gpt-2");
  const auto& tokens = std::get<Reader::Texts>(file.fields.at("tokenizer.ggml.tokens"));
  ASSERT_EQ(tokens.size(), 300U);
  EXPECT_EQ(tokens[' '], "Ġ");
  EXPECT_EQ(tokens[258], "Ġthe");
  EXPECT_EQ(tokens[259], "<|endoftext|>");
  EXPECT_EQ(tokens[299], "[PAD299]");
  const auto& kinds = std::get<Reader::Numbers>(file.fields.at("tokenizer.ggml.token_type"));
  EXPECT_EQ(kinds[258], 1);
  EXPECT_EQ(kinds[259], 3);
  EXPECT_EQ(kinds[299], 5);
  EXPECT_EQ(std::get<Reader::Texts>(file.fields.at("tokenizer.ggml.merges")),
            (Reader::Texts{"t h", "th e", "Ġ the"}));
  EXPECT_EQ(std::get<double>(file.fields.at("tokenizer.ggml.eos_token_id")), 259);
  EXPECT_FALSE(file.fields.contains("tokenizer.chat_template"));
  EXPECT_EQ(std::get<std::string>(exported(shape_of("gpt2")).fields.at("tokenizer.ggml.model")), "no_vocab");
}

TEST_F(Gguf, CarriesTheChatTemplate) {
  const Reader file = exported(shape_of("gpt2"), {.chat_template = "{{ messages }}"});
  EXPECT_EQ(std::get<std::string>(file.fields.at("tokenizer.chat_template")), "{{ messages }}");
}

TEST_F(Gguf, RefusesATokenizerThatWouldBeFollowedOtherwise) {
  const auto told = [&](const std::string& from, const std::string& to) {
    std::string file = tokenizer::write_learned({});
    const auto at = file.find(from, file.find("\"pre_tokenizer\""));
    const auto place = at == std::string::npos ? file.find(from) : at;
    EXPECT_NE(place, std::string::npos) << from;
    return why_not(shape_of("gpt2"), {.tokenizer = file.replace(place, from.size(), to)});
  };
  std::string why = told("\"add_prefix_space\":false", "\"add_prefix_space\":true");
  EXPECT_NE(why.find("knows no blank in front of a text"), std::string::npos) << why;
  why = told("\"ignore_merges\":false", "\"ignore_merges\":true");
  EXPECT_NE(why.find("knows no way to cut text into words"), std::string::npos) << why;
  const std::string end = R"({"SpecialToken":{"id":"<|endoftext|>","type_id":0}},)";
  why = told("\"post_processor\":null",
             R"("post_processor":{"type":"TemplateProcessing","single":[)" + end + end +
                 R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<|endoftext|>":)"
                 R"({"id":"<|endoftext|>","ids":[256],"tokens":["<|endoftext|>"]}}})");
  EXPECT_NE(why.find("knows no more than one token before a text"), std::string::npos) << why;
}

TEST_F(Gguf, LeavesOffWhenItIsTold) {
  const auto stopped = export_gguf(make(shape_of("gpt2")), path("half.gguf"),
                                   {.progress = [](std::uint64_t, std::uint64_t) { return false; }});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message(), "interrupted");
  EXPECT_FALSE(exists("half.gguf"));
  EXPECT_FALSE(exists("half.gguf.part"));
}

TEST_F(Gguf, OverwritesNothing) {
  write_text("mine.gguf", "precious");
  const auto refused = export_gguf(make(shape_of("gpt2")), path("mine.gguf"), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), path("mine.gguf") + " is there already");
  EXPECT_EQ(read_text("mine.gguf"), "precious");
}

}  // namespace
}  // namespace tutti::gguf
