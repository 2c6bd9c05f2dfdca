// What llama.cpp makes of a GGUF file; llama_tools.sh compiles it.
//   llama-greedy MODEL COUNT TOKEN...  the COUNT tokens that follow these by its likeliest choice each, in 32
//                                      bits
//   llama-greedy MODEL text TEXT...    on a line each the tokens of a text, and those around it
//   llama-greedy MODEL letters TEXT... the same, and special tokens are not looked for
//   llama-greedy MODEL template        the chat template in the file
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <ggml-backend.h>
#include <llama.h>

namespace {

int print_tokens(const llama_vocab* vocabulary, const std::string& text, bool special) {
  std::vector<llama_token> tokens(text.size() + 16);
  const int count =
      llama_tokenize(vocabulary, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                     static_cast<int32_t>(tokens.size()), /*add_special=*/true, /*parse_special=*/special);
  if (count < 0) return 1;
  for (int at = 0; at < count; ++at) std::printf("%d ", tokens[static_cast<std::size_t>(at)]);
  std::printf("\n");
  return 0;
}

int print_likeliest(llama_model* model, int wanted, std::vector<llama_token> tokens) {
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = static_cast<uint32_t>(tokens.size()) + static_cast<uint32_t>(wanted) + 1;
  parameters.n_batch = parameters.n_ctx;
  parameters.n_threads = parameters.n_threads_batch = 1;  // so small a model is not worth waiting for others
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
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 2 ? words[2] : "";
  if (count < 3 || (count < 4 && what != "template")) {
    std::fprintf(stderr,
                 "usage: llama-greedy MODEL COUNT TOKEN... | text TEXT... | letters TEXT... | template\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_model* model = llama_model_load_from_file(words[1], llama_model_default_params());
  if (model == nullptr) {
    std::fprintf(stderr, "llama-greedy: %s cannot be loaded\n", words[1]);
    return 1;
  }
  int failed = 0;
  if (what == "template") {
    const char* found = llama_model_chat_template(model, nullptr);
    std::printf("%s", found == nullptr ? "" : found);
  } else if (what == "text" || what == "letters") {
    for (int at = 3; at < count && failed == 0; ++at)
      failed = print_tokens(llama_model_get_vocab(model), words[at], what == "text");
  } else {
    std::vector<llama_token> tokens;
    for (int at = 3; at < count; ++at) tokens.push_back(std::atoi(words[at]));
    failed = print_likeliest(model, std::atoi(words[2]), std::move(tokens));
  }
  llama_model_free(model);
  return failed;
}
