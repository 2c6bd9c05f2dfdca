#include "serve/cuda/adapters.hpp"

#include <algorithm>

#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {

AdapterLayout::AdapterLayout(const model::Shape& shape, Type type, std::span<const lora::Adapter> adapters,
                             Arena arena)
    : arena_(arena) {
  if (adapters.empty()) return;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    AdapterTables& own = layers_.emplace_back();
    for (std::size_t product = 0; product < lora::products; ++product)
      own[product] = table(shape, type, adapters, layer, static_cast<lora::Product>(product));
  }
}

const LoraChange* AdapterLayout::table(const model::Shape& shape, Type type,
                                       std::span<const lora::Adapter> adapters, std::int64_t layer,
                                       lora::Product product) {
  const auto parts = lora::parts_of(product);
  Table made;
  made.changes.resize(adapters.size() + 1);
  bool changes_any = false;
  for (std::size_t at = 0; at < adapters.size(); ++at) {
    LoraChange& change = made.changes[at + 1];
    change.rank = static_cast<std::int32_t>(adapters[at].rank());
    for (std::size_t part = 0; part < parts.size(); ++part) {
      if (!adapters[at].has(layer, parts[part])) continue;
      changes_any = true;
      const lora::PartSize size = lora::size_of(shape, parts[part]);
      const auto take = [&](std::int64_t columns) {
        return arena_.take_bytes(static_cast<std::size_t>(adapters[at].rank() * columns) * bytes_of(type));
      };
      void* const shrink = take(padded(size.columns));
      void* const expand = take(size.rows);
      change.shrink[part] = shrink;
      change.expand[part] = expand;
      pieces_.push_back({at, layer, parts[part], true, shrink});
      pieces_.push_back({at, layer, parts[part], false, expand});
    }
  }
  if (!changes_any) return nullptr;
  made.to = arena_.take<LoraChange>(static_cast<std::int64_t>(made.changes.size()));
  tables_.push_back(std::move(made));
  return tables_.back().to;
}

Result<std::vector<float>> read_piece(const AdapterPiece& piece, const model::Shape& shape,
                                      std::span<const lora::Adapter> adapters) {
  const lora::Adapter& adapter = adapters[piece.adapter];
  const lora::PartSize size = lora::size_of(shape, piece.part);
  const auto rank = static_cast<std::size_t>(adapter.rank());
  if (piece.is_shrink) {
    const auto columns = static_cast<std::size_t>(size.columns);
    const auto stride = static_cast<std::size_t>(padded(size.columns));
    std::vector<float> rows(rank * columns);
    if (auto done = adapter.read_shrink(piece.layer, piece.part, rows); !done) return std::move(done).error();
    std::vector<float> laid(rank * stride);
    for (std::size_t row = 0; row < rank; ++row)
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row * columns), columns,
                  laid.begin() + static_cast<std::ptrdiff_t>(row * stride));
    return laid;
  }
  const auto features = static_cast<std::size_t>(size.rows);
  std::vector<float> rows(features * rank);
  if (auto done = adapter.read_expand(piece.layer, piece.part, rows); !done) return std::move(done).error();
  std::vector<float> turned(rows.size());
  for (std::size_t feature = 0; feature < features; ++feature)
    for (std::size_t at = 0; at < rank; ++at) turned[at * features + feature] = rows[feature * rank + at];
  return turned;
}

}  // namespace tutti::serve::cuda
