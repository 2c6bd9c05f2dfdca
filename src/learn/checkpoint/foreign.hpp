// What the way to Hugging Face and the way back share. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "learn/model/shape.hpp"

namespace tutti::checkpoint {

// In front of the names of the tensors that are the model; the optimizer's have others.
constexpr const char* model_prefix = "model/";

constexpr const char* weights_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

// GPT-2's tensors are found under both names; a model with a head of its own has the longer ones.
constexpr const char* gpt2_prefix = "transformer.";
constexpr const char* head_name = "lm_head.weight";

// The shape of each tensor of a model, by our names.
std::map<std::string, std::vector<std::int64_t>> shapes_of(const model::Shape& shape);

// Rows become columns: `from` has `rows` rows of `columns`, `to` has `columns` rows of `rows`.
void transpose(std::span<const float> from, std::int64_t rows, std::int64_t columns, std::span<float> to);

}  // namespace tutti::checkpoint
