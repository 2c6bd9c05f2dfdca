// A request of the Open Inference Protocol (version 2) as a value: JSON, and the bytes of tensors behind it
// as the binary extension has them. Everything in it is bounded and looked at. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "serve/tensor/signature.hpp"
#include "serve/tensor/tensor.hpp"

namespace tutti::serve::infer {

inline constexpr std::size_t body_bytes_max = std::size_t{64} << 20;
inline constexpr std::size_t json_bytes_max = std::size_t{16} << 20;  // of those
inline constexpr std::size_t json_values_max = std::size_t{1} << 20;  // more numbers travel as binary data
inline constexpr std::size_t id_bytes_max = 1024;
// How many bytes of the body are JSON; the rest are tensors.
inline constexpr std::string_view json_length_header = "inference-header-content-length";

struct Wanted {
  std::string name;
  bool is_binary = false;
};

struct Ask {
  std::string id;
  std::vector<Tensor> inputs;   // in the order of the signature
  std::vector<Wanted> outputs;  // none: all of them
  bool all_binary = false;      // of outputs that say nothing else
};

// `json_length` is the header's text, empty if there is none.
Result<Ask> read_ask(std::string_view body, std::string_view json_length, const Signature& signature);

}  // namespace tutti::serve::infer
