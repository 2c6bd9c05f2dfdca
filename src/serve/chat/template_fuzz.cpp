// A chat template from anywhere, which is rendered with a small conversation.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "serve/chat/chat.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::serve::chat;
  static const Conversation conversation = [] {
    Conversation made;
    made.messages = *tutti::json::parse(
        R"([{"role":"system","content":"s"},{"role":"user","content":"a <b> c"},{"role":"assistant","content":"x",)"
        R"("tool_calls":[{"function":{"name":"f","arguments":"{\"k\":[1,2.5,null]}"}}]},{"role":"user","content":"é"}])");
    made.tools = *tutti::json::parse(R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
    made.begin_text = "<s>";
    made.end_text = "</s>";
    return made;
  }();
  const auto parsed = ChatTemplate::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  const auto prompt = parsed->prompt(conversation);
  if (prompt) TUTTI_CHECK(prompt->size() <= output_bytes_max);
  return 0;
}
