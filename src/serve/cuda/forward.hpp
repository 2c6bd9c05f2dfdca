// The pass of a step's tokens through a model: launches, one behind the other, on one queue. It knows nothing
// of requests and does not wait. One step at a time. Needs CUDA.
#pragma once

#include <cstdint>
#include <optional>

#include "learn/model/shape.hpp"
#include "serve/cuda/kernels/kernels.hpp"
#include "serve/cuda/products.hpp"
#include "serve/cuda/scratch.hpp"
#include "serve/cuda/sizes.hpp"
#include "serve/cuda/weights.hpp"
#include "serve/model/peers.hpp"

namespace tutti::serve::cuda {

// A step whose inputs are on the device.
struct StepView {
  Tokens tokens;
  std::int32_t alone = 0;  // the first of them, each the last of its sequence
  const Tile* tiles = nullptr;
  std::int32_t tile_count = 0;
  const std::int32_t* rows = nullptr;  // null: the tokens themselves, in their order
  std::int32_t row_count = 0;
  std::int32_t* largest = nullptr;  // the token of each row
};

class Forward {
 public:
  // With peers, shape and weights are this rank's part.
  Forward(const model::Shape& shape, const Weights& weights, const Scratch& scratch, Products& products,
          std::byte* cache, std::int64_t cache_blocks, const StepSizes& sizes, Peers* peers = nullptr);

  void run(const StepView& step, const Queue& queue);
  // From now on kernels overlap only with each other, not with the library's products.
  void keep_from_products() { overlaps_products_ = false; }
  // Times the matrix products of so many tokens.
  Result<> tune(std::int64_t tokens, const Queue& queue);

  // What went wrong between the ranks, in this step or one before.
  Result<> problem() const;

  // Of several ranks the first has them.
  LogitRows logits() const;
  // The n-th row of scratch.known_sums: the sum of what the head reads of so many tokens of the last step.
  void sum_known(std::int64_t nth, std::int64_t first, std::int64_t count, const Queue& queue);
  bool attends_fast() const { return fast_; }
  std::int32_t tile_tokens() const { return tile_tokens_; }

 private:
  struct Step {
    const StepView& view;
    const Queue& queue;
    std::int64_t tokens = 0;  // that products are computed of
    bool few = false;         // so few tokens that products run at the speed of memory
  };

  void attention(const Step& step, std::int64_t layer);
  void attend(const Step& step, std::int64_t layer);
  void feed_forward(const Step& step, const LayerWeights& layer);
  void mix_experts(const Step& step, const LayerWeights& layer);
  void head(const Step& step);
  // Whether this rank adds to the stream; the others put what they have in its place, and sum() adds it up.
  bool is_first() const { return part_.rank == 0; }
  void clear_stream(const Step& step);
  void sum(const Step& step);
  void gather(const Step& step);
  void norm(const Step& step, const NormWeights& weights, const float* added);
  Norm norm_of(const NormWeights& weights) const;
  void multiply(const Step& step, const Matrix& matrix, const void* values, std::int64_t tokens, void* out,
                bool gives_floats = false, bool adds = false);
  Matrix multiplied(const Matrix& matrix) const;
  // A product of all tokens of the step; `adds`: to the stream.
  void project(const Step& step, const Matrix& matrix, const void* values, void* out, bool to_stream);
  void adapt(const Step& step, const LayerWeights& layer, lora::Product product, const void* values,
             std::int64_t columns, void* out, std::int64_t out_stride);

  const model::Shape& shape_;
  const Weights& weights_;
  const Scratch& scratch_;
  Products& products_;
  Sizes sizes_;
  Type type_;
  bool is_fp8_;  // the matrices of the layers
  std::byte* cache_;
  std::size_t layer_bytes_;
  std::int64_t rows_;
  std::int64_t context_;
  int multiprocessors_;
  std::int32_t adapter_rank_;  // the largest; 0: the model has no adapters
  bool fast_;
  bool overlaps_products_ = true;
  std::int32_t tile_tokens_;
  Activation activation_;
  Part part_;
  Peers* peers_;
  std::optional<Error> problem_;
};

}  // namespace tutti::serve::cuda
