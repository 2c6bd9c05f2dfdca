#include "common/llama_cpp.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/measure.hpp"
#include "learn/gguf/architecture.hpp"
#include "learn/gguf/vocabulary.hpp"

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using gguf::Type;

std::uint64_t next_random(std::uint64_t& state) {
  state ^= state << 13U;
  state ^= state >> 7U;
  state ^= state << 17U;
  return state;
}

// Norms are ones, matrices random: in f32, or a scale of 2^-12 in front of 32 random bytes.
std::string numbers_of(const gguf::Tensor& tensor, std::uint64_t& state) {
  std::string bytes(tensor.bytes(), '\0');
  char* at = bytes.data();
  const char* end = at + bytes.size();
  if (tensor.type == Type::f32) {
    for (; at < end; at += sizeof(float)) {
      const float value = tensor.shape.size() == 1
                              ? 1
                              : 0.04F * (static_cast<float>(next_random(state) >> 40U) * 0x1p-24F - 0.5F);
      std::memcpy(at, &value, sizeof value);
    }
    return bytes;
  }
  for (; at < end; at += gguf::q8_0_bytes) {
    constexpr std::uint16_t scale = 3U << 10U;
    std::memcpy(at, &scale, sizeof scale);
    for (std::size_t byte = sizeof scale; byte < gguf::q8_0_bytes; byte += sizeof(std::uint64_t)) {
      const std::uint64_t random = next_random(state);
      std::memcpy(at + byte, &random, sizeof random);
    }
  }
  return bytes;
}

// What llama-bench says of one test, behind so many tokens that are not timed.
Result<double> bench_speed(const LlamaLoad& load, int depth, int prompt, int generated) {
  auto printed =
      run_command({load.tools + "/llama-bench", "-m", load.model, "-t", std::to_string(load.threads), "-p",
                   std::to_string(prompt), "-n", std::to_string(generated), "-d", std::to_string(depth), "-r",
                   "2", "-o", "json"},
                  {}, std::chrono::minutes(10));
  if (!printed) return std::move(printed).error();
  const json said = json::parse(*printed, nullptr, false);
  if (!said.is_array() || said.size() != 1 || !said[0].contains("avg_ts"))
    return failed("llama-bench said something else than a list of one test");
  return said[0]["avg_ts"].get<double>();
}

}  // namespace

Result<> write_gguf(const std::string& path, const model::Shape& shape, LlamaType type) {
  auto architecture = gguf::architecture_of(shape);
  if (!architecture) return std::move(architecture).error();
  if (auto none = gguf::add_vocabulary("", shape.vocabulary, architecture->fields); !none) return none;
  std::vector<gguf::Tensor> tensors;
  for (const gguf::Planned& planned : architecture->tensors) {
    const bool small = planned.always_f32 || type == LlamaType::f32;
    tensors.push_back({planned.name, planned.shape, small ? Type::f32 : Type::q8_0});
  }
  const gguf::Layout layout = gguf::lay_out(architecture->fields, tensors);
  std::ofstream file(path, std::ios::binary);
  file << layout.head;
  std::uint64_t state = 88172645463325252U;
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    file.seekp(static_cast<std::streamoff>(layout.begins[at]));
    file << numbers_of(tensors[at], state);
  }
  file.close();
  std::error_code failure;
  fs::resize_file(path, layout.file_bytes, failure);
  return file.good() && !failure ? Result<>() : Result<>(failed("could not be written").within(path));
}

Result<> find_llama_tools(const std::string& folder) {
  for (const char* tool : {"llama-bench", "llama-batched-bench"}) {
    if (!folder.empty() && fs::exists(folder + "/" + tool)) continue;
    return failed("the peer is missing: no " + std::string(tool))
        .within(folder.empty() ? "--llama" : folder)
        .remedy("bench/peers/llama_tools.sh DIR makes llama.cpp's tools, and --llama DIR names them");
  }
  return {};
}

Result<double> llama_prefill(const LlamaLoad& load) { return bench_speed(load, 0, load.prompt, 0); }
Result<double> llama_one_stream(const LlamaLoad& load) {
  return bench_speed(load, load.prompt, 0, load.generated);
}

Result<double> llama_streams(const LlamaLoad& load) {
  const int context = load.streams * (load.prompt + load.generated);
  auto printed = run_command(
      {load.tools + "/llama-batched-bench", "-m", load.model, "-c", std::to_string(context), "-t",
       std::to_string(load.threads), "-npp", std::to_string(load.prompt), "-ntg",
       std::to_string(load.generated), "-npl", std::to_string(load.streams), "--output-format", "jsonl"},
      {}, std::chrono::minutes(10));
  if (!printed) return std::move(printed).error();
  const auto begin = printed->find('{');
  const auto end = printed->find('}', begin);
  if (end == std::string::npos) return failed("llama-batched-bench said nothing of its speed");
  const json said = json::parse(printed->substr(begin, end - begin + 1), nullptr, false);
  if (!said.is_object() || !said.contains("speed_tg"))
    return failed("llama-batched-bench said nothing of its speed");
  return said["speed_tg"].get<double>();
}

}  // namespace tutti::bench
