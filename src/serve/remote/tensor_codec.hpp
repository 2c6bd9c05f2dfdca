// Tensors and what a program is as bytes, between tutti and its worker. What is read is checked. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "serve/tensor/signature.hpp"
#include "serve/tensor/tensor.hpp"

namespace tutti::serve::remote {

struct ProgramCard {
  Signature signature;
  std::string about;
  std::string version;  // of what was loaded: another one is another program
};

std::string encode(const ProgramCard& card);
std::string encode(const std::vector<Tensor>& tensors);

Result<ProgramCard> decode_card(std::string_view bytes);
Result<std::vector<Tensor>> decode_tensors(std::string_view bytes);

}  // namespace tutti::serve::remote
