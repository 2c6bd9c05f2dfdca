// The steps around the model in a tokenizer.json: what happens to text before it is merged, what is put
// around the tokens, how they become text again. Pure functions, any thread.
#pragma once

#include "learn/tokenizer/definition.hpp"
#include "learn/tokenizer/fields.hpp"

namespace tutti::tokenizer {

// Decoder, normalizer and pre-tokenizer; what a mistake is stays in the fields.
void read_steps(Fields& document, Definition& definition);

// When all tokens are known.
void read_post_processor(Fields& document, Definition& definition);

}  // namespace tutti::tokenizer
