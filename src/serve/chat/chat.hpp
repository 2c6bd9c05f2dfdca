// A conversation as the prompt that a model was trained on: the chat template that comes with it, or ChatML.
// Templates are programs from outside, and are bounded in all that they do. Immutable, any thread.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/json/value.hpp"
#include "base/result.hpp"
#include "serve/chat/work.hpp"

namespace tutti::serve::chat {

constexpr std::size_t messages_max = 10'000;
constexpr std::size_t call_values_max = std::size_t{1} << 16;  // JSON's, of the arguments of all tool calls

struct Conversation {
  json::Value messages;   // a list of {role, content, …}, as OpenAI's API has them
  json::Value tools;      // null, or a list of functions
  json::Value arguments;  // null, or an object: what else the template is given, such as enable_thinking
  bool generation_prompt = true;  // the prompt ends where the answer begins
  bool continues_last = false;    // the prompt ends inside of the last message, which the answer goes on with
  std::string begin_text;         // bos_token
  std::string end_text;           // eos_token
  Moment now;                     // the date that some templates write
  // What is done to each text that people sent: special tokens in it are guarded, so that they stay letters.
  TextChange guard;
  std::stop_token abandoned = {};  // nobody waits for the prompt any more
};

class ChatTemplate {
 public:
  // Refuses a template that uses what is not known here, and says at which line.
  static Result<ChatTemplate> parse(std::string_view text);
  // ChatML, for a model that came without a template.
  static ChatTemplate fallback();

  // Fails if the conversation is none, or if the template refuses it.
  Result<std::string> prompt(const Conversation& conversation) const;

  // Whether it can write tools, or the calls of them that messages have: what it never names it leaves out.
  bool names_tools() const;
  bool names_tool_calls() const;
  bool is_fallback() const { return is_fallback_; }
  // What a person is told: "the model's own template", "ChatML, as the model has no template".
  std::string describe() const;

 private:
  struct Tree;
  ChatTemplate(std::shared_ptr<const Tree> tree, bool is_fallback)
      : tree_(std::move(tree)), is_fallback_(is_fallback) {}

  std::shared_ptr<const Tree> tree_;
  bool is_fallback_;
};

}  // namespace tutti::serve::chat
