#include "serve/cuda/adapters.hpp"

#include <cstring>

#include <gtest/gtest.h>

#include "serve/cuda/model.hpp"
#include "serve/cuda/sizes.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve::cuda {
namespace {

model::Shape small_shape(const std::string& type) {
  return model::make_shape(type, {.vocabulary = 101,
                                  .layers = 2,
                                  .hidden = 60,
                                  .heads = 3,
                                  .kv_heads = type == "gpt2" ? 3 : 1,
                                  .intermediate = 102,
                                  .context = 128});
}

std::vector<lora::Adapter> opened(const model::Shape& shape, const std::vector<std::string>& folders) {
  std::vector<lora::Adapter> all;
  for (const std::string& folder : folders) {
    auto adapter = lora::Adapter::open(folder, shape);
    EXPECT_TRUE(adapter) << adapter.error().text();
    if (adapter) all.push_back(std::move(*adapter));
  }
  return all;
}

// What the tables lead to, in memory of the host, multiplies to what the adapters were made of: on one GPU,
// and on a rank of several.
class AdapterLayoutTest : public testing::TestWithParam<Part> {};

TEST_P(AdapterLayoutTest, TablesLeadToTheMatrices) {
  for (const char* type : {"llama", "gpt2"}) {
    const model::Shape whole = small_shape(type);
    const model::Shape shape = shape_of_part(whole, GetParam());
    const lora::MadeAdapter all(whole, {.rank = 5, .seed = 1});
    const lora::MadeAdapter few(whole, {.rank = 3, .seed = 2, .targets = {"v_proj", "down_proj", "c_fc"}});
    auto adapters = opened(whole, {all.path(), few.path()});
    ASSERT_EQ(adapters.size(), 2U);
    for (lora::Adapter& adapter : adapters) adapter = adapter.of_part(whole, GetParam());
    const PartBegin begin = begin_of_part(whole, GetParam());
    const std::int64_t query = begin.head * whole.head_size;
    const std::int64_t key = begin.kv_head * whole.head_size;
    const lora::PartSize firsts[] = {{query, 0},
                                     {key, 0},
                                     {key, 0},
                                     {0, query},
                                     {begin.intermediate, 0},
                                     {begin.intermediate, 0},
                                     {0, begin.intermediate}};
    const std::size_t bytes = AdapterLayout(shape, Type::f32, adapters, Arena()).bytes();
    std::vector<std::byte> memory(bytes + 256);
    const AdapterLayout layout(shape, Type::f32, adapters, Arena(memory.data()));
    EXPECT_EQ(layout.bytes(), bytes);
    for (const AdapterPiece& piece : layout.pieces()) {
      const auto floats = read_piece(piece, shape, adapters);
      ASSERT_TRUE(floats) << floats.error().text();
      std::memcpy(piece.to, floats->data(), floats->size() * sizeof(float));
    }
    for (const AdapterLayout::Table& table : layout.tables())
      std::memcpy(static_cast<void*>(table.to), table.changes.data(),
                  table.changes.size() * sizeof(LoraChange));

    ASSERT_EQ(layout.tables_of_layers().size(), 2U);
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      const model::LayerNames names = model::names_of_layer(shape, layer);
      const std::string of_part[] = {names.queries,
                                     names.keys,
                                     names.values,
                                     names.output,
                                     names.feed_forward.gate,
                                     names.feed_forward.up,
                                     names.feed_forward.down};
      for (std::size_t product = 0; product < lora::products; ++product) {
        const LoraChange* const table = layout.tables_of_layers()[static_cast<std::size_t>(layer)][product];
        ASSERT_NE(table, nullptr);
        const auto parts = lora::parts_of(static_cast<lora::Product>(product));
        for (std::size_t adapter = 1; adapter <= 2; ++adapter) {
          for (std::size_t part = 0; part < parts.size(); ++part) {
            const auto& changes = (adapter == 1 ? all : few).changes();
            const auto found = changes.find(model::weight_of(of_part[static_cast<std::size_t>(parts[part])]));
            const auto* const shrink = static_cast<const float*>(table[adapter].shrink[part]);
            const auto* const expand = static_cast<const float*>(table[adapter].expand[part]);
            EXPECT_EQ(shrink != nullptr, found != changes.end());
            EXPECT_EQ(expand != nullptr, found != changes.end());
            if (shrink == nullptr || expand == nullptr) continue;
            const lora::PartSize size = lora::size_of(shape, parts[part]);
            const lora::PartSize first = firsts[static_cast<std::size_t>(parts[part])];
            const std::int64_t whole_columns = lora::size_of(whole, parts[part]).columns;
            for (std::int64_t row = 0; row < size.rows; ++row) {
              for (std::int64_t column = 0; column < size.columns; ++column) {
                double sum = 0;
                for (std::int64_t at = 0; at < table[adapter].rank; ++at)
                  sum += static_cast<double>(expand[at * size.rows + row]) *
                         static_cast<double>(shrink[at * padded(size.columns) + column]);
                const std::int64_t at = (first.rows + row) * whole_columns + first.columns + column;
                ASSERT_NEAR(sum, found->second[static_cast<std::size_t>(at)], 1e-6);
              }
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AdapterLayoutTest, testing::Values(Part{0, 1}, Part{0, 3}, Part{2, 3}));

TEST(AdapterLayout, IsPartOfThePlan) {
  const model::Shape shape = small_shape("llama");
  const lora::MadeAdapter made(shape, {.targets = {"q_proj"}});
  Options options;
  const auto without = plan_memory(shape, options, std::uint64_t{8} << 30U, 132);
  options.adapters = opened(shape, {made.path()});
  const auto with = plan_memory(shape, options, std::uint64_t{8} << 30U, 132);
  ASSERT_TRUE(without && with);
  EXPECT_EQ(without->adapters_bytes, 0U);
  EXPECT_GT(with->adapters_bytes, 0U);
  EXPECT_GT(with->scratch_bytes, without->scratch_bytes);
  EXPECT_LT(with->blocks, without->blocks);
  // What no adapter changes has no table, and costs no launch.
  const AdapterLayout layout(shape, Type::bf16, options.adapters, Arena());
  EXPECT_EQ(layout.tables().size(), 2U) << "of two layers the first product";
}

}  // namespace
}  // namespace tutti::serve::cuda
