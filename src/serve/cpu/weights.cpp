#include "serve/cpu/weights.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <optional>

#include "learn/model/names.hpp"
#include "serve/model/arena.hpp"

namespace tutti::serve::cpu {
namespace {

// Floats that one thread reads and packs at a time.
constexpr std::int64_t piece_floats = std::int64_t{1} << 18;

// Some rows of a tensor, and where they belong.
struct Piece {
  std::string tensor;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  Matrix matrix;
  std::int64_t first_panel = 0;
  float* vector = nullptr;  // instead of a matrix
};

// Lays a model out in memory. Done twice: to count, and with the memory.
class Layout {
 public:
  Layout(const model::Shape& shape, WeightType type, const Part& part, Arena arena)
      : shape_(shape), type_(type), part_(part), arena_(arena) {}

  void run(Weights& weights) {
    const model::Names names = model::names_of(shape_);
    // Rows that are only looked up may be more precise: they cost no time.
    const WeightType looked_up = type_ == WeightType::f32 ? WeightType::f32 : WeightType::bf16;
    const WeightType embedding = shape_.tied ? type_ : looked_up;
    weights.embedding =
        matrix({model::weight_of(names.embedding)}, {shape_.vocabulary}, shape_.hidden, embedding);
    if (shape_.learned_positions)
      weights.positions =
          matrix({model::weight_of(names.positions)}, {shape_.context}, shape_.hidden, looked_up);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) weights.layers.push_back(layer_of(layer));
    weights.norm = norm(names.norm);
    const HeadRows rows = head_of_part(shape_.vocabulary, part_, panel_rows);
    weights.head =
        shape_.tied ? panels_of(weights.embedding, rows)
                    : matrix({model::weight_of(names.head)}, {rows.count}, shape_.hidden, type_, rows.first);
  }

  std::size_t bytes() const { return arena_.used(); }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  static Matrix panels_of(Matrix matrix, const HeadRows& rows) {
    if (matrix.data != nullptr) matrix.data = matrix.panel(rows.first / panel_rows);
    matrix.panels = whole_panels(rows.count) / panel_rows;
    return matrix;
  }

  // Several tensors from a row on, one below the other, each in whole panels.
  Matrix matrix(const std::vector<std::string>& tensors, const std::vector<std::int64_t>& rows,
                std::int64_t columns, WeightType type, std::int64_t first_row = 0) {
    Matrix made{.type = type, .panels = 0, .columns = columns};
    for (const std::int64_t count : rows) made.panels += whole_panels(count) / panel_rows;
    made.data = arena_.take_bytes(made.bytes());
    std::int64_t first_panel = 0;
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      const std::int64_t step = std::max<std::int64_t>(1, piece_floats / (panel_rows * columns)) * panel_rows;
      for (std::int64_t row = 0; row < rows[at]; row += step) {
        pieces_.push_back({.tensor = tensors[at],
                           .first_row = first_row + row,
                           .rows = std::min(step, rows[at] - row),
                           .matrix = made,
                           .first_panel = first_panel + row / panel_rows});
      }
      first_panel += whole_panels(rows[at]) / panel_rows;
    }
    return made;
  }

  // The same of vectors.
  float* vector(const std::vector<std::string>& tensors, const std::vector<std::int64_t>& counts) {
    std::int64_t total = 0;
    for (const std::int64_t count : counts) total += whole_panels(count);
    float* const made = arena_.take<float>(total);
    std::int64_t first = 0;
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      pieces_.push_back(
          {.tensor = tensors[at], .rows = counts[at], .vector = made == nullptr ? nullptr : made + first});
      first += whole_panels(counts[at]);
    }
    return made;
  }

  NormWeights norm(const std::string& part) {
    NormWeights made{.scale = vector({model::weight_of(part)}, {shape_.hidden})};
    if (shape_.norm == model::Norm::layer) made.bias = vector({model::bias_of(part)}, {shape_.hidden});
    return made;
  }

  FeedForwardWeights feed_forward(const model::FeedForwardNames& names, std::int64_t width) {
    std::vector<std::string> parts{names.up};
    if (shape_.gated) parts.insert(parts.begin(), names.gate);
    const std::vector<std::int64_t> widths(parts.size(), width);
    FeedForwardWeights made{.width = width};
    made.up = matrix(each(parts, model::weight_of), widths, shape_.hidden, type_);
    made.down = matrix({model::weight_of(names.down)}, {shape_.hidden}, width, type_);
    if (!shape_.mlp_bias) return made;
    made.up_bias = vector(each(parts, model::bias_of), widths);
    made.down_bias = vector({model::bias_of(names.down)}, {shape_.hidden});
    return made;
  }

  LayerWeights layer_of(std::int64_t layer) {
    const model::LayerNames names = model::names_of_layer(shape_, layer);
    const std::vector<std::string> parts{names.queries, names.keys, names.values};
    const std::int64_t keys = shape_.kv_heads * shape_.head_size;
    const std::vector<std::int64_t> rows{shape_.heads * shape_.head_size, keys, keys};
    LayerWeights made;
    made.attention_norm = norm(names.attention_norm);
    made.qkv = matrix(each(parts, model::weight_of), rows, shape_.hidden, type_);
    if (shape_.qkv_bias) made.qkv_bias = vector(each(parts, model::bias_of), rows);
    if (shape_.qk_norm) {
      made.query_norm = vector({model::weight_of(names.query_norm)}, {shape_.head_size});
      made.key_norm = vector({model::weight_of(names.key_norm)}, {shape_.head_size});
    }
    made.output = matrix({model::weight_of(names.output)}, {shape_.hidden}, rows[0], type_);
    if (shape_.output_bias) made.output_bias = vector({model::bias_of(names.output)}, {shape_.hidden});
    made.feed_forward_norm = norm(names.feed_forward_norm);
    if (!shape_.has_experts(layer)) {
      made.feed_forward = feed_forward(names.feed_forward, shape_.intermediate);
      return made;
    }
    made.router =
        matrix({model::weight_of(names.router)}, {shape_.experts.count}, shape_.hidden, WeightType::f32);
    for (std::int64_t expert = 0; expert < shape_.experts.count; ++expert) {
      made.experts.push_back(
          feed_forward(model::names_of_expert(shape_, layer, expert), shape_.experts.intermediate));
    }
    return made;
  }

  static std::vector<std::string> each(const std::vector<std::string>& parts,
                                       std::string (*name)(const std::string&)) {
    std::vector<std::string> names;
    names.reserve(parts.size());
    for (const std::string& part : parts) names.push_back(name(part));
    return names;
  }

  const model::Shape& shape_;
  WeightType type_;
  Part part_;
  Arena arena_;
  std::vector<Piece> pieces_;
};

// Written so that a compiler makes vectors of it.
Result<> check_finite(std::span<const float> floats, const std::string& tensor) {
  constexpr std::uint32_t exponent = 0x7f800000U;
  std::uint32_t found = 0;
  for (const float number : floats)
    found |= (std::bit_cast<std::uint32_t>(number) & exponent) == exponent ? 1U : 0U;
  if (found == 0) return {};
  return invalid("the tensor '" + tensor + "' has numbers that are none, or infinite: its file is damaged");
}

Result<> fill(const Piece& piece, const ReadRows& read, std::vector<float>& floats) {
  if (piece.vector != nullptr) {
    const std::span<float> numbers{piece.vector, static_cast<std::size_t>(piece.rows)};
    auto done = read(piece.tensor, 0, piece.rows, numbers);
    return done ? check_finite(numbers, piece.tensor) : std::move(done);
  }
  const std::int64_t columns = piece.matrix.columns;
  floats.resize(static_cast<std::size_t>(piece.rows * columns));
  if (auto done = read(piece.tensor, piece.first_row, piece.rows, floats); !done) return done;
  if (auto fine = check_finite(floats, piece.tensor); !fine) return fine;
  for (std::int64_t row = 0; row < piece.rows; row += panel_rows) {
    const std::int64_t rows = std::min(panel_rows, piece.rows - row);
    pack_panel(piece.matrix, piece.first_panel + row / panel_rows,
               std::span(floats).subspan(static_cast<std::size_t>(row * columns),
                                         static_cast<std::size_t>(rows * columns)));
  }
  return {};
}

}  // namespace

std::size_t Weights::bytes(const model::Shape& shape, WeightType type, const Part& part) {
  Weights counted;
  Layout layout(shape, type, part, Arena());
  layout.run(counted);
  return layout.bytes();
}

Result<Weights> Weights::load(const model::Shape& shape, WeightType type, const ReadRows& read, Team& team,
                              const Part& part) {
  Weights weights;
  auto memory = Memory::reserve(bytes(shape, type, part), "the weights");
  if (!memory) return std::move(memory).error();
  weights.memory = std::move(*memory);
  Layout layout(shape, type, part, Arena(weights.memory.data()));
  layout.run(weights);
  std::mutex mutex;
  std::optional<Error> problem;
  team.run([&](Member& member) {
    std::vector<float> floats;
    const auto& pieces = layout.pieces();
    member.share(static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        auto done = fill(pieces[static_cast<std::size_t>(at)], read, floats);
        if (done) continue;
        const std::lock_guard lock(mutex);
        if (!problem) problem = std::move(done).error();
      }
    });
  });
  if (problem) return *std::move(problem);
  return weights;
}

}  // namespace tutti::serve::cpu
