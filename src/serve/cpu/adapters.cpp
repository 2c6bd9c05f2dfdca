#include "serve/cpu/adapters.hpp"

#include <algorithm>

namespace tutti::serve::cpu {
namespace {

// A part whose two matrices have their place.
struct AdapterPiece {
  const lora::Adapter* adapter = nullptr;
  std::int64_t layer = 0;
  lora::Part part = lora::Part::queries;
  Matrix shrink;
  std::int64_t shrink_panel = 0;
  Matrix expand;
};

// Lays adapters out in memory. Done twice: to count, and with the memory.
class AdapterLayout {
 public:
  AdapterLayout(const model::Shape& shape, Arena arena) : shape_(shape), arena_(arena) {}

  std::vector<Adapters::Layer> add(const lora::Adapter& adapter) {
    std::vector<Adapters::Layer> layers(static_cast<std::size_t>(shape_.layers));
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      for (std::size_t product = 0; product < lora::products; ++product)
        layers[static_cast<std::size_t>(layer)][product] =
            change(adapter, layer, static_cast<lora::Product>(product));
    }
    return layers;
  }

  std::size_t bytes() const { return arena_.used(); }
  const std::vector<AdapterPiece>& pieces() const { return pieces_; }

 private:
  ProductChange change(const lora::Adapter& adapter, std::int64_t layer, lora::Product product) {
    const std::int64_t rank_panels = whole_panels(adapter.rank()) / panel_rows;
    ProductChange made;
    std::vector<lora::Part> changed;
    for (const lora::Part part : lora::parts_of(product)) {
      if (adapter.has(layer, part)) changed.push_back(part);
    }
    if (changed.empty()) return made;
    made.shrink = matrix(static_cast<std::int64_t>(changed.size()) * rank_panels,
                         lora::size_of(shape_, changed.front()).columns);
    std::int64_t first_panel = 0;
    std::int64_t rank_panel = 0;
    for (const lora::Part part : lora::parts_of(product)) {
      // A product without a gate has no room for one.
      if (part == lora::Part::gate && !shape_.gated) continue;
      const std::int64_t panels = whole_panels(lora::size_of(shape_, part).rows) / panel_rows;
      if (adapter.has(layer, part)) {
        const Matrix expand = matrix(panels, adapter.rank());
        made.expands.push_back({expand, first_panel, rank_panel * panel_rows});
        pieces_.push_back({&adapter, layer, part, made.shrink, rank_panel, expand});
        rank_panel += rank_panels;
      }
      first_panel += panels;
    }
    return made;
  }

  Matrix matrix(std::int64_t panels, std::int64_t columns) {
    Matrix made{.type = WeightType::f32, .panels = panels, .columns = columns};
    made.data = arena_.take_bytes(made.bytes());
    return made;
  }

  const model::Shape& shape_;
  Arena arena_;
  std::vector<AdapterPiece> pieces_;
};

void pack_rows(const Matrix& matrix, std::int64_t first_panel, std::span<const float> floats) {
  const auto panel_floats = static_cast<std::size_t>(panel_rows * matrix.columns);
  for (; !floats.empty(); ++first_panel) {
    const auto rows = floats.first(std::min(panel_floats, floats.size()));
    pack_panel(matrix, first_panel, rows);
    floats = floats.subspan(rows.size());
  }
}

Result<> fill_adapter(const AdapterPiece& piece, const model::Shape& shape, std::vector<float>& floats) {
  const lora::PartSize size = lora::size_of(shape, piece.part);
  const std::int64_t rank = piece.adapter->rank();
  floats.resize(static_cast<std::size_t>(rank * size.columns));
  if (auto done = piece.adapter->read_shrink(piece.layer, piece.part, floats); !done) return done;
  pack_rows(piece.shrink, piece.shrink_panel, floats);
  floats.resize(static_cast<std::size_t>(size.rows * rank));
  if (auto done = piece.adapter->read_expand(piece.layer, piece.part, floats); !done) return done;
  pack_rows(piece.expand, 0, floats);
  return {};
}

}  // namespace

std::int64_t Adapters::width(std::span<const lora::Adapter> from) {
  constexpr std::int64_t parts_of_product_max = 3;
  return parts_of_product_max * whole_panels(lora::largest_rank(from));
}

std::size_t Adapters::bytes(const model::Shape& shape, std::span<const lora::Adapter> from) {
  AdapterLayout layout(shape, Arena());
  for (const lora::Adapter& adapter : from) layout.add(adapter);
  return layout.bytes();
}

Result<Adapters> Adapters::load(const model::Shape& shape, std::span<const lora::Adapter> from) {
  Adapters made;
  if (from.empty()) return made;
  auto memory = Memory::reserve(bytes(shape, from), "the adapters");
  if (!memory) return std::move(memory).error();
  made.memory = std::move(*memory);
  AdapterLayout layout(shape, Arena(made.memory.data()));
  for (const lora::Adapter& adapter : from) made.changes.push_back(layout.add(adapter));
  std::vector<float> floats;
  for (const AdapterPiece& piece : layout.pieces()) {
    if (auto done = fill_adapter(piece, shape, floats); !done) return std::move(done).error();
  }
  return made;
}

}  // namespace tutti::serve::cpu
