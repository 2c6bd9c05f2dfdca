// How the ranks of a training run are arranged: data × tensor × pipeline. Neighbours in rank form a tensor
// group, which talks most; pipeline stages lie farthest apart, as they talk least. Pure values.
//
//   rank = (stage × data + replica) × tensor + slice
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::plan {

constexpr int ranks_max = 1 << 16;

struct Mesh {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;

  int size() const { return data * tensor * pipeline; }
  // "dp2 tp2 pp2", without the ones that are 1; "1" if all are.
  std::string text() const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// "dp2 tp2", "dp4×pp2", "tp2xpp2", "1".
Result<Mesh> parse_mesh(std::string_view text);

// Where a rank stands in its mesh.
struct Place {
  int replica = 0;  // along data
  int slice = 0;    // along tensor
  int stage = 0;    // along pipeline

  friend bool operator==(const Place&, const Place&) = default;
};
Place place_of(const Mesh& mesh, int rank);
int rank_of(const Mesh& mesh, const Place& place);

// Which blocks of the model a part of the pipeline computes. A stage that is interleaved has several parts:
// part 0 of all stages comes before part 1 of all stages.
struct Span {
  int first_layer = 0;
  int layers = 0;
  bool has_embedding = false;
  bool has_head = false;
};
Span span_of(int layers, int stages, int parts, int stage, int part);

}  // namespace tutti::plan
