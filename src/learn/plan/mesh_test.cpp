#include "learn/plan/mesh.hpp"

#include <gtest/gtest.h>

namespace tutti::plan {
namespace {

TEST(Mesh, IsReadAsPeopleWriteIt) {
  const Mesh cube{.data = 2, .tensor = 2, .pipeline = 2};
  for (const char* text : {"dp2 tp2 pp2", "dp2xtp2xpp2", "dp2×tp2×pp2", "pp2,tp2,dp2", "tp2*pp2*dp2"}) {
    auto mesh = parse_mesh(text);
    ASSERT_TRUE(mesh.ok()) << text;
    EXPECT_EQ(*mesh, cube) << text;
  }
  EXPECT_EQ(*parse_mesh("tp8"), (Mesh{.tensor = 8}));
  EXPECT_EQ(*parse_mesh("1"), Mesh{});
  EXPECT_EQ(cube.text(), "dp2 tp2 pp2");
  EXPECT_EQ((Mesh{.pipeline = 3}).text(), "pp3");
  EXPECT_EQ(Mesh{}.text(), "1");
}

TEST(Mesh, RefusesWhatIsNone) {
  for (const char* text :
       {"", "dp", "dp0", "dp-1", "zp2", "dp2 dp2", "2", "dp65537", "dp60000tp60000", "dp2 tp"}) {
    EXPECT_FALSE(parse_mesh(text).ok()) << text;
  }
}

TEST(Mesh, PlacesAndRanksAreOneToOne) {
  const Mesh mesh{.data = 3, .tensor = 2, .pipeline = 4};
  for (int rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(rank_of(mesh, place_of(mesh, rank)), rank);
  // Slices of a layer are neighbours.
  EXPECT_EQ(place_of(mesh, 1), (Place{.replica = 0, .slice = 1, .stage = 0}));
  EXPECT_EQ(place_of(mesh, 2), (Place{.replica = 1, .slice = 0, .stage = 0}));
  EXPECT_EQ(place_of(mesh, 6), (Place{.replica = 0, .slice = 0, .stage = 1}));
}

TEST(Mesh, EveryLayerHasOneStage) {
  for (int layers : {1, 7, 12}) {
    for (int stages : {1, 2, 3}) {
      for (int parts : {1, 2}) {
        int next = 0;
        for (int part = 0; part < parts; ++part) {
          for (int stage = 0; stage < stages; ++stage) {
            const Span span = span_of(layers, stages, parts, stage, part);
            EXPECT_EQ(span.first_layer, next);
            next += span.layers;
            EXPECT_EQ(span.has_embedding, part == 0 && stage == 0);
            EXPECT_EQ(span.has_head, part == parts - 1 && stage == stages - 1);
          }
        }
        EXPECT_EQ(next, layers);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::plan
