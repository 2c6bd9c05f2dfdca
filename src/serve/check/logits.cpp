// The numbers of a model, compared row by row.
#include "serve/check/parts.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "serve/check/families.hpp"
#include "serve/check/kinds.hpp"
#include "serve/check/rows.hpp"
#include "serve/cpu/model.hpp"

namespace tutti::serve {
namespace {

// Rounding to 16 bits sends rows that are near a tie to other experts: their rows in the middle are looked
// at.
constexpr double bf16_error_of_experts_max = 0.25;
// Two ways to compute in bf16 are nearer to each other than to the truth.
constexpr double ways_error_max = 0.02;
// Of fp8 a row's scale is rounded in with the numbers where many rows are multiplied, and kept apart else.
constexpr double fp8_ways_error_max = 0.04;

// The rows of a sequence with others beside it, each in pieces of its own.
Result<Rows> rows_in_company(Model& model, const std::vector<Token>& tokens) {
  constexpr std::size_t sequences = 3;
  std::vector<std::vector<BlockId>> blocks;
  for (std::size_t at = 0; at < sequences; ++at) blocks.push_back(made_blocks(at, model.limits().context));
  std::array<std::size_t, sequences> done{};
  Rows rows;
  for (std::size_t turn = 0; done[1] < tokens.size(); ++turn) {
    std::vector<Chunk> chunks;
    std::int32_t first_row = 0;
    std::int32_t own_rows = 0;
    for (std::size_t at = 0; at < sequences; ++at) {
      const std::size_t left = tokens.size() - done[at];
      if (left == 0 || (at != 1 && (turn + at) % 3 == 0)) continue;
      const std::size_t count = std::min(left, (turn * 7 + 5 * at) % 41 % (turn % 2 == 0 ? 2 : 41) + 1);
      chunks.push_back({.tokens = std::span(tokens).subspan(done[at], count),
                        .first = static_cast<std::int64_t>(done[at]),
                        .blocks = blocks[at],
                        .rows = static_cast<std::int32_t>(count)});
      if (at < 1) first_row += static_cast<std::int32_t>(count);
      if (at == 1) own_rows = static_cast<std::int32_t>(count);
      done[at] += count;
    }
    if (auto computed = model.step(chunks); !computed) return std::move(computed).error();
    for (std::int32_t row = first_row; row < first_row + own_rows; ++row) {
      auto logits = model.logits(row);
      if (!logits) return std::move(logits).error();
      rows.push_back(std::move(*logits));
    }
  }
  return rows;
}

class Comparison {
 public:
  Comparison(const cpu::Family& family, const Print& print)
      : family_(family), print_(print), tensors_(cpu::made_tensors(family.shape)) {}

  Result<> run() {
    const model::Shape& shape = family_.shape;
    const std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(shape.context) - 3, 700);
    tokens_ = made_tokens(shape.vocabulary, count, 1);
    const auto expected = expected_of(tensors_);
    if (!expected) return expected.error();
    const auto expected_of_fp8 = expected_of(rounded_to_fp8(shape, tensors_));
    if (!expected_of_fp8) return expected_of_fp8.error();
    for (const CheckedKind& kind : checked_kinds) {
      if (auto done = compare(kind, kind.is_fp8 ? *expected_of_fp8 : *expected); !done) return done;
    }
    return {};
  }

 private:
  Result<Rows> expected_of(const cpu::MadeTensors& tensors) const {
    auto host = cpu::make_model(
        family_.shape, {.cache_bytes = cpu_cache_bytes, .step_tokens_max = 1024, .step_rows_max = 1024},
        cpu::reader_of(tensors));
    if (!host) return std::move(host).error();
    return rows_of(**host, {{tokens_}}, {tokens_.size()});
  }

  Result<std::unique_ptr<Model>> made(cuda::Options options) const {
    options.blocks_max = 3 * ((family_.shape.context + 15) / 16);
    options.step_tokens_max = 1024;
    options.step_rows_max = 1024;
    options.tunes = false;
    return cuda::make_model(family_.shape, options, cpu::reader_of(tensors_));
  }

  Result<> compare(const CheckedKind& kind, const Rows& expected) {
    const bool is_f32 = kind.type == cuda::Type::f32;
    const double allowed = is_f32           ? f32_error_max
                           : is_rough(kind) ? bf16_error_of_experts_max
                                            : bf16_error_max;
    const double allowed_of_ways = is_f32           ? f32_error_max
                                   : is_rough(kind) ? bf16_error_of_experts_max
                                   : kind.is_fp8    ? fp8_ways_error_max
                                                    : ways_error_max;
    auto model = made({.type = kind.type, .is_fp8 = kind.is_fp8});
    if (!model) return std::move(model).error();
    auto whole = rows_of(**model, {{tokens_}}, {tokens_.size()});
    if (!whole) return std::move(whole).error();
    if (auto fine = note(kind, "at once", distance(*whole, expected, is_rough(kind)), allowed); !fine)
      return fine;
    const auto ways = [&](const char* name, const Result<Rows>& rows) -> Result<> {
      if (!rows) return rows.error();
      return note(kind, name, distance(*rows, *whole, is_rough(kind)), allowed_of_ways);
    };
    if (auto fine = ways("token by token", rows_of(**model, {{tokens_}}, {1})); !fine) return fine;
    if (auto fine = ways("in pieces", rows_of(**model, {{tokens_}}, {5, 64, 1, 1, 63, 130, 2, 17})); !fine)
      return fine;
    if (auto fine = ways("in company", rows_in_company(**model, tokens_)); !fine) return fine;
    if (is_f32) return {};
    auto plain = made({.type = kind.type,
                       .is_fp8 = kind.is_fp8,
                       .graphs = false,
                       .overlaps = false,
                       .fast_attention = false});
    if (!plain) return std::move(plain).error();
    if (auto fine = ways("plain attention", rows_of(**plain, {{tokens_}}, {tokens_.size()})); !fine)
      return fine;
    return ways("plain, token by token", rows_of(**plain, {{tokens_}}, {1}));
  }

  bool is_rough(const CheckedKind& kind) const {
    return kind.type == cuda::Type::bf16 && family_.shape.experts.count > 0;
  }

  Result<> note(const CheckedKind& kind, const char* way, double error, double allowed) const {
    return serve::note(print_, {family_.name, kind.name, way, is_rough(kind)}, error, allowed);
  }

  const cpu::Family& family_;
  const Print& print_;
  cpu::MadeTensors tensors_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<> check_logits(const Print& print) {
  std::optional<Error> first;
  for (const cpu::Family& family : checked_families()) {
    auto done = Comparison(family, print).run();
    if (done) continue;
    print("FAILED: " + done.error().text());
    if (!first) first = std::move(done).error();
  }
  if (first) return *std::move(first);
  return {};
}

}  // namespace tutti::serve
