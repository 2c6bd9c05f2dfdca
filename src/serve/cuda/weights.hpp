// The tensors of a model in the memory of a device: where each lies, and which rows of which tensor belong
// there. Pure but for what the pointers point to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "learn/model/shape.hpp"
#include "serve/cuda/adapters.hpp"
#include "serve/cuda/kernels/kernels.hpp"
#include "serve/model/arena.hpp"
#include "serve/split/split.hpp"

namespace tutti::serve::cuda {

struct Matrix {
  void* data = nullptr;
  float* scales = nullptr;  // of each row: the matrix is of fp8; null: of the model's type
  std::int64_t rows = 0;    // both with the padding
  std::int64_t columns = 0;
};

struct NormWeights {
  float* scale = nullptr;
  float* bias = nullptr;  // null: none
};

struct FeedForwardWeights {
  Matrix up;  // below the gate where there is one
  float* up_bias = nullptr;
  Matrix down;
  float* down_bias = nullptr;
};

// Of all experts of a layer: lists on the device, and what they hold.
struct ExpertWeights {
  float* router = nullptr;
  std::vector<FeedForwardWeights> each;
  const void** up = nullptr;
  const void** down = nullptr;
  const float** up_scales = nullptr;  // null: they are not of fp8
  const float** down_scales = nullptr;
  const float** up_bias = nullptr;  // null: none
  const float** down_bias = nullptr;
};

struct LayerWeights {
  NormWeights attention_norm;
  Matrix qkv;
  float* qkv_bias = nullptr;
  float* query_norm = nullptr;
  float* key_norm = nullptr;
  Matrix output;
  float* output_bias = nullptr;
  NormWeights feed_forward_norm;
  FeedForwardWeights feed_forward;  // of a layer without experts
  ExpertWeights experts;
  AdapterTables adapters{};
};

struct Weights {
  Matrix embedding;
  Matrix positions;  // where they are learned
  std::vector<LayerWeights> layers;
  NormWeights norm;
  Matrix head;                    // may be the embedding, or some rows of it
  double* frequencies = nullptr;  // where positions are turned
};

// Some rows of a tensor, and where they belong.
struct WeightPiece {
  std::string tensor;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // 1 of a vector
  std::int64_t stride = 0;   // elements from row to row on the device
  Type type = Type::f32;
  void* to = nullptr;
  bool is_fp8 = false;  // instead of the type, with a scale for each row
  float* scales = nullptr;
};

// Lays a model out. Done twice: to count, and with the memory.
class WeightLayout {
 public:
  // The shape is the part's, which has the head of its own tokens. `is_fp8`: the matrices of the layers are;
  // what is looked up, what decides and the head are not.
  WeightLayout(const model::Shape& shape, Type type, Arena arena, const Part& part = {}, bool is_fp8 = false);

  const Weights& weights() const { return weights_; }
  const std::vector<WeightPiece>& pieces() const { return pieces_; }
  std::size_t bytes() const { return arena_.used(); }

 private:
  Matrix reserve(std::int64_t rows, std::int64_t columns, bool is_fp8);
  Matrix matrix(const std::vector<std::string>& tensors, std::int64_t rows_each, std::int64_t padded_each,
                std::int64_t columns, bool is_fp8, std::int64_t first_row = 0);
  // The rows of a tensor from one on, with so many columns of their own, to the matrix from a row on.
  void add_rows(const std::string& tensor, std::int64_t first_row, std::int64_t rows, std::int64_t columns,
                const Matrix& to, std::int64_t to_row, Type type, bool is_fp8);
  float* vector(const std::vector<std::string>& tensors, const std::vector<std::int64_t>& counts,
                const std::vector<std::int64_t>& places);
  NormWeights norm(const std::string& part);
  FeedForwardWeights feed_forward(const std::string& gate, const std::string& up, const std::string& down,
                                  std::int64_t width);
  LayerWeights layer_of(std::int64_t layer);
  ExpertWeights experts_of(std::int64_t layer, const std::string& router);

  const model::Shape& shape_;
  Type type_;
  bool is_fp8_;
  Arena arena_;
  Weights weights_;
  std::vector<WeightPiece> pieces_;
};

}  // namespace tutti::serve::cuda
