#include "serve/cuda/products.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int ways_max = 6;     // that are timed
constexpr int timed_times = 4;  // each, on different matrices

}  // namespace

// How a product is told to the library, and the ways that it knows, the likeliest first.
struct Products::Way {
  explicit Way(const CublasLt& from) : library(from) {}
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;
  ~Way() {
    for (cublasLtMatrixLayout_t layout : {weights, values, out}) {
      if (layout != nullptr) library.destroy_layout(layout);
    }
    if (product != nullptr) library.destroy_product(product);
  }

  const CublasLt& library;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weights = nullptr;
  cublasLtMatrixLayout_t values = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
};

Result<std::unique_ptr<Products>> Products::make(void* workspace) {
  const auto library = open_cublas_lt();
  if (!library) return library.error();
  cublasLtHandle_t handle = nullptr;
  if ((*library)->create(&handle) != CUBLAS_STATUS_SUCCESS) return failed("cuBLASLt could not be started");
  std::unique_ptr<Products> made(new Products(**library, handle, workspace));
  auto start = make_event(true);
  auto end = make_event(true);
  if (!start || !end) return failed("no events could be made on the GPU");
  made->start_ = std::move(*start);
  made->end_ = std::move(*end);
  return made;
}

Products::Products(const CublasLt& library, cublasLtHandle_t handle, void* workspace)
    : library_(library), handle_(handle), workspace_(workspace) {}

Products::~Products() {
  ways_.clear();
  library_.destroy(handle_);
}

Products::Key Products::key_of(const Product& product) {
  return {
      product.matrix.rows,          product.matrix.columns, product.tokens, static_cast<int>(product.type),
      product.gives_floats ? 1 : 0, product.adds ? 1 : 0};
}

// The library counts columns first: what is rows × columns here is columns × rows there, so the product is
// that of the matrix, turned, with the values.
Products::Way* Products::find(const Product& product) {
  auto& known = ways_[key_of(product)];
  if (known != nullptr) return known->algorithms.empty() ? nullptr : known.get();
  known = std::make_unique<Way>(library_);
  Way& way = *known;
  const cudaDataType_t type = product.type == Type::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t out_type = product.gives_floats ? CUDA_R_32F : type;
  const auto rows = static_cast<std::uint64_t>(product.matrix.rows);
  const auto columns = static_cast<std::uint64_t>(product.matrix.columns);
  const auto tokens = static_cast<std::uint64_t>(product.tokens);
  const cublasOperation_t turned = CUBLAS_OP_T;
  cublasLtMatmulPreference_t preference = nullptr;
  const std::size_t bytes = product_workspace_bytes;
  const bool is_told =
      library_.create_product(&way.product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
      library_.set_product(way.product, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof(turned)) ==
          CUBLAS_STATUS_SUCCESS &&
      library_.create_layout(&way.weights, type, columns, rows, product.matrix.columns) ==
          CUBLAS_STATUS_SUCCESS &&
      library_.create_layout(&way.values, type, columns, tokens, product.matrix.columns) ==
          CUBLAS_STATUS_SUCCESS &&
      library_.create_layout(&way.out, out_type, rows, tokens, product.matrix.rows) ==
          CUBLAS_STATUS_SUCCESS &&
      library_.create_preference(&preference) == CUBLAS_STATUS_SUCCESS &&
      library_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)) ==
          CUBLAS_STATUS_SUCCESS;
  if (is_told) {
    std::array<cublasLtMatmulHeuristicResult_t, ways_max> found{};
    int count = 0;
    const cublasStatus_t status = library_.find_ways(handle_, way.product, way.weights, way.values, way.out,
                                                     way.out, preference, ways_max, found.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS) problem_ = status;
    for (int at = 0; at < count; ++at) {
      const auto& one = found[static_cast<std::size_t>(at)];
      if (one.state == CUBLAS_STATUS_SUCCESS) way.algorithms.push_back(one.algo);
    }
  }
  if (preference != nullptr) library_.destroy_preference(preference);
  return way.algorithms.empty() ? nullptr : &way;
}

cublasStatus_t Products::run(const Product& product, const Way& way, const cublasLtMatmulAlgo_t& algorithm,
                             cudaStream_t stream) const {
  const float one = 1;
  const float kept = product.adds ? 1.0F : 0.0F;
  return library_.multiply(handle_, way.product, &one, product.matrix.data, way.weights, product.values,
                           way.values, &kept, product.out, way.out, product.out, way.out, &algorithm,
                           workspace_, product_workspace_bytes, stream);
}

void Products::multiply(const Product& product, cudaStream_t stream) {
  const Way* const way = find(product);
  const cublasStatus_t status =
      way == nullptr ? CUBLAS_STATUS_NOT_SUPPORTED : run(product, *way, way->algorithms.front(), stream);
  if (status != CUBLAS_STATUS_SUCCESS) problem_ = status;
}

Result<float> Products::time(const Product& product, const Way& way, const cublasLtMatmulAlgo_t& algorithm,
                             std::span<const Matrix> matrices, cudaStream_t stream) const {
  Product one = product;
  // The first is for what the library loads and makes when it is first asked.
  if (run(one, way, algorithm, stream) != CUBLAS_STATUS_SUCCESS)
    return std::numeric_limits<float>::infinity();
  static_cast<void>(cudaEventRecord(start_.get(), stream));
  for (std::size_t at = 0; at < timed_times; ++at) {
    one.matrix = matrices[at % matrices.size()];
    if (run(one, way, algorithm, stream) != CUBLAS_STATUS_SUCCESS)
      return std::numeric_limits<float>::infinity();
  }
  static_cast<void>(cudaEventRecord(end_.get(), stream));
  auto done = checked(cudaEventSynchronize(end_.get()), "timing a matrix product");
  if (!done) return std::move(done).error();
  float milliseconds = 0;
  static_cast<void>(cudaEventElapsedTime(&milliseconds, start_.get(), end_.get()));
  return milliseconds;
}

Result<> Products::tune(const Product& product, std::span<const Matrix> matrices, cudaStream_t stream) {
  Way* const way = find(product);
  if (way == nullptr || way->algorithms.size() < 2) return {};
  float best = std::numeric_limits<float>::infinity();
  std::size_t fastest = 0;
  for (std::size_t at = 0; at < way->algorithms.size(); ++at) {
    const auto timed = time(product, *way, way->algorithms[at], matrices, stream);
    if (!timed) return timed.error();
    if (*timed >= best) continue;
    best = *timed;
    fastest = at;
  }
  way->algorithms = {way->algorithms[fastest]};
  return {};
}

Result<> Products::take_problem() {
  const cublasStatus_t problem = std::exchange(problem_, CUBLAS_STATUS_SUCCESS);
  if (problem == CUBLAS_STATUS_SUCCESS) return {};
  return failed("cuBLASLt gave up a matrix product with status " + std::to_string(static_cast<int>(problem)));
}

}  // namespace tutti::serve::cuda
