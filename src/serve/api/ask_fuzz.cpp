// Any bytes as the body of a request: taken or refused, and what was taken is within its bounds.
#include <cstdint>

#include "base/check.hpp"
#include "serve/api/answer.hpp"
#include "serve/api/ask.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  using namespace tutti::serve;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const api::Kind kind : {api::Kind::completion, api::Kind::chat, api::Kind::embedding}) {
    const auto ask = api::read_ask(kind, body);
    if (!ask) {
      TUTTI_CHECK(ask.error().code() == ErrorCode::invalid);
      TUTTI_CHECK(!api::error_text(400, ask.error()).empty());
      continue;
    }
    TUTTI_CHECK(ask->answers >= 1 && ask->answers <= answers_max);
    TUTTI_CHECK(ask->prompts.size() <= (kind == api::Kind::embedding ? api::inputs_max : api::prompts_max));
    TUTTI_CHECK(!ask->tokens_max || *ask->tokens_max >= (ask->echoes ? 0 : 1));
    TUTTI_CHECK(ask->sampling.top_p > 0 && ask->sampling.top_k >= 0);
    TUTTI_CHECK(ask->sampling.logprobs >= -1 && ask->sampling.logprobs <= logprobs_max);
    TUTTI_CHECK(!ask->resume || (ask->streams && ask->answers == 1 && ask->prompts.size() <= 1 &&
                                 ask->resume->id.size() <= api::resumed_id_bytes_max));
    TUTTI_CHECK(ask->stop_texts.size() <= stop_texts_max && ask->stop_ids.size() <= stop_ids_max);
  }
  return 0;
}
