// What a build without CUDA says.
#include "serve/cuda/model.hpp"

namespace tutti::serve::cuda {

Result<std::unique_ptr<Model>> make_model(const model::Shape&, const Options&, const ReadRows&,
                                          const ReadStored&) {
  return failed("this program was built without CUDA")
      .remedy("build it where nvcc and the CUDA toolkit are, or serve the model on the CPU");
}

int devices() { return 0; }

}  // namespace tutti::serve::cuda
