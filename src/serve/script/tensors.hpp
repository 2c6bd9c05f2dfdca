// Tensors of tutti as libtorch's, and back. Any thread.
#pragma once

#include <string>
#include <vector>

#include <torch/script.h>

#include "base/result.hpp"
#include "serve/tensor/tensor.hpp"

namespace tutti::serve {

// A copy: a program may keep what it was given.
at::Tensor to_torch(const Tensor& tensor, const c10::Device& device);
// Waits for the device.
Result<Tensor> from_torch(const std::string& name, const at::Tensor& tensor);

// What forward() gives: a tensor, a tuple or list of tensors, or a dictionary of them. `names` are those of
// the signature, by position; where there are none, keys and fields have their own, and others are output_0
// and so on.
Result<std::vector<Tensor>> from_value(const c10::IValue& value, const std::vector<std::string>& names);

}  // namespace tutti::serve
