// A tokenizer.json as the fields of a GGUF file. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "learn/gguf/format.hpp"

namespace tutti::gguf {

// `vocabulary` is the model's: ids without a token get a name that nobody writes. An empty text is no
// tokenizer, and the file says so. One that llama.cpp would follow otherwise is refused; but it takes texts
// as they come, where Qwen's tokenizers bring them into normal form C.
Result<> add_vocabulary(std::string_view tokenizer_json, std::int64_t vocabulary, Fields& fields);

}  // namespace tutti::gguf
