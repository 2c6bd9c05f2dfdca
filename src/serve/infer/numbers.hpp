// The numbers of a tensor as JSON, and back. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/json/value.hpp"
#include "base/result.hpp"
#include "serve/tensor/tensor.hpp"

namespace tutti::serve::infer {

// To the nearest, ties to even; what is too large becomes infinite.
std::uint16_t half_of(float number);
float from_half(std::uint16_t bits);
std::uint16_t bfloat_of(float number);
float from_bfloat(std::uint16_t bits);

// Flat, or lists inside lists as the shape has them; as many as the shape says. Each must be a number that
// the type has.
Result<std::string> read_numbers(const json::Value& data, DataType type, const Dimensions& shape);

// A flat list. JSON has no NaN and no infinity: they become null.
void write_numbers(const Tensor& tensor, std::string& out);

}  // namespace tutti::serve::infer
