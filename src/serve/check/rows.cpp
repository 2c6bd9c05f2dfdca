#include "serve/check/rows.hpp"

#include <algorithm>
#include <cmath>

#include "serve/check/families.hpp"
#include "serve/check/line.hpp"

namespace tutti::serve {

std::vector<Token> made_tokens(std::int64_t vocabulary, std::size_t count, std::uint64_t seed) {
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < count; ++at) {
    const double unit = (cpu::made_number(seed * 1000 + at) + 1) / 2;
    tokens.push_back(static_cast<Token>(unit * static_cast<double>(vocabulary)));
  }
  return tokens;
}

std::vector<BlockId> made_blocks(std::size_t sequence, std::int64_t context) {
  std::vector<BlockId> blocks;
  const auto count = static_cast<BlockId>((context + 15) / 16);
  blocks.reserve(static_cast<std::size_t>(count));
  for (BlockId at = 0; at < count; ++at)
    blocks.push_back(static_cast<BlockId>(sequence) * count + count - 1 - at);
  return blocks;
}

Result<Rows> rows_of(Model& model, const std::vector<CheckedSequence>& sequences,
                     const std::vector<std::size_t>& pieces) {
  std::vector<std::vector<BlockId>> blocks;
  for (std::size_t at = 0; at < sequences.size(); ++at)
    blocks.push_back(made_blocks(at, model.limits().context));
  const std::size_t tokens = sequences.front().tokens.size();
  std::vector<Rows> of_each(sequences.size());
  std::size_t done = 0;
  for (std::size_t turn = 0; done < tokens; ++turn) {
    const std::size_t count = std::min(pieces[std::min(turn, pieces.size() - 1)], tokens - done);
    std::vector<Chunk> chunks;
    for (std::size_t at = 0; at < sequences.size(); ++at)
      chunks.push_back({.tokens = std::span(sequences[at].tokens).subspan(done, count),
                        .first = static_cast<std::int64_t>(done),
                        .blocks = blocks[at],
                        .rows = static_cast<std::int32_t>(count),
                        .adapter = sequences[at].adapter});
    if (auto computed = model.step(chunks); !computed) return std::move(computed).error();
    for (std::size_t row = 0; row < sequences.size() * count; ++row) {
      auto logits = model.logits(static_cast<std::int32_t>(row));
      if (!logits) return std::move(logits).error();
      of_each[row / count].push_back(std::move(*logits));
    }
    done += count;
  }
  Rows all;
  for (Rows& each : of_each) std::ranges::move(each, std::back_inserter(all));
  return all;
}

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

Result<> note(const Print& print, const Checked& checked, double error, double allowed) {
  print(line("%-24s %-4s %-22s %s error %.1e", checked.family.c_str(), checked.type, checked.way,
             checked.in_the_middle ? "middle" : "largest", error));
  if (error <= allowed) return {};
  return failed(line("it is off by %.1e, and %.1e is allowed", error, allowed)).within(checked.family);
}

}  // namespace tutti::serve
