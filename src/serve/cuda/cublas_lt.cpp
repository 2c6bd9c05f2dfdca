#include "serve/cuda/cublas_lt.hpp"

#include <dlfcn.h>

#include <array>
#include <string>

namespace tutti::serve::cuda {
namespace {

// The library of the headers that this was compiled with: another one may have other types.
const std::string library_name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);

Result<CublasLt> open() {
  void* library = nullptr;
  for (const std::string& folder : {std::string(), std::string("/usr/local/cuda/lib64/")}) {
    if (library == nullptr) library = dlopen((folder + library_name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return failed("there is no " + library_name)
        .remedy("install CUDA " + std::to_string(CUBLAS_VER_MAJOR) +
                ", or put its folder into LD_LIBRARY_PATH");
  }
  CublasLt found;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(found.create, "cublasLtCreate");
  find(found.destroy, "cublasLtDestroy");
  find(found.multiply, "cublasLtMatmul");
  find(found.create_product, "cublasLtMatmulDescCreate");
  find(found.destroy_product, "cublasLtMatmulDescDestroy");
  find(found.set_product, "cublasLtMatmulDescSetAttribute");
  find(found.create_layout, "cublasLtMatrixLayoutCreate");
  find(found.destroy_layout, "cublasLtMatrixLayoutDestroy");
  find(found.create_preference, "cublasLtMatmulPreferenceCreate");
  find(found.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(found.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  find(found.find_ways, "cublasLtMatmulAlgoGetHeuristic");
  if (!missing.empty()) return failed(library_name + " has no " + missing);
  return found;
}

}  // namespace

Result<const CublasLt*> open_cublas_lt() {
  static const Result<CublasLt> opened = open();
  if (!opened) return opened.error();
  return &*opened;
}

}  // namespace tutti::serve::cuda
