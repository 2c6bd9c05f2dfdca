#include "worker/model.hpp"

#include "serve/cuda/model.hpp"
#include "serve/load/load.hpp"
#include "serve/remote/remote.hpp"

namespace tutti::worker {
namespace {

Result<std::unique_ptr<serve::Model>> on_gpu(const serve::Source& source, const serve::LoadOptions& options) {
  const bool is_plain = options.weights == "f32";
  if (!is_plain && options.weights != "bf16" && options.weights != "auto")
    return invalid("weights of " + options.weights + " are not computed on a GPU").remedy("bf16 or f32");
  if (options.cache_bytes > 0)
    return invalid("the cache of a GPU takes what the weights leave").remedy("leave --cache out");
  auto adapters = serve::open_adapters(options.adapters, source.shape);
  if (!adapters) return std::move(adapters).error();
  return serve::cuda::make_model(source.shape,
                                 {.type = is_plain ? serve::cuda::Type::f32 : serve::cuda::Type::bf16,
                                  .context_max = options.context_max,
                                  .step_tokens_max = options.step_tokens_max,
                                  .step_rows_max = options.step_rows_max,
                                  .adapters = std::move(*adapters)},
                                 source.read);
}

}  // namespace

Result<int> host_model(std::span<const std::string> words) {
  if (words.size() != 2) return invalid("model takes MODEL OPTIONS, and is started by `tutti engine`");
  const auto make = [&]() -> Result<std::unique_ptr<serve::Model>> {
    auto options = serve::read_options(words[1]);
    if (!options) return std::move(options).error();
    options->on_gpu = on_gpu;
    auto source = serve::open_source(words[0]);
    if (!source) return std::move(source).error();
    return serve::make_model(*source, *options);
  };
  if (auto done = serve::remote::host_model(serve::remote::worker_descriptor, make); !done)
    return std::move(done).error();
  return 0;
}

}  // namespace tutti::worker
