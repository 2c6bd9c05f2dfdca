#include "cli/model_flags.hpp"

#include <algorithm>
#include <filesystem>

#include "cli/terminal.hpp"
#include "cli/worker_program.hpp"
#include "node/devices/nvml/nvml.hpp"
#include "serve/parallel/parallel.hpp"
#include "serve/remote/remote.hpp"

namespace tutti::cli {
namespace {

constexpr std::int64_t threads_max = 4'096;
constexpr std::int64_t context_min = 2;  // a prompt and an answer
constexpr std::int64_t context_limit = 1 << 24;
constexpr std::int64_t sequences_limit = 4'096;
constexpr std::int64_t drafts_limit = 16;
// What keeps each of them busy without making the others wait.
constexpr std::int64_t cpu_sequences = 64;
constexpr std::int64_t gpu_sequences = 256;
constexpr std::int32_t cpu_step_tokens = 512;
constexpr std::int32_t gpu_step_tokens = 2048;

// A GPU is the worker's: it has CUDA, and this program does not.
Result<std::unique_ptr<serve::Model>> in_the_worker(const serve::Source& source,
                                                    const serve::LoadOptions& options) {
  const std::string path = std::filesystem::absolute(source.path).lexically_normal().string();
  return serve::remote::open_model({worker_program(), "model", path, serve::write_options(options)});
}

// Ranks that compute on CPUs are this program again.
Result<std::unique_ptr<serve::Model>> in_ranks(const serve::Source& source,
                                               const serve::LoadOptions& options) {
  const bool on_gpu = options.device == serve::Device::cuda;
  const std::string program =
      on_gpu ? worker_program() : std::filesystem::read_symlink("/proc/self/exe").string();
  return serve::parallel::open_model(program, source, options);
}

}  // namespace

void ModelFlags::declare(config::Flags& flags) {
  flags.add("device", device_,
            "that computes: cpu, cuda, or auto for a GPU where there is one (default: auto)");
  flags.add(
      "weights", weights_,
      "their type in memory: f32, bf16, int8 or int4, on a GPU f32, bf16 or fp8 (default: what holds all "
      "that is stored, on a GPU bf16)");
  flags.add("tensor-parallel", ranks_,
            "processes that compute it together, each a part of every layer, on a GPU of its own where there "
            "are as many (default: 1)",
            {.min = 1, .max = serve::ranks_max});
  flags.add("threads", threads_, "of CPUs, of each process (default: one a core)",
            {.min = 1, .max = threads_max});
  flags.add("context", context_, "tokens of a prompt with its answer (default: what the model was made for)",
            {.min = context_min, .max = context_limit});
  flags.add(
      "cache", "SIZE",
      [this](std::string_view text) -> Result<> {
        const auto read = parse_bytes(text);
        if (!read) return read.error();
        if (read->count() == 0)
          return invalid("must be more than 0").remedy("leave it out for a share of what is free");
        cache_ = *read;
        return {};
      },
      "memory for the tokens of all answers, such as 8GiB, more than 0 (default: a share of what is free)");
  flags.add("sequences", sequences_, "answers that are computed at once (default: 64, on a GPU 256)",
            {.min = 1, .max = sequences_limit});
  flags.add("drafts", drafts_, "tokens that are guessed ahead from the text so far (default: 0)",
            {.min = 0, .max = drafts_limit});
  flags.add("adapter", adapters_,
            "NAME=FOLDER: a LoRA adapter of PEFT that requests choose by its name; once for each");
}

void ModelFlags::tell(const serve::Loaded& loaded) const {
  const std::int64_t context = loaded.model->limits().context;
  if (context_ > context)
    print_note("--context " + std::to_string(context_) + " is cut to the " + std::to_string(context) +
               " tokens that the model was made for");
  const std::int64_t sequences = serve::sequences_most(loaded.model->limits().step_tokens_max);
  if (sequences_ > sequences)
    print_note("--sequences " + std::to_string(sequences_) + " is cut to the " + std::to_string(sequences) +
               " that a step of this device has room for");
}

std::string ModelFlags::given() const {
  if (weights_ != "auto") return "--weights";
  if (threads_ > 0) return "--threads";
  if (context_ > 0) return "--context";
  if (cache_.count() > 0) return "--cache";
  if (sequences_ > 0) return "--sequences";
  if (ranks_ > 1) return "--tensor-parallel";
  if (!adapters_.empty()) return "--adapter";
  return drafts_ > 0 ? "--drafts" : "";
}

Result<ModelFlags::Chosen> ModelFlags::choose() const {
  const bool has_gpu = device_ == "auto" && !devices::find_nvml().inventory.devices.empty();
  const auto device = serve::parse_device(device_ == "auto" ? (has_gpu ? "cuda" : "cpu") : device_);
  if (!device) return Error(device.error()).within("command line");
  const bool on_gpu = *device == serve::Device::cuda;
  const std::int32_t step_tokens = on_gpu ? gpu_step_tokens : cpu_step_tokens;
  const std::int64_t sequences = std::min<std::int64_t>(sequences_ > 0 ? sequences_
                                                        : on_gpu       ? gpu_sequences
                                                                       : cpu_sequences,
                                                        serve::sequences_most(step_tokens));
  // Each row belongs to a token. What there is no row for is not guessed.
  const std::int64_t rows = std::min<std::int64_t>(sequences * (1 + drafts_), step_tokens);
  std::vector<serve::NamedAdapter> adapters;
  for (const std::string& text : adapters_) {
    auto adapter = serve::parse_adapter(text);
    if (!adapter) return std::move(adapter).error().within("--adapter");
    adapters.push_back(std::move(*adapter));
  }
  const serve::LoadOptions load{.device = *device,
                                .weights = weights_,
                                .threads = threads_,
                                .context_max = context_,
                                .cache_bytes = static_cast<std::uint64_t>(cache_.count()),
                                .step_tokens_max = step_tokens,
                                .step_rows_max = static_cast<std::int32_t>(rows),
                                .ranks = static_cast<std::int32_t>(ranks_),
                                .adapters = std::move(adapters),
                                .on_gpu = in_the_worker,
                                .in_ranks = in_ranks};
  const serve::BatchSettings batch{.sequences_max = static_cast<std::int32_t>(sequences),
                                   .drafts_max = static_cast<std::int32_t>(drafts_),
                                   .step_drafts_max = static_cast<std::int32_t>(sequences * drafts_)};
  return Chosen{load, batch};
}

Result<ModelFlags::Chosen> ModelFlags::choose_one() const {
  if (adapters_.size() > 1)
    return invalid("one adapter is meant, and there are " + std::to_string(adapters_.size()))
        .within("--adapter")
        .remedy("`tutti engine` takes several, and each request chooses");
  return choose();
}

}  // namespace tutti::cli
