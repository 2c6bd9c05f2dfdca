// Sequences with adapters and without, side by side on a GPU, beside the CPU's.
#include "serve/check/families.hpp"
#include "serve/check/kinds.hpp"
#include "serve/check/parts.hpp"
#include "serve/check/rows.hpp"
#include "serve/cpu/model.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t adapted_sequences = 6;  // of no adapter, the first and the second, twice
constexpr std::size_t adapted_tokens = 60;
constexpr double adapted_bf16_error_max = 0.06;
// Rounding sends rows that are near a tie to other experts.
constexpr double adapted_experts_error_max = 0.3;

std::vector<CheckedSequence> adapted_tokens_of(const model::Shape& shape) {
  std::vector<CheckedSequence> sequences;
  for (std::size_t at = 0; at < adapted_sequences; ++at)
    sequences.push_back(
        {made_tokens(shape.vocabulary, adapted_tokens, at), static_cast<std::int32_t>(at % 3)});
  return sequences;
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
  const auto sequences = adapted_tokens_of(shape);
  const auto expected_of = [&](const cpu::MadeTensors& from) -> Result<Rows> {
    auto host = cpu::make_model(
        shape,
        {.cache_bytes = 64 << 20, .step_tokens_max = 1024, .step_rows_max = 1024, .adapters = adapters},
        cpu::reader_of(from));
    if (!host) return std::move(host).error();
    return rows_of(**host, sequences, {adapted_tokens});
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
      const auto rows = rows_of(**model, sequences, way.pieces);
      if (!rows) return rows.error();
      const double error = distance(*rows, kind.is_fp8 ? *expected_of_fp8 : *expected, is_rough);
      if (auto fine = note(print, {family.name, kind.name, way.name, is_rough}, error, allowed); !fine)
        return fine;
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
