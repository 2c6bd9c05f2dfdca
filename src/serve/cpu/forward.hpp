// The pass of some tokens through a model, on all threads of a team at once: phases that are shared, with a
// meeting after each. The matrix products see all tokens of the step as one matrix; attention goes token by
// token through the blocks of its sequence. One step at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "learn/model/shape.hpp"
#include "serve/cpu/adapters.hpp"
#include "serve/cpu/cache.hpp"
#include "serve/cpu/kernels.hpp"
#include "serve/cpu/memory.hpp"
#include "serve/cpu/team.hpp"
#include "serve/cpu/weights.hpp"
#include "serve/model/arena.hpp"
#include "serve/model/model.hpp"
#include "serve/model/peers.hpp"

namespace tutti::serve::cpu {

struct StepToken {
  Token token = 0;
  std::int64_t position = 0;
  const BlockId* blocks = nullptr;
  std::int32_t adapter = 0;
};

struct StepSizes {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t context = 0;
  std::int64_t threads = 0;
  std::int64_t adapters_width = 0;
};

class Forward {
 public:
  // What it computes in: the bytes of `sizes` in the arena. With peers, shape and weights are this rank's
  // part.
  Forward(const model::Shape& shape, const Weights& weights, const Adapters& adapters, const Kernels& kernels,
          const Cache& cache, const StepSizes& sizes, Arena& arena, Peers* peers = nullptr);

  // Called by all members with the same step. `rows`: the tokens that logits are wanted of.
  void run(Member& member, std::span<const StepToken> tokens, std::span<const std::int64_t> rows);

  // What went wrong between the ranks, in this step or one before.
  Result<> problem() const;

  // Of several ranks the first has them.
  std::span<const float> logits(std::int64_t row) const;
  // What the head has read for it.
  std::span<const float> hidden(std::int64_t row) const;
  // The sum of what the head reads of so many tokens of the step from this one on.
  std::vector<double> hidden_sum(std::int64_t first, std::int64_t count) const;

 private:
  // Numbers of some rows, and what they are quantised as where the weights ask for it.
  struct Input {
    const float* values = nullptr;
    std::int64_t stride = 0;
    std::int64_t rows = 0;
    std::int64_t first = 0;  // of the quantised rows
  };
  struct Output {
    float* values = nullptr;
    std::int64_t stride = 0;
    const float* bias = nullptr;
    bool add = false;
  };
  // Rows side by side that have one adapter.
  struct AdapterSlice {
    std::int32_t adapter = 0;
    std::int64_t first = 0;
    std::int64_t rows = 0;
  };
  struct ExpertPiece {
    std::int64_t expert = 0;
    std::int64_t first_panel = 0;
  };

  std::int64_t grain_of(const Matrix& matrix) const;
  void multiply(const Matrix& matrix, std::int64_t first_panel, std::int64_t end_panel, const Input& input,
                const Output& output) const;
  void product(Member& member, const Matrix& matrix, const Input& input, const Output& output) const;
  void normalize(const NormWeights& norm, const float* values, float* out) const;
  void quantize(const float* values, std::int64_t row, std::int64_t row_columns, std::int64_t begin,
                std::int64_t end) const;
  void quantize_rows(Member& member, const Input& input, std::int64_t columns) const;

  void embed(Member& member);
  void normalize_all(Member& member, const NormWeights& norm);
  void attention(Member& member, std::int64_t layer);
  void place(std::int64_t layer, std::int64_t token);
  void attend(Member& member, std::int64_t layer, std::int64_t token, std::int64_t head);
  void feed_forward(Member& member, std::int64_t layer);
  void bend_rows(Member& member, std::int64_t rows, std::int64_t width);
  void mix_experts(Member& member, const LayerWeights& layer);
  void route(std::int64_t token);
  void group_by_expert();
  void share_experts(Member& member, const LayerWeights& layer, bool is_up);
  void head(Member& member, std::span<const std::int64_t> rows);
  // Whether this rank adds to the stream; the others put what they have in its place, and sum() adds it up.
  bool is_first() const { return peers_ == nullptr || peers_->rank() == 0; }
  void sum(Member& member);
  void gather(Member& member, std::int64_t rows);
  void slice_adapters();
  void adapt(Member& member, std::int64_t layer, lora::Product product, const Matrix& matrix,
             const Input& input, const Output& output) const;

  const model::Shape& shape_;
  const Weights& weights_;
  const Adapters& adapters_;
  const Kernels& kernels_;
  Cache cache_;
  bool quantized_;
  std::int32_t zero_;
  std::int64_t threads_;
  Peers* peers_;
  std::optional<Error> problem_;
  std::vector<double> frequencies_;

  std::span<const StepToken> tokens_;  // of the step
  std::int64_t count_ = 0;
  std::vector<AdapterSlice> slices_;

  // Rows of whole blocks: what is beyond a row's own numbers stays zero.
  std::int64_t hidden_stride_;
  std::int64_t keys_at_;  // in a row of qkv_
  std::int64_t values_at_;
  std::int64_t qkv_stride_;
  std::int64_t mixed_stride_;
  std::int64_t wide_stride_;
  std::int64_t bent_stride_;
  std::int64_t part_stride_;  // of a row of the logits that this rank computes
  std::int64_t logits_stride_;
  std::int64_t scores_stride_;
  std::int64_t shrunk_stride_;
  float* stream_;  // what all layers add to
  float* normed_;
  float* qkv_;
  float* mixed_;  // values, weighed by attention
  float* wide_;
  float* bent_;
  float* part_logits_;
  float* logits_;
  float* scores_;  // of each member
  float* cosines_;
  float* sines_;
  float* shrunk_;  // by adapters
  std::int8_t* quants_;
  float* scales_;
  std::int32_t* offsets_;
  // Of layers with experts: a token has `chosen` places, one after the other, and an expert's places are rows
  // side by side.
  float* router_ = nullptr;
  float* gathered_ = nullptr;
  float* expert_out_ = nullptr;
  std::vector<std::int64_t> place_expert_;
  std::vector<float> place_weight_;
  std::vector<std::int64_t> place_row_;
  std::vector<std::int64_t> row_place_;
  std::vector<std::int64_t> expert_first_;  // one more than there are experts
  std::vector<std::int64_t> expert_next_;
  std::vector<ExpertPiece> expert_pieces_;  // with room for those of any layer
};

}  // namespace tutti::serve::cpu
