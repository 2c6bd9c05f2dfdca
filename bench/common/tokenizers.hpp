// A tokenizer.json in the manner of each family, learned from a few sentences: what is exported with a model
// of random weights. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::bench {

// Of at most 512 tokens. GPT-2's, Llama 3's and Qwen's merge bytes, Llama 2's and Mistral's code points.
std::string tokenizer_of(std::string_view family);

// What may be cut in more than one way: blanks, digits, line ends, umlauts, emoji, special tokens.
const std::vector<std::string>& odd_texts();

}  // namespace tutti::bench
