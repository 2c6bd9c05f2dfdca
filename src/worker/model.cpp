#include "worker/model.hpp"

#include "serve/cuda/model.hpp"
#include "serve/load/load.hpp"
#include "serve/parallel/parallel.hpp"

namespace tutti::worker {
namespace {

Result<std::unique_ptr<serve::Model>> on_gpu(const serve::Source& source, const serve::LoadOptions& options) {
  const bool is_plain = options.weights == "f32";
  const bool is_fp8 = options.weights == "fp8";
  if (!is_plain && !is_fp8 && options.weights != "bf16" && options.weights != "auto")
    return invalid("weights of " + options.weights + " are not computed on a GPU").remedy("fp8, bf16 or f32");
  auto adapters = serve::open_adapters(options.adapters, source.shape);
  if (!adapters) return std::move(adapters).error();
  return serve::cuda::make_model(source.shape,
                                 {.type = is_plain ? serve::cuda::Type::f32 : serve::cuda::Type::bf16,
                                  .is_fp8 = is_fp8,
                                  .context_max = options.context_max,
                                  .cache_bytes = options.cache_bytes,
                                  .step_tokens_max = options.step_tokens_max,
                                  .step_rows_max = options.step_rows_max,
                                  .peers = options.peers,
                                  .adapters = std::move(*adapters)},
                                 source.read, source.read_stored);
}

}  // namespace

Result<int> host_model(std::span<const std::string> words) {
  if (auto done = serve::parallel::host_model(words, on_gpu); !done) return std::move(done).error();
  return 0;
}

}  // namespace tutti::worker
