#include "serve/cuda/inputs.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr std::size_t number_bytes = sizeof(std::int32_t);
// Each part begins at a whole line.
constexpr std::size_t line_bytes = 64;
// Chunks of a step that want no row, beside those that do: parts of long prompts.
constexpr std::int64_t chunks_without_rows_max = 64;

std::size_t whole_lines(std::int64_t numbers) {
  return (static_cast<std::size_t>(numbers) * number_bytes + line_bytes - 1) / line_bytes * line_bytes;
}

std::int64_t blocks_of(const Chunk& chunk, std::int32_t block_tokens) {
  const std::int64_t end = chunk.first + static_cast<std::int64_t>(chunk.tokens.size());
  return (end + block_tokens - 1) / block_tokens;
}

bool is_alone(const Chunk& chunk) { return chunk.tokens.size() == 1; }

std::int32_t divided_up(std::size_t a, std::int32_t b) { return (static_cast<std::int32_t>(a) + b - 1) / b; }

// Where the tokens of each chunk begin: those that are alone stand in front of the others.
std::vector<std::int32_t> first_tokens(std::span<const Chunk> chunks) {
  std::vector<std::int32_t> first(chunks.size());
  std::int32_t tokens = 0;
  for (const bool alone : {true, false}) {
    for (std::size_t at = 0; at < chunks.size(); ++at) {
      if (is_alone(chunks[at]) != alone) continue;
      first[at] = tokens;
      tokens += static_cast<std::int32_t>(chunks[at].tokens.size());
    }
  }
  return first;
}

class Packer {
 public:
  Packer(const StepCounts& counts, std::int32_t tile_tokens, std::span<std::byte> memory,
         std::span<const std::int32_t> places)
      : layout_(counts.tokens, counts.rows, counts.tiles),
        tile_tokens_(tile_tokens),
        memory_(memory),
        places_(places) {}

  void add(const Chunk& chunk, std::int64_t blocks) {
    const std::int32_t first = tokens_;
    for (const Token token : chunk.tokens) {
      put(layout_.tokens(), tokens_,
          chunk.follows < 0 ? token : -1 - places_[static_cast<std::size_t>(chunk.follows)]);
      put(layout_.positions(), tokens_, static_cast<std::int32_t>(chunk.first) + tokens_ - first);
      put(layout_.table_places(), tokens_, blocks_);
      put(layout_.adapters(), tokens_, chunk.adapter);
      ++tokens_;
    }
    for (std::int64_t at = 0; at < blocks; ++at)
      put(layout_.tables(), blocks_++, chunk.blocks[static_cast<std::size_t>(at)]);
  }

  // The tiles of a chunk whose first token is this one.
  void add_tiles(std::int32_t first, std::int32_t tokens) {
    for (std::int32_t at = 0; at < tokens; at += tile_tokens_)
      pending_.push_back({first + at, std::min(tile_tokens_, tokens - at)});
  }

  // Those that see most come first, so that none of them is begun when all others are done.
  void put_tiles() {
    const auto seen = [&](const Tile& tile) { return get(layout_.positions(), tile.first) + tile.count; };
    std::stable_sort(pending_.begin(), pending_.end(),
                     [&](const Tile& a, const Tile& b) { return seen(a) > seen(b); });
    for (std::size_t at = 0; at < pending_.size(); ++at) {
      put(layout_.tiles(), static_cast<std::int32_t>(2 * at), pending_[at].first);
      put(layout_.tiles(), static_cast<std::int32_t>(2 * at + 1), pending_[at].count);
    }
  }

  void add_row(std::int32_t token) { put(layout_.rows(), rows_++, token); }

  // The rest belongs to nobody.
  void fill(const StepCounts& counts) {
    for (; tokens_ < counts.tokens; ++tokens_) {
      put(layout_.tokens(), tokens_, 0);
      put(layout_.positions(), tokens_, -1);
      put(layout_.table_places(), tokens_, 0);
      put(layout_.adapters(), tokens_, 0);
    }
    while (rows_ < counts.rows) add_row(rows_);
  }

  std::size_t bytes() const { return layout_.tables() + static_cast<std::size_t>(blocks_) * number_bytes; }

 private:
  void put(std::size_t part, std::int32_t at, std::int32_t number) {
    const std::size_t place = part + static_cast<std::size_t>(at) * number_bytes;
    TUTTI_CHECK(place + number_bytes <= memory_.size());
    *reinterpret_cast<std::int32_t*>(memory_.data() + place) = number;
  }
  std::int32_t get(std::size_t part, std::int32_t at) const {
    return *reinterpret_cast<const std::int32_t*>(memory_.data() + part +
                                                  static_cast<std::size_t>(at) * number_bytes);
  }

  InputLayout layout_;
  std::int32_t tile_tokens_;
  std::span<std::byte> memory_;
  std::span<const std::int32_t> places_;
  std::vector<Tile> pending_;
  std::int32_t tokens_ = 0;
  std::int32_t rows_ = 0;
  std::int32_t blocks_ = 0;
};

}  // namespace

InputLayout::InputLayout(std::int64_t tokens, std::int64_t rows, std::int64_t tiles)
    : tokens_bytes_(whole_lines(tokens)),
      tiles_(4 * tokens_bytes_ + whole_lines(rows)),
      tables_(tiles_ + whole_lines(2 * tiles)) {}

StepCounts count_step(std::span<const Chunk> chunks, std::int32_t block_tokens, std::int32_t tile_tokens) {
  StepCounts counts{.is_plain = !chunks.empty()};
  for (const Chunk& chunk : chunks) {
    counts.tokens += static_cast<std::int32_t>(chunk.tokens.size());
    counts.rows += chunk.rows;
    counts.blocks += blocks_of(chunk, block_tokens);
    counts.is_plain = counts.is_plain && is_alone(chunk) && chunk.rows == 1;
    if (is_alone(chunk)) {
      ++counts.alone;
    } else {
      counts.tiles += divided_up(chunk.tokens.size(), tile_tokens);
    }
  }
  return counts;
}

std::vector<RowPlace> row_places(std::span<const Chunk> chunks) {
  const std::vector<std::int32_t> first_of = first_tokens(chunks);
  std::vector<RowPlace> places;
  for (std::size_t at = 0; at < chunks.size(); ++at) {
    const auto size = static_cast<std::int32_t>(chunks[at].tokens.size());
    for (std::int32_t token = size - chunks[at].rows; token < size; ++token)
      places.push_back({first_of[at] + token, first_of[at], size});
  }
  return places;
}

std::size_t input_bytes_max(const Limits& limits) {
  const std::int64_t blocks_of_sequence = (limits.context + limits.block_tokens - 1) / limits.block_tokens;
  const std::int64_t chunks =
      std::min<std::int64_t>(limits.step_tokens_max, limits.step_rows_max + chunks_without_rows_max);
  // Each token may be a tile.
  const InputLayout largest(limits.step_tokens_max, limits.step_rows_max, limits.step_tokens_max);
  return largest.tables() + static_cast<std::size_t>(chunks * blocks_of_sequence) * number_bytes;
}

std::size_t input_bytes(const StepCounts& counts) {
  return InputLayout(counts.tokens, counts.rows, counts.tiles).tables() +
         static_cast<std::size_t>(counts.blocks) * number_bytes;
}

std::size_t pack_step(std::span<const Chunk> chunks, const StepCounts& counts, std::int32_t block_tokens,
                      std::int32_t tile_tokens, std::span<std::byte> memory,
                      std::span<const std::int32_t> places) {
  Packer packer(counts, tile_tokens, memory, places);
  const std::vector<std::int32_t> first_of = first_tokens(chunks);
  for (const bool alone : {true, false}) {
    for (std::size_t at = 0; at < chunks.size(); ++at) {
      const Chunk& chunk = chunks[at];
      if (is_alone(chunk) != alone || chunk.tokens.empty()) continue;
      packer.add(chunk, blocks_of(chunk, block_tokens));
      if (!alone) packer.add_tiles(first_of[at], static_cast<std::int32_t>(chunk.tokens.size()));
    }
  }
  packer.put_tiles();
  for (std::size_t at = 0; at < chunks.size(); ++at) {
    const auto size = static_cast<std::int32_t>(chunks[at].tokens.size());
    for (std::int32_t row = size - chunks[at].rows; row < size; ++row) packer.add_row(first_of[at] + row);
  }
  packer.fill(counts);
  return packer.bytes();
}

}  // namespace tutti::serve::cuda
