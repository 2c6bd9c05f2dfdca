// Matrix products of many rows: cuBLASLt, with the way to compute each that was the fastest when it was first
// asked for or timed. One thread at a time. Needs CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "base/result.hpp"
#include "serve/cuda/cublas_lt.hpp"
#include "serve/cuda/device.hpp"
#include "serve/cuda/kernels/kernels.hpp"
#include "serve/cuda/weights.hpp"

namespace tutti::serve::cuda {

struct Product {
  Type type = Type::bf16;  // of matrix and values
  Matrix matrix;
  const void* values = nullptr;  // tokens × the matrix's columns
  std::int64_t tokens = 0;
  void* out = nullptr;  // tokens × the matrix's rows
  bool gives_floats = false;
  bool adds = false;  // to what is there
};

class Products {
 public:
  // `workspace` has product_workspace_bytes.
  static Result<std::unique_ptr<Products>> make(void* workspace);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void multiply(const Product& product, cudaStream_t stream);
  // Times the ways of a product on several matrices of its size, so that none lies in a cache, and keeps the
  // fastest.
  Result<> tune(const Product& product, std::span<const Matrix> matrices, cudaStream_t stream);
  // What went wrong since it was last asked.
  Result<> take_problem();

 private:
  struct Way;
  // rows, columns, tokens, type, gives_floats, adds
  using Key = std::array<std::int64_t, 6>;

  Products(const CublasLt& library, cublasLtHandle_t handle, void* workspace);
  static Key key_of(const Product& product);
  Way* find(const Product& product);
  cublasStatus_t run(const Product& product, const Way& way, const cublasLtMatmulAlgo_t& algorithm,
                     cudaStream_t stream) const;
  Result<float> time(const Product& product, const Way& way, const cublasLtMatmulAlgo_t& algorithm,
                     std::span<const Matrix> matrices, cudaStream_t stream) const;

  const CublasLt& library_;
  cublasLtHandle_t handle_;
  void* workspace_;
  std::map<Key, std::unique_ptr<Way>> ways_;
  cublasStatus_t problem_ = CUBLAS_STATUS_SUCCESS;
  OwnEvent start_;
  OwnEvent end_;
};

}  // namespace tutti::serve::cuda
