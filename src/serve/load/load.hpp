// From a path to a model that can answer, on the device that was chosen: its weights are packed, its cache is
// reserved. Called by one thread, which it may keep for a while.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "serve/chat/chat.hpp"
#include "serve/load/adapters.hpp"
#include "serve/load/source.hpp"
#include "serve/model/model.hpp"
#include "serve/model/peers.hpp"

namespace tutti::serve {

enum class Device { cpu, cuda };
Result<Device> parse_device(std::string_view word);

inline constexpr std::int32_t ranks_max = 64;

struct LoadOptions;
// A model somewhere else: on a GPU, which in the worker is its own, and in `tutti`, which has none, the
// worker's; or in several processes.
using MakeModel = std::function<Result<std::unique_ptr<Model>>(const Source&, const LoadOptions&)>;

struct LoadOptions {
  Device device = Device::cpu;
  std::string weights = "auto";   // f32, bf16, int8, int4, on GPUs fp8; auto: what loses nothing
  std::int64_t threads = 0;       // of CPUs, of each rank; 0: one a core
  std::int64_t context_max = 0;   // 0: what the model can
  std::uint64_t cache_bytes = 0;  // of keys and values; 0: a share of what the weights leave
  std::int32_t step_tokens_max = 512;
  std::int32_t step_rows_max = 64;
  // Processes that compute it together, each a part of every layer; which of them this one is, and where the
  // first awaits the others.
  std::int32_t ranks = 1;
  std::int32_t rank = 0;
  std::int32_t port = 0;
  std::vector<NamedAdapter> adapters;
  std::string name;                        // that clients call the model by; empty: the source's
  std::shared_ptr<Peers> peers = nullptr;  // of a rank; null: the ranks are still to be started
  MakeModel on_gpu = nullptr;              // null: this program has none
  MakeModel in_ranks = nullptr;            // null: this program starts none
};
// All but the name and what points somewhere, for the command line of a worker.
std::string write_options(const LoadOptions& options);
Result<LoadOptions> read_options(std::string_view text);

struct Loaded {
  Source source;
  std::unique_ptr<Model> model;
  // Where the model is in a process of its own, which may end: it again, in another one.
  std::function<Result<std::unique_ptr<Model>>()> reopen;
  std::vector<std::string> adapters;  // their names: the first is adapter 1 of the model
  // How a conversation is written: the model's own way, or why that cannot be followed.
  Result<chat::ChatTemplate> chat;
  Result<chat::ChatTemplate> chat_with_tools;

  // What a token stands for in an answer: nothing for those that steer the model. Good on its own.
  std::function<std::string_view(Token)> token_bytes() const;
};

Result<Loaded> load(const std::string& path, const LoadOptions& options);

// The one place where a device is chosen: a model that computes there.
Result<std::unique_ptr<Model>> make_model(const Source& source, const LoadOptions& options);

}  // namespace tutti::serve
