// The numbers of a model, compared row by row.
#include "serve/check/parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "serve/check/families.hpp"
#include "serve/check/kinds.hpp"
#include "serve/check/line.hpp"
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

using Rows = std::vector<std::vector<float>>;

std::vector<Token> made_tokens(const model::Shape& shape, std::size_t count, std::uint64_t seed) {
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < count; ++at) {
    const double unit = (cpu::made_number(seed * 1000 + at) + 1) / 2;
    tokens.push_back(static_cast<Token>(unit * static_cast<double>(shape.vocabulary)));
  }
  return tokens;
}

// Backwards, so that nothing lies where it would by chance.
std::vector<BlockId> made_blocks(std::size_t sequence, std::int64_t context) {
  std::vector<BlockId> blocks;
  const auto count = static_cast<BlockId>((context + 15) / 16);
  blocks.reserve(static_cast<std::size_t>(count));
  for (BlockId at = 0; at < count; ++at)
    blocks.push_back(static_cast<BlockId>(sequence) * count + count - 1 - at);
  return blocks;
}

// The rows of a sequence whose tokens come in such pieces, the last of them again and again.
Result<Rows> rows_of(Model& model, const std::vector<Token>& tokens, const std::vector<std::size_t>& pieces) {
  const auto blocks = made_blocks(0, model.limits().context);
  Rows rows;
  std::size_t done = 0;
  for (std::size_t at = 0; done < tokens.size(); ++at) {
    const std::size_t count = std::min(pieces[std::min(at, pieces.size() - 1)], tokens.size() - done);
    const Chunk chunk{.tokens = std::span(tokens).subspan(done, count),
                      .first = static_cast<std::int64_t>(done),
                      .blocks = blocks,
                      .rows = static_cast<std::int32_t>(count)};
    if (auto computed = model.step({&chunk, 1}); !computed) return std::move(computed).error();
    for (std::int32_t row = 0; row < chunk.rows; ++row) {
      auto logits = model.logits(row);
      if (!logits) return std::move(logits).error();
      rows.push_back(std::move(*logits));
    }
    done += count;
  }
  return rows;
}

// The same with other sequences beside it, each in pieces of its own.
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

// The distance of two rows in relation to their length, the largest or, of those in order, the one in the
// middle; what is no number is infinitely far.
double distance(const Rows& rows, const Rows& expected, bool in_the_middle) {
  if (rows.size() != expected.size() || rows.empty()) return INFINITY;
  std::vector<double> all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    double difference = 0;
    double length = 0;
    for (std::size_t at = 0; at < expected[row].size(); ++at) {
      const auto wanted = static_cast<double>(expected[row][at]);
      difference += std::pow(static_cast<double>(rows[row][at]) - wanted, 2);
      length += wanted * wanted;
    }
    const double off = std::sqrt(difference / length);
    if (!std::isfinite(off)) return INFINITY;
    all.push_back(off);
  }
  std::sort(all.begin(), all.end());
  return in_the_middle ? all[all.size() / 2] : all.back();
}

class Comparison {
 public:
  Comparison(const cpu::Family& family, const Print& print)
      : family_(family), print_(print), tensors_(cpu::made_tensors(family.shape)) {}

  Result<> run() {
    const model::Shape& shape = family_.shape;
    const std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(shape.context) - 3, 700);
    tokens_ = made_tokens(shape, count, 1);
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
    return rows_of(**host, tokens_, {tokens_.size()});
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
    auto whole = rows_of(**model, tokens_, {tokens_.size()});
    if (!whole) return std::move(whole).error();
    if (auto fine = note(kind, "at once", distance(*whole, expected, is_rough(kind)), allowed); !fine)
      return fine;
    const auto ways = [&](const char* name, const Result<Rows>& rows) -> Result<> {
      if (!rows) return rows.error();
      return note(kind, name, distance(*rows, *whole, is_rough(kind)), allowed_of_ways);
    };
    if (auto fine = ways("token by token", rows_of(**model, tokens_, {1})); !fine) return fine;
    if (auto fine = ways("in pieces", rows_of(**model, tokens_, {5, 64, 1, 1, 63, 130, 2, 17})); !fine)
      return fine;
    if (auto fine = ways("in company", rows_in_company(**model, tokens_)); !fine) return fine;
    if (is_f32) return {};
    auto plain = made({.type = kind.type,
                       .is_fp8 = kind.is_fp8,
                       .graphs = false,
                       .overlaps = false,
                       .fast_attention = false});
    if (!plain) return std::move(plain).error();
    if (auto fine = ways("plain attention", rows_of(**plain, tokens_, {tokens_.size()})); !fine) return fine;
    return ways("plain, token by token", rows_of(**plain, tokens_, {1}));
  }

  bool is_rough(const CheckedKind& kind) const {
    return kind.type == cuda::Type::bf16 && family_.shape.experts.count > 0;
  }

  Result<> note(const CheckedKind& kind, const char* way, double error, double allowed) const {
    print_(line("%-24s %-4s %-22s %s error %.1e", family_.name.c_str(), kind.name, way,
                is_rough(kind) ? "middle" : "largest", error));
    if (error <= allowed) return {};
    return failed(line("it is off by %.1e, and %.1e is allowed", error, allowed)).within(family_.name);
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
