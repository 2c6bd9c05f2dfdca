// Sequences with adapters and without, side by side on a GPU, beside the CPU's.
#include <algorithm>
#include <array>
#include <cmath>

#include "serve/check/families.hpp"
#include "serve/check/kinds.hpp"
#include "serve/check/line.hpp"
#include "serve/check/parts.hpp"
#include "serve/cpu/model.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t adapted_sequences = 6;  // of no adapter, the first and the second, twice
constexpr std::size_t adapted_tokens = 60;
constexpr double adapted_bf16_error_max = 0.06;
// Rounding sends rows that are near a tie to other experts.
constexpr double adapted_experts_error_max = 0.3;

// The logits behind each token, sequence after sequence.
using AdaptedRows = std::vector<std::vector<float>>;

// All sequences take such pieces at once, the last of them again and again.
Result<AdaptedRows> adapted_rows(Model& model, const std::vector<std::size_t>& pieces) {
  const Limits& limits = model.limits();
  const auto blocks_each =
      static_cast<BlockId>((limits.context + limits.block_tokens - 1) / limits.block_tokens);
  std::array<std::vector<Token>, adapted_sequences> tokens;
  std::array<std::vector<BlockId>, adapted_sequences> blocks;
  for (std::size_t sequence = 0; sequence < adapted_sequences; ++sequence) {
    for (std::size_t at = 0; at < adapted_tokens; ++at) {
      const double unit = (cpu::made_number(sequence * 1000 + at) + 1) / 2;
      tokens[sequence].push_back(static_cast<Token>(unit * static_cast<double>(limits.vocabulary)));
    }
    for (BlockId at = 0; at < blocks_each; ++at)
      blocks[sequence].push_back(static_cast<BlockId>(sequence) * blocks_each + at);
  }
  std::array<AdaptedRows, adapted_sequences> rows;
  std::size_t done = 0;
  for (std::size_t turn = 0; done < adapted_tokens; ++turn) {
    const std::size_t count = std::min(pieces[std::min(turn, pieces.size() - 1)], adapted_tokens - done);
    std::vector<Chunk> chunks;
    for (std::size_t sequence = 0; sequence < adapted_sequences; ++sequence)
      chunks.push_back({.tokens = std::span(tokens[sequence]).subspan(done, count),
                        .first = static_cast<std::int64_t>(done),
                        .blocks = blocks[sequence],
                        .rows = static_cast<std::int32_t>(count),
                        .adapter = static_cast<std::int32_t>(sequence % 3)});
    if (auto computed = model.step(chunks); !computed) return std::move(computed).error();
    for (std::size_t row = 0; row < adapted_sequences * count; ++row) {
      auto logits = model.logits(static_cast<std::int32_t>(row));
      if (!logits) return std::move(logits).error();
      rows[row / count].push_back(std::move(*logits));
    }
    done += count;
  }
  AdaptedRows all;
  for (AdaptedRows& each : rows)
    for (auto& row : each) all.push_back(std::move(row));
  return all;
}

// Of rows in the order of their errors the last, or the one in the middle.
double adapted_error(const AdaptedRows& rows, const AdaptedRows& expected, bool in_the_middle) {
  std::vector<double> errors;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    double difference = 0;
    double length = 0;
    for (std::size_t at = 0; at < expected[row].size(); ++at) {
      const auto wanted = static_cast<double>(expected[row][at]);
      difference += std::pow(static_cast<double>(rows[row][at]) - wanted, 2);
      length += wanted * wanted;
    }
    const double error = std::sqrt(difference / length);
    errors.push_back(std::isfinite(error) ? error : INFINITY);
  }
  std::sort(errors.begin(), errors.end());
  return in_the_middle ? errors[errors.size() / 2] : errors.back();
}

Result<> check_adapters_of(const cpu::Family& family, const Print& print) {
  const model::Shape& shape = family.shape;
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  const lora::MadeAdapter all(shape, {.rank = 5, .alpha = 7, .seed = 3});
  const lora::MadeAdapter few(
      shape, {.rank = 20, .alpha = 10, .seed = 4, .targets = {"q_proj", "v_proj", "down_proj", "c_attn"}});
  std::vector<lora::Adapter> adapters;
  for (const auto* made : {&all, &few}) {
    auto adapter = lora::Adapter::open(made->path(), shape);
    if (!adapter) return std::move(adapter).error();
    adapters.push_back(std::move(*adapter));
  }
  const auto expected_of = [&](const cpu::MadeTensors& from) -> Result<AdaptedRows> {
    auto host = cpu::make_model(
        shape,
        {.cache_bytes = 64 << 20, .step_tokens_max = 1024, .step_rows_max = 1024, .adapters = adapters},
        cpu::reader_of(from));
    if (!host) return std::move(host).error();
    return adapted_rows(**host, {adapted_tokens});
  };
  const auto expected = expected_of(tensors);
  if (!expected) return expected.error();
  const auto expected_of_fp8 = expected_of(rounded_to_fp8(shape, tensors));
  if (!expected_of_fp8) return expected_of_fp8.error();
  for (const CheckedKind& kind : checked_kinds) {
    const bool is_rough = kind.type == cuda::Type::bf16 && shape.experts.count > 0;
    const double allowed = is_rough                        ? adapted_experts_error_max
                           : kind.type == cuda::Type::bf16 ? adapted_bf16_error_max
                                                           : f32_error_max;
    auto model = cuda::make_model(
        shape,
        {.type = kind.type,
         .is_fp8 = kind.is_fp8,
         .blocks_max = static_cast<std::int64_t>(adapted_sequences) * ((shape.context + 15) / 16),
         .step_tokens_max = 1024,
         .step_rows_max = 1024,
         .tunes = false,
         .adapters = adapters},
        cpu::reader_of(tensors));
    if (!model) return std::move(model).error();
    struct Way {
      const char* name;
      std::vector<std::size_t> pieces;
    };
    for (const Way& way : {Way{"adapters, at once", {adapted_tokens}}, Way{"adapters, one by one", {1}},
                           Way{"adapters, in pieces", {7, 1, 1, 16, 2}}}) {
      const auto rows = adapted_rows(**model, way.pieces);
      if (!rows) return rows.error();
      const double error = adapted_error(*rows, kind.is_fp8 ? *expected_of_fp8 : *expected, is_rough);
      print(line("%-24s %-4s %-22s %s error %.1e", family.name.c_str(), kind.name, way.name,
                 is_rough ? "middle" : "largest", error));
      if (error > allowed)
        return failed(line("it is off by %.1e, and %.1e is allowed", error, allowed)).within(family.name);
    }
  }
  return {};
}

}  // namespace

Result<> check_gpu_adapters(const Print& print) {
  for (const cpu::Family& family : checked_families()) {
    if (auto done = check_adapters_of(family, print); !done) {
      print("FAILED: " + done.error().text());
      return done;
    }
  }
  return {};
}

}  // namespace tutti::serve
