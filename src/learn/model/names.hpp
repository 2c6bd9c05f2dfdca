// What the parts of a transformer are called: ours are Hugging Face's names, but for tensors that are fused
// there. A part's tensors are its name with ".weight" and, where it has one, ".bias". Values, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "learn/model/shape.hpp"

namespace tutti::model {

struct Names {
  std::string embedding;
  std::string positions;  // where they are learned
  std::string norm;       // the last one
  std::string head;       // where it is not the embedding
};
Names names_of(const Shape& shape);

struct FeedForwardNames {
  std::string gate;  // where there is one
  std::string up;
  std::string down;
};

struct LayerNames {
  std::string attention_norm;
  std::string queries, keys, values;
  std::string query_norm, key_norm;
  std::string output;  // of the attention
  std::string feed_forward_norm;
  FeedForwardNames feed_forward;  // of a layer without experts
  std::string router;             // of a layer with them
};
LayerNames names_of_layer(const Shape& shape, std::int64_t layer);
FeedForwardNames names_of_expert(const Shape& shape, std::int64_t layer, std::int64_t expert);

std::string weight_of(const std::string& part);
std::string bias_of(const std::string& part);

}  // namespace tutti::model
