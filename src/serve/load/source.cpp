#include "serve/load/source.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "learn/checkpoint/foreign.hpp"
#include "learn/checkpoint/import.hpp"
#include "learn/checkpoint/manifest.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/recipe/recipe.hpp"
#include "serve/load/fingerprint.hpp"
#include "serve/load/pooling.hpp"

namespace tutti::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t config_bytes_max = std::size_t{4} << 20;
constexpr std::size_t tokenizer_bytes_max = std::size_t{256} << 20;

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

std::string name_of_path(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
}

// Its reader serves one thread at a time.
struct OneByOne {
  explicit OneByOne(checkpoint::Checkpoint from) : checkpoint(std::move(from)) {}
  std::mutex mutex;
  checkpoint::Checkpoint checkpoint;
};

Result<Source> open_checkpoint(const std::string& path, const std::string& name,
                               checkpoint::Checkpoint from) {
  const checkpoint::State& state = from.state();
  auto recipe = recipe::parse_recipe(state.recipe);
  if (!recipe) return std::move(recipe).error().within(path);
  auto shape = model::parse_config(state.model_config);
  if (!shape) return std::move(shape).error().within(path);
  const auto data = dataset::Dataset::open(recipe->data);
  if (!data)
    return Error(data.error())
        .within(path)
        .remedy("the run's tokenizer is in the data that it was trained on: " + recipe->data);
  auto tokenizer = tokenizer::Tokenizer::parse(data->tokenizer_json());
  if (!tokenizer) return std::move(tokenizer).error().within(recipe->data);

  tokenizer::TokenSettings settings;
  settings.end = data->end_of_text();
  settings.end_text = tokenizer->token_bytes(data->end_of_text());
  settings.stops = {data->end_of_text()};
  const std::string detail = "step " + std::to_string(state.step) + " of a run";
  const std::string fingerprint = from.fingerprint().hex();
  auto opened = std::make_shared<OneByOne>(std::move(from));
  auto shapes = std::make_shared<const Shapes>(checkpoint::shapes_of(*shape));
  return Source{.path = path,
                .name = name,
                .folder = "",
                .fingerprint = fingerprint,
                .detail = detail,
                .shape = std::move(*shape),
                .is_bf16 = false,
                .tokenizer = std::move(*tokenizer),
                .settings = std::move(settings),
                .read = [opened, shapes](const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                                         std::span<float> floats) -> Result<> {
                  const std::scoped_lock lock(opened->mutex);
                  return opened->checkpoint.read(checkpoint::model_prefix + tensor,
                                                 checkpoint::rows_of(shapes->at(tensor), first_row, rows),
                                                 std::as_writable_bytes(floats));
                }};
}

Result<Source> open_run(const std::string& path) {
  auto latest = checkpoint::hold_latest(path + "/checkpoints");
  if (!latest) return std::move(latest).error();
  if (!*latest) return failed("there is no checkpoint yet").within(path).remedy("`tutti train` makes them");
  const std::string step = (*latest)->path();
  return open_checkpoint(step, name_of_path(path), std::move(**latest));
}

// RUN/checkpoints/step-N, which goes by the name of its run.
Result<Source> open_step(const std::string& path) {
  auto opened = checkpoint::Checkpoint::open(path);
  if (!opened) return std::move(opened).error();
  if (auto held = opened->hold(); !held) return std::move(held).error();
  const std::string run = (fs::absolute(path) / ".." / "..").lexically_normal().string();
  return open_checkpoint(path, name_of_path(run), std::move(*opened));
}

// The files beside the weights; a missing one is an empty text.
struct Texts {
  std::string config;
  std::string tokenizer;
  std::string tokenizer_config;
  std::string special_tokens_map;
  std::string generation_config;
  std::string chat_template;
  std::string modules;
  std::string pooling;
};

Result<Texts> read_texts(const std::string& folder) {
  Texts texts;
  struct File {
    const char* name;
    std::string& text;
    std::size_t bytes_max;
    bool is_needed;
  };
  const File files[] = {
      {"config.json", texts.config, config_bytes_max, true},
      {"tokenizer.json", texts.tokenizer, tokenizer_bytes_max, true},
      {"tokenizer_config.json", texts.tokenizer_config, tokenizer::settings_bytes_max, false},
      {"special_tokens_map.json", texts.special_tokens_map, tokenizer::settings_bytes_max, false},
      {"generation_config.json", texts.generation_config, tokenizer::settings_bytes_max, false},
      {"chat_template.jinja", texts.chat_template, tokenizer::chat_template_bytes_max, false},
      {"modules.json", texts.modules, tokenizer::settings_bytes_max, false},
      {"1_Pooling/config.json", texts.pooling, tokenizer::settings_bytes_max, false}};
  for (const File& file : files) {
    auto text = files::read_file(folder + "/" + file.name, file.bytes_max);
    if (!text) return std::move(text).error();
    if (!*text && file.is_needed)
      return invalid("there is no " + std::string(file.name))
          .within(folder)
          .remedy("a model's folder has config.json, tokenizer.json and model.safetensors");
    if (*text) file.text = std::move(**text);
  }
  return texts;
}

// What the file says of its own weights, under its old name or its new one.
bool says_bf16(const std::string& config) {
  const auto root = json::parse(config);
  if (!root) return false;
  for (const char* key : {"dtype", "torch_dtype"}) {
    const json::Value* const type = root->find(key);
    if (type != nullptr && !type->is_null()) return *type == "bfloat16";
  }
  return false;
}

Result<Source> open_folder(const std::string& path) {
  const std::string stamp = stamp_of_folder(path);
  auto texts = read_texts(path);
  if (!texts) return std::move(texts).error();
  auto shape = model::parse_config(texts->config);
  if (!shape) return std::move(shape).error().within(path);
  auto tokenizer = tokenizer::Tokenizer::parse(texts->tokenizer);
  if (!tokenizer) return std::move(tokenizer).error().within(path);
  auto settings = tokenizer::read_settings({.tokenizer_config = texts->tokenizer_config,
                                            .special_tokens_map = texts->special_tokens_map,
                                            .generation_config = texts->generation_config,
                                            .config = texts->config,
                                            .chat_template = texts->chat_template},
                                           *tokenizer);
  if (!settings) return std::move(settings).error().within(path);
  auto weights = checkpoint::ForeignWeights::open(path, *shape);
  if (!weights) return std::move(weights).error();
  auto opened = std::make_shared<const checkpoint::ForeignWeights>(std::move(*weights));
  auto framed = tokenizer->with_frame(settings->frame);
  return Source{
      .path = path,
      .name = name_of_path(path),
      .folder = path,
      .fingerprint = stamp,
      .detail = "a folder of Hugging Face",
      .shape = std::move(*shape),
      .is_bf16 = says_bf16(texts->config),
      .tokenizer = std::move(framed),
      .settings = std::move(*settings),
      .pooling = read_pooling(texts->modules, texts->pooling),
      .read = [opened](
                  const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                  std::span<float> floats) { return opened->read_rows(tensor, first_row, rows, floats); },
      .read_stored =
          [opened](const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                   safetensors::Type type, std::span<std::byte> bytes) {
            return opened->read_stored(tensor, first_row, rows, type, bytes);
          }};
}

}  // namespace

Result<Source> open_source(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(fs::path(path) / "checkpoints", ignored)) return open_run(path);
  if (fs::exists(fs::path(path) / "config.json", ignored)) return open_folder(path);
  if (fs::exists(fs::path(path) / checkpoint::manifest_name, ignored)) return open_step(path);
  if (path.ends_with(".gguf"))
    return invalid("files of this kind are for llama.cpp")
        .within(path)
        .remedy("give the run that it was exported from, or export it with --format hf");
  return invalid(fs::exists(path, ignored) ? "it is no model" : "there is no such folder")
      .within(path)
      .remedy("give the folder of a run of `tutti train`, or one of Hugging Face with config.json");
}

}  // namespace tutti::serve
