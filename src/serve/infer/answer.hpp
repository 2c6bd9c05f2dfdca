// What the Open Inference Protocol answers, as bytes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "serve/infer/ask.hpp"
#include "serve/tensor/signature.hpp"
#include "serve/tensor/tensor.hpp"

namespace tutti::serve::infer {

inline constexpr std::string_view model_version = "1";
inline constexpr std::size_t json_numbers_max = std::size_t{1} << 22;  // of an answer

struct Card {
  std::string name;
  Signature signature;
};

struct Written {
  std::string bytes;
  std::size_t json_bytes = 0;  // of those; fewer than all where tensors follow
};

std::string server_text(std::string_view version);
// A type that is not known is "ANY", a shape that is not known is [-1].
std::string model_text(const Card& card);
// What was asked for but is not among the outputs is invalid.
Result<Written> write_answer(const std::string& model, const std::string& id,
                             const std::vector<Wanted>& wanted, bool all_binary,
                             const std::vector<Tensor>& outputs);
std::string error_text(const Error& error);

}  // namespace tutti::serve::infer
