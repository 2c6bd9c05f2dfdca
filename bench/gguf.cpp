// bench/gguf: whether llama.cpp reads what is exported for it: of each family a model of random weights and a
// tokenizer, saved, exported as GGUF in f32 and f16; the tokens that llama.cpp finds likeliest and those into
// which it cuts odd texts, beside the engine's and the tokenizer's here.
#include <array>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "base/prng.hpp"
#include "common/measure.hpp"
#include "common/options.hpp"
#include "common/report.hpp"
#include "common/tokenizers.hpp"
#include "learn/checkpoint/export.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/write.hpp"
#include "learn/gguf/export.hpp"
#include "learn/model/shape.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "serve/cpu/model.hpp"
#include "support/process.hpp"

namespace tutti::bench {
namespace {

namespace cpu = serve::cpu;

constexpr std::array prompt{7, 300, 12, 4, 99, 250, 31};
constexpr int made_tokens = 40;
constexpr const char* chat_template =
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}";
constexpr double deviation = 0.15;  // of the weights: large enough that no two tokens are equally likely

struct Family {
  const char* name;
  model::Shape shape;
};

model::Shape shape_of(std::string_view family) {
  const bool gpt2 = family == "gpt2";
  const bool narrow = gpt2 || family == "qwen2";
  model::Shape shape = model::make_shape(family, {.vocabulary = 512,
                                                  .layers = 3,
                                                  .hidden = 64,
                                                  .heads = 4,
                                                  .kv_heads = gpt2 ? 4 : 2,
                                                  .head_size = narrow ? 16 : 32,
                                                  .intermediate = 96,
                                                  .context = 128});
  shape.window = 0;
  if (family == "qwen3_moe")
    shape.experts = {.count = 6, .chosen = 2, .intermediate = 64, .dense_layers = {}};
  return shape;
}

std::vector<Family> families() {
  std::vector<Family> all;
  for (const char* name : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "qwen3_moe"})
    all.push_back({name, shape_of(name)});
  Family stretched{"llama3", shape_of("llama")};
  stretched.shape.rope = {
      .kind = model::Rope::Kind::llama3, .theta = 500000, .factor = 8, .original_context = 32};
  stretched.shape.tied = true;
  all.push_back(stretched);
  Family yarn{"qwen3-yarn", shape_of("qwen3")};
  yarn.shape.rope = {.kind = model::Rope::Kind::yarn,
                     .theta = 100,
                     .factor = 4,
                     .original_context = 64,
                     .attention_factor = 1.3};
  all.push_back(yarn);
  return all;
}

// A checkpoint as a training would have left it.
Result<checkpoint::Checkpoint> make_checkpoint(const std::string& folder, const model::Shape& shape) {
  Prng prng(11);
  std::vector<std::vector<float>> numbers;
  std::vector<checkpoint::Piece> pieces;
  for (const auto& unit : model::units(shape)) {
    for (const auto& tensor : unit.tensors) {
      auto& made = numbers.emplace_back(static_cast<std::size_t>(tensor.elements()));
      for (float& number : made)
        number = static_cast<float>((tensor.starts_at_one ? 1 : 0) + (prng.unit() - 0.5) * 4 * deviation);
      pieces.push_back({"model/" + tensor.name, safetensors::Type::f32, tensor.shape,
                        checkpoint::whole(tensor.shape), std::as_bytes(std::span(made))});
    }
  }
  const checkpoint::State state{.step = 1, .model_config = model::config_json(shape)};
  if (auto mine = checkpoint::claim(folder, {}); !mine) return std::move(mine).error();
  const auto part = checkpoint::begin(folder, state.step, {});
  if (!part) return part.error();
  auto record = checkpoint::write_file(*part, 0, pieces);
  if (!record) return std::move(record).error();
  if (auto done = checkpoint::commit(folder, {}, state, std::span(&*record, 1)); !done)
    return std::move(done).error();
  return checkpoint::Checkpoint::open(folder, state.step);
}

Result<std::vector<int>> our_tokens(const std::string& folder) {
  auto model = cpu::open_model(folder, {.weights = cpu::WeightType::f32});
  if (!model) return std::move(model).error();
  std::vector<serve::BlockId> blocks(static_cast<std::size_t>((*model)->limits().blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<serve::Token> next(prompt.begin(), prompt.end());
  std::vector<int> made;
  std::int64_t first = 0;
  while (made.size() < made_tokens) {
    const serve::Chunk chunk{.tokens = next, .first = first, .blocks = blocks, .rows = 1};
    if (auto done = (*model)->step(std::span(&chunk, 1)); !done) return std::move(done).error();
    first += static_cast<std::int64_t>(next.size());
    const serve::Choice choice{};
    auto chosen = (*model)->choose(std::span(&choice, 1));
    if (!chosen) return std::move(chosen).error();
    next = {chosen->front().token};
    made.push_back(next.front());
  }
  return made;
}

Result<std::vector<int>> their_tokens(const std::string& program, const std::string& model) {
  std::vector<std::string> words{program, model, std::to_string(made_tokens)};
  for (const int token : prompt) words.push_back(std::to_string(token));
  auto printed = run_command(words, {});
  if (!printed) return std::move(printed).error();
  std::vector<int> made;
  std::istringstream lines(*printed);
  for (int token = 0; lines >> token;) made.push_back(token);
  return made;
}

struct Reading {
  const char* word;  // of llama-greedy
  bool special;
};
constexpr std::array readings{Reading{"text", true}, Reading{"letters", false}};

// Of all odd texts, in both readings, those that become the same tokens; tells of the others.
Result<int> same_texts(const std::string& program, const std::string& model, const std::string& json) {
  const auto tokenizer = tokenizer::Tokenizer::parse(json);
  if (!tokenizer) return tokenizer.error();
  int same = 0;
  for (const Reading& reading : readings) {
    std::vector<std::string> words{program, model, reading.word};
    words.insert(words.end(), odd_texts().begin(), odd_texts().end());
    auto printed = run_command(words, {});
    if (!printed) return std::move(printed).error();
    std::istringstream lines(*printed);
    for (const std::string& text : odd_texts()) {
      std::string theirs, ours;
      std::getline(lines, theirs);
      for (const auto token : tokenizer->encode(text, {.special = reading.special, .frame = true}))
        ours += std::to_string(token) + " ";
      same += static_cast<int>(ours == theirs);
      if (ours != theirs)
        std::printf("  %s '%s': %s, there %s\n", reading.word, text.c_str(), ours.c_str(), theirs.c_str());
    }
  }
  return same;
}

// How many are the same before the first that is not.
int same_until(const std::vector<int>& ours, const std::vector<int>& theirs) {
  const std::size_t shorter = std::min(ours.size(), theirs.size());
  const auto [at, other] =
      std::mismatch(ours.begin(), ours.begin() + static_cast<std::ptrdiff_t>(shorter), theirs.begin());
  return static_cast<int>(at - ours.begin());
}

Result<> compare_texts(const std::string& family, const std::string& program, const std::string& model,
                       Report& report) {
  const auto carried = run_command({program, model, "template"}, {});
  if (!carried) return carried.error();
  if (*carried != chat_template) return failed("llama.cpp finds another chat template: " + *carried);
  const auto same = same_texts(program, model, tokenizer_of(family));
  if (!same) return same.error();
  const auto all = static_cast<double>(odd_texts().size() * readings.size());
  report.add({.name = family + "_texts",
              .what = family + ", texts of the same tokens",
              .unit = "texts",
              .tutti = *same,
              .peer = all,
              .bar = Bar{Bar::Kind::value_at_least, all}});
  return {};
}

Result<> compare(const Family& family, const std::string& program, const support::TempFolder& folder,
                 Report& report) {
  const std::string at = folder.path() + "/" + family.name;
  std::filesystem::create_directories(at + "/checkpoints");
  auto checkpoint = make_checkpoint(at + "/checkpoints", family.shape);
  if (!checkpoint) return std::move(checkpoint).error();
  for (const auto type : {safetensors::Type::f32, safetensors::Type::f16}) {
    const std::string name(type == safetensors::Type::f32 ? "f32" : "f16");
    const checkpoint::ExportOptions options{
        .type = type, .tokenizer = tokenizer_of(family.name), .chat_template = chat_template};
    if (auto done = checkpoint::export_hf(*checkpoint, at + "/hf-" + name, options); !done) return done;
    if (auto done = gguf::export_gguf(*checkpoint, at + "/" + name + ".gguf", options); !done) return done;
    auto ours = our_tokens(at + "/hf-" + name);
    if (!ours) return std::move(ours).error();
    auto theirs = their_tokens(program, at + "/" + name + ".gguf");
    if (!theirs) return std::move(theirs).error();
    report.add({.name = std::string(family.name) + "_" + name,
                .what = std::string(family.name) + " " + name + ", the same likeliest tokens",
                .unit = "tokens",
                .tutti = same_until(*ours, *theirs),
                .peer = made_tokens,
                .bar = Bar{Bar::Kind::value_at_least, made_tokens}});
  }
  return compare_texts(family.name, program, at + "/f32.gguf", report);
}

Result<> run(const std::vector<std::string>& words) {
  const auto all = families();
  auto options = parse_options(words, names_of(all));
  if (!options) return std::move(options).error();
  const std::string program = options->llama + "/llama-greedy";
  if (options->llama.empty() || !std::filesystem::exists(program)) {
    return failed("the peer is missing: no llama-greedy")
        .within(options->llama.empty() ? "--llama" : options->llama)
        .remedy("bench/peers/llama_tools.sh DIR makes it, and --llama DIR names it");
  }
  const support::TempFolder folder;
  Report report("llama.cpp");
  report.print_head();
  for (const Family& family : all) {
    if (!options->wants(family.name)) continue;
    if (auto done = compare(family, program, folder, report); !done)
      return std::move(done).error().within(family.name);
  }
  return report.end(*options);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  return tutti::bench::exit_code("bench_gguf", tutti::bench::run({words + 1, words + count}));
}
