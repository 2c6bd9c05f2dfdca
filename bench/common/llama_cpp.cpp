#include "common/llama_cpp.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/measure.hpp"

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint32_t gguf_version = 3;
constexpr std::uint64_t alignment_bytes = 32;
constexpr std::uint64_t block_numbers = 32;
constexpr std::uint64_t q8_0_block_bytes = 34;

enum class ValueType : std::uint32_t { u32 = 4, f32 = 6, text = 8 };

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> sizes;  // the fastest first
  bool is_matrix = false;

  std::uint64_t numbers() const {
    std::uint64_t product = 1;
    for (const std::uint64_t size : sizes) product *= size;
    return product;
  }
};

class Writer {
 public:
  explicit Writer(const std::string& path) : file_(path, std::ios::binary) {}

  template <class T>
  void number(T value) {
    bytes(&value, sizeof value);
  }
  void text(const std::string& value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes(value.data(), value.size());
  }
  void key(const std::string& name, std::uint32_t value) {
    text(name);
    number(static_cast<std::uint32_t>(ValueType::u32));
    number(value);
  }
  void key(const std::string& name, float value) {
    text(name);
    number(static_cast<std::uint32_t>(ValueType::f32));
    number(value);
  }
  void key(const std::string& name, const std::string& value) {
    text(name);
    number(static_cast<std::uint32_t>(ValueType::text));
    text(value);
  }
  void bytes(const void* data, std::size_t count) {
    file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(count));
    written_ += count;
  }
  void align() {
    while (written_ % alignment_bytes != 0) number(std::uint8_t{0});
  }
  bool good() { return file_.flush().good(); }

 private:
  std::ofstream file_;
  std::uint64_t written_ = 0;
};

std::vector<GgufTensor> tensors_of(const model::Shape& shape) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t hidden = size(shape.hidden);
  const std::uint64_t queries = size(shape.heads * shape.head_size);
  const std::uint64_t keys = size(shape.kv_heads * shape.head_size);
  const std::uint64_t wide = size(shape.intermediate);
  std::vector<GgufTensor> all{{"token_embd.weight", {hidden, size(shape.vocabulary)}, true},
                              {"output_norm.weight", {hidden}}};
  if (!shape.tied) all.push_back({"output.weight", {hidden, size(shape.vocabulary)}, true});
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    all.push_back({at + "attn_norm.weight", {hidden}});
    all.push_back({at + "attn_q.weight", {hidden, queries}, true});
    all.push_back({at + "attn_k.weight", {hidden, keys}, true});
    all.push_back({at + "attn_v.weight", {hidden, keys}, true});
    all.push_back({at + "attn_output.weight", {queries, hidden}, true});
    all.push_back({at + "ffn_norm.weight", {hidden}});
    all.push_back({at + "ffn_gate.weight", {hidden, wide}, true});
    all.push_back({at + "ffn_up.weight", {hidden, wide}, true});
    all.push_back({at + "ffn_down.weight", {wide, hidden}, true});
  }
  return all;
}

std::uint64_t bytes_of(const GgufTensor& tensor, LlamaType type) {
  if (!tensor.is_matrix || type == LlamaType::f32) return tensor.numbers() * sizeof(float);
  return tensor.numbers() / block_numbers * q8_0_block_bytes;
}

std::uint64_t next_random(std::uint64_t& state) {
  state ^= state << 13U;
  state ^= state >> 7U;
  state ^= state << 17U;
  return state;
}

void write_numbers(Writer& writer, const GgufTensor& tensor, LlamaType type, std::uint64_t& state) {
  if (!tensor.is_matrix) {
    for (std::uint64_t at = 0; at < tensor.numbers(); ++at) writer.number(1.0F);
  } else if (type == LlamaType::f32) {
    std::vector<float> row(tensor.sizes[0]);
    for (std::uint64_t at = 0; at < tensor.sizes[1]; ++at) {
      for (float& value : row)
        value = 0.04F * (static_cast<float>(next_random(state) >> 40U) * 0x1p-24F - 0.5F);
      writer.bytes(row.data(), row.size() * sizeof(float));
    }
  } else {
    // A scale of 2^-12 in front of 32 random bytes.
    std::vector<std::uint8_t> row(tensor.sizes[0] / block_numbers * q8_0_block_bytes);
    for (std::uint64_t at = 0; at < tensor.sizes[1]; ++at) {
      for (std::size_t block = 0; block < row.size(); block += q8_0_block_bytes) {
        constexpr std::uint16_t scale = 3U << 10U;
        std::memcpy(row.data() + block, &scale, sizeof scale);
        for (std::size_t byte = 2; byte < q8_0_block_bytes; byte += 8) {
          const std::uint64_t random = next_random(state);
          std::memcpy(row.data() + block + byte, &random, sizeof random);
        }
      }
      writer.bytes(row.data(), row.size());
    }
  }
}

// What llama-bench says of one test.
Result<double> bench_speed(const LlamaLoad& load, int prompt, int generated) {
  auto printed =
      run_command({load.tools + "/llama-bench", "-m", load.model, "-t", std::to_string(load.threads), "-p",
                   std::to_string(prompt), "-n", std::to_string(generated), "-r", "2", "-o", "json"},
                  {}, std::chrono::minutes(10));
  if (!printed) return std::move(printed).error();
  const json said = json::parse(*printed, nullptr, false);
  if (!said.is_array() || said.size() != 1 || !said[0].contains("avg_ts"))
    return failed("llama-bench said something else than a list of one test");
  return said[0]["avg_ts"].get<double>();
}

}  // namespace

Result<> write_gguf(const std::string& path, const model::Shape& shape, LlamaType type) {
  const auto small = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const auto tensors = tensors_of(shape);
  Writer writer(path);
  writer.bytes("GGUF", 4);
  writer.number(gguf_version);
  writer.number(static_cast<std::uint64_t>(tensors.size()));
  writer.number(std::uint64_t{11});
  writer.key("general.architecture", std::string("llama"));
  writer.key("llama.vocab_size", small(shape.vocabulary));
  writer.key("llama.context_length", small(shape.context));
  writer.key("llama.embedding_length", small(shape.hidden));
  writer.key("llama.block_count", small(shape.layers));
  writer.key("llama.feed_forward_length", small(shape.intermediate));
  writer.key("llama.attention.head_count", small(shape.heads));
  writer.key("llama.attention.head_count_kv", small(shape.kv_heads));
  writer.key("llama.attention.layer_norm_rms_epsilon", static_cast<float>(shape.norm_epsilon));
  writer.key("llama.rope.dimension_count", small(shape.head_size));
  writer.key("tokenizer.ggml.model", std::string("no_vocab"));
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    constexpr std::uint32_t q8_0 = 8;
    writer.text(tensor.name);
    writer.number(static_cast<std::uint32_t>(tensor.sizes.size()));
    for (const std::uint64_t size : tensor.sizes) writer.number(size);
    writer.number(tensor.is_matrix && type == LlamaType::q8_0 ? q8_0 : 0U);
    writer.number(offset);
    offset += (bytes_of(tensor, type) + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
  std::uint64_t state = 88172645463325252U;
  for (const GgufTensor& tensor : tensors) {
    writer.align();
    write_numbers(writer, tensor, type, state);
  }
  writer.align();
  return writer.good() ? Result<>() : Result<>(failed("could not be written").within(path));
}

Result<> find_llama_tools(const std::string& folder) {
  for (const char* tool : {"llama-bench", "llama-batched-bench"}) {
    if (!folder.empty() && fs::exists(folder + "/" + tool)) continue;
    return failed("the peer is missing: no " + std::string(tool))
        .within(folder.empty() ? "--llama" : folder)
        .remedy(
            "build llama.cpp's llama-bench and llama-batched-bench (npm's node-llama-cpp carries the source "
            "and "
            "libraries), and name their folder: --llama DIR");
  }
  return {};
}

Result<double> llama_prefill(const LlamaLoad& load) { return bench_speed(load, load.prompt, 0); }
Result<double> llama_one_stream(const LlamaLoad& load) { return bench_speed(load, 0, load.generated); }

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
