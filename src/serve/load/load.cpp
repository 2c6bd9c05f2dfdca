#include "serve/load/load.hpp"

#include <filesystem>

#include "serve/cpu/matrix.hpp"
#include "serve/cpu/model.hpp"
#include "serve/load/fingerprint.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve {
namespace {

Result<chat::ChatTemplate> template_of(const Source& source, bool with_tools) {
  const tokenizer::NamedTemplate* const own = tokenizer::find_template(source.settings, with_tools);
  if (own == nullptr) return chat::ChatTemplate::fallback();
  return chat::ChatTemplate::parse(own->text);
}

Result<cpu::WeightType> weights_of(const Source& source, const LoadOptions& options) {
  if (options.weights == "fp8")
    return invalid("weights of fp8 are computed on GPUs alone")
        .remedy("f32, bf16, int8 or int4; or --device cuda");
  if (options.weights != "auto") return cpu::parse_weight_type(options.weights);
  return source.is_bf16 ? cpu::WeightType::bf16 : cpu::WeightType::f32;
}

Result<std::unique_ptr<Model>> make_cpu_model(const Source& source, const LoadOptions& options) {
  const auto weights = weights_of(source, options);
  if (!weights) return weights.error();
  auto adapters = open_adapters(options.adapters, source.shape);
  if (!adapters) return std::move(adapters).error();
  return cpu::make_model(source.shape,
                         {.weights = *weights,
                          .threads = static_cast<int>(options.threads),
                          .context_max = options.context_max,
                          .cache_bytes = options.cache_bytes,
                          .step_tokens_max = options.step_tokens_max,
                          .step_rows_max = options.step_rows_max,
                          .peers = options.peers,
                          .adapters = std::move(*adapters)},
                         source.read);
}

}  // namespace

Result<Device> parse_device(std::string_view word) {
  if (word == "cpu") return Device::cpu;
  if (word == "cuda") return Device::cuda;
  return invalid("'" + std::string(word.substr(0, 64)) + "' is no device").remedy("cpu or cuda");
}

Result<std::unique_ptr<Model>> make_model(const Source& source, const LoadOptions& options) {
  if (options.ranks > 1 && !options.peers) {
    if (!options.in_ranks) return failed("this program computes a model in one process alone");
    return options.in_ranks(source, options);
  }
  switch (options.device) {
    case Device::cpu:
      return make_cpu_model(source, options);
    case Device::cuda:
      break;
  }
  if (!options.on_gpu)
    return failed("this program computes on CPUs alone")
        .remedy("build it where there is CUDA, or take --device cpu");
  return options.on_gpu(source, options);
}

std::function<std::string_view(Token)> Loaded::token_bytes() const {
  return [tokenizer = source.tokenizer](Token token) -> std::string_view {
    const auto id = static_cast<std::uint32_t>(token);
    return tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id);
  };
}

namespace {

// Times that a checkpoint is looked for anew which a training has removed while it was loaded.
constexpr int tries_max = 5;

bool is_gone(const std::string& path) {
  std::error_code problem;
  return !std::filesystem::exists(path, problem) && !problem;
}

// Of the files that were opened here: who computes elsewhere opens them by himself, and who reads them here
// takes a while.
Result<std::unique_ptr<Model>> make_of_these(const Source& source, const LoadOptions& options,
                                             const std::string& fingerprint) {
  auto model = make_model(source, options);
  if (!model && is_gone(source.path))
    return failed("it was removed since it was opened")
        .within(source.path)
        .remedy("start it again with what is there now");
  if (!model) return model;
  const std::string read = (*model)->fingerprint();
  if (read == fingerprint) return model;
  if (read.empty()) {
    auto fine = check_unchanged(source, options.adapters, fingerprint);
    return fine ? std::move(model) : std::move(fine).error();
  }
  return failed("its files were changed since it was opened")
      .remedy("start it again with what is there now, or put back what was there");
}

Result<Loaded> load_source(Source source, const std::string& path, const LoadOptions& options) {
  // A token that the model cannot write ends no answer.
  std::erase_if(source.settings.stops, [&](std::uint32_t stop) { return stop >= source.shape.vocabulary; });
  if (!options.name.empty()) source.name = options.name;
  if (auto fine = check_adapters(options.adapters, source.name); !fine) return std::move(fine).error();
  const std::string fingerprint = fingerprint_of(source, options.adapters);
  auto model = make_of_these(source, options, fingerprint);
  if (!model) return std::move(model).error().within(path);
  std::function<Result<std::unique_ptr<Model>>()> reopen;
  if (options.device == Device::cuda)
    reopen = [from = source, options, fingerprint] { return make_of_these(from, options, fingerprint); };
  auto chat = template_of(source, false);
  auto chat_with_tools = template_of(source, true);
  std::vector<std::string> adapters;
  for (const NamedAdapter& adapter : options.adapters) adapters.push_back(adapter.name);
  return Loaded{.source = std::move(source),
                .model = std::move(*model),
                .reopen = std::move(reopen),
                .adapters = std::move(adapters),
                .chat = std::move(chat),
                .chat_with_tools = std::move(chat_with_tools)};
}

Result<Loaded> load_all(const std::string& path, const LoadOptions& options) {
  for (int tries = 1;; ++tries) {
    auto source = open_source(path);
    if (!source) return std::move(source).error();
    const std::string opened = source->path;
    auto loaded = load_source(std::move(*source), path, options);
    // Whoever has asked for the newest checkpoint of a run gets the one that took its place.
    const bool may_be_another = opened != path && is_gone(opened);
    if (loaded || !may_be_another || tries == tries_max) return loaded;
  }
}

}  // namespace

Result<Loaded> load(const std::string& path, const LoadOptions& options) {
  auto loaded = within_threads([&] { return load_all(path, options); });
  if (!loaded && loaded.error() == no_memory())
    return failed("this machine has no memory to load it")
        .within(path)
        .remedy("take smaller weights, a smaller cache or a machine with more memory");
  return loaded;
}

}  // namespace tutti::serve
