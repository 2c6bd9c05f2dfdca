// llama-greedy MODEL COUNT TOKEN...: loads a GGUF file with llama.cpp and prints the COUNT tokens that follow
// these by its likeliest choice each, computed in 32 bits. llama_tools.sh compiles it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <ggml-backend.h>
#include <llama.h>

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: llama-greedy MODEL COUNT TOKEN...\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_model* model = llama_model_load_from_file(words[1], llama_model_default_params());
  if (model == nullptr) {
    std::fprintf(stderr, "llama-greedy: %s cannot be loaded\n", words[1]);
    return 1;
  }
  std::vector<llama_token> tokens;
  for (int at = 3; at < count; ++at) tokens.push_back(std::atoi(words[at]));
  const int wanted = std::atoi(words[2]);
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = static_cast<uint32_t>(tokens.size()) + static_cast<uint32_t>(wanted) + 1;
  parameters.n_batch = parameters.n_ctx;
  parameters.type_k = GGML_TYPE_F32;
  parameters.type_v = GGML_TYPE_F32;
  parameters.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, parameters);
  if (context == nullptr) return 1;
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (int made = 0; made < wanted; ++made) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) != 0)
      return 1;
    const float* logits = llama_get_logits_ith(context, -1);
    tokens = {static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits)};
    std::printf("%d\n", tokens[0]);
  }
  llama_free(context);
  llama_model_free(model);
  return 0;
}
