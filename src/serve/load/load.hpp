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

namespace tutti::serve {

enum class Device { cpu, cuda };
Result<Device> parse_device(std::string_view word);

struct LoadOptions;
// A model on a GPU: in the worker, its own; in `tutti`, which has none, the worker's.
using MakeModel = std::function<Result<std::unique_ptr<Model>>(const Source&, const LoadOptions&)>;

struct LoadOptions {
  Device device = Device::cpu;
  std::string weights = "auto";   // f32, bf16, int8, int4; auto: what loses nothing of what is stored
  std::int64_t threads = 0;       // of CPUs; 0: one a core
  std::int64_t context_max = 0;   // 0: what the model can
  std::uint64_t cache_bytes = 0;  // of keys and values; 0: a share of what the weights leave
  std::int32_t step_tokens_max = 512;
  std::int32_t step_rows_max = 64;
  std::vector<NamedAdapter> adapters;
  std::string name;            // that clients call the model by; empty: the source's
  MakeModel on_gpu = nullptr;  // null: this program has none
};
// All but the name and `on_gpu`, for the command line of a worker.
std::string write_options(const LoadOptions& options);
Result<LoadOptions> read_options(std::string_view text);

struct Loaded {
  Source source;
  std::unique_ptr<Model> model;
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
