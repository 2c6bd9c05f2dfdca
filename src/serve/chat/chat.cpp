#include "serve/chat/chat.hpp"

#include <algorithm>
#include <utility>

#include "base/json/parse.hpp"
#include "serve/chat/letters.hpp"
#include "serve/chat/render.hpp"
#include "serve/chat/syntax.hpp"

namespace tutti::serve::chat {
namespace {

constexpr std::string_view chatml = R"({%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

// Stands behind the text of the last message: what the template writes behind it is left out.
constexpr std::string_view last_text_mark = "\uFDD1\uFDD2\uFDD1";

Error in_message(std::size_t at, std::string problem) {
  return invalid(std::move(problem)).within("messages[" + std::to_string(at) + "]");
}

// Parts of text become one text, as models without pictures were trained.
Result<> flatten_content(json::Value& message, std::size_t at) {
  const json::Value* const content = message.find("content");
  if (content == nullptr || content->is_null() || content->text() != nullptr) return {};
  if (content->list() == nullptr) return in_message(at, "'content' is neither a text nor a list of parts");
  std::string text;
  for (const json::Value& part : *content->list()) {
    const json::Value* const kind = part.find("type");
    const json::Value* const own = part.find("text");
    if (kind == nullptr || *kind != "text" || own == nullptr || own->text() == nullptr)
      return in_message(at, "'content' has a part that is no text, and this model reads text alone");
    if (&part != content->list()->data()) text += '\n';
    text += *own->text();
  }
  message["content"] = std::move(text);
  return {};
}

std::size_t values_in(const json::Value& value) {
  std::size_t values = 1;
  if (value.list() != nullptr) {
    for (const json::Value& each : *value.list()) values += values_in(each);
  }
  if (value.object() != nullptr) {
    for (const auto& member : *value.object()) values += values_in(member.value);
  }
  return values;
}

// Clients send a function's arguments as the text of a JSON object; templates write the object. A value takes
// many times the room of its text: those of all messages have `room` left, and no text has more of them than
// bytes.
Result<> read_calls(json::Value& message, std::size_t at, std::size_t& room) {
  if (message.find("tool_calls") == nullptr || message.find("tool_calls")->is_null()) return {};
  json::Array* const calls = message["tool_calls"].list();
  if (calls == nullptr) return in_message(at, "'tool_calls' is no list");
  for (json::Value& call : *calls) {
    const json::Value* const function = call.find("function");
    const json::Value* const given = function == nullptr ? nullptr : function->find("arguments");
    if (given == nullptr || given->text() == nullptr) continue;
    if (given->text()->size() > room && !json::scan(*given->text(), room))
      return in_message(at, "the arguments of a tool call are no JSON, or those of all have more than " +
                                std::to_string(call_values_max) + " values");
    auto read = json::parse(given->text()->empty() ? "{}" : *given->text());
    if (!read || read->object() == nullptr)
      return in_message(at, "the arguments of a tool call are no JSON object");
    room -= std::min(room, values_in(*read));
    call["function"]["arguments"] = std::move(*read);
  }
  return {};
}

Result<json::Value> checked_messages(const json::Value& messages) {
  if (messages.list() == nullptr || messages.list()->empty())
    return invalid("'messages' is no list of at least one message");
  if (messages.list()->size() > messages_max)
    return invalid("'messages' has more than " + std::to_string(messages_max) + " of them");
  json::Value checked = messages;
  std::size_t room = call_values_max;
  for (std::size_t at = 0; at < checked.list()->size(); ++at) {
    json::Value& message = (*checked.list())[at];
    if (message.object() == nullptr) return in_message(at, "it is no object");
    const json::Value* const role = message.find("role");
    if (role == nullptr || role->text() == nullptr) return in_message(at, "it has no 'role' that is a text");
    if (auto done = flatten_content(message, at); !done) return std::move(done).error();
    if (auto done = read_calls(message, at, room); !done) return std::move(done).error();
  }
  return checked;
}

Result<> mark_last(json::Value& messages) {
  json::Value& last = messages.list()->back();
  const json::Value* const content = last.find("content");
  if (*last.find("role") != "assistant" || content == nullptr || content->text() == nullptr)
    return invalid("the last message is no text of the assistant, and the answer is to go on with it");
  const std::string text = *content->text();
  last["content"] = std::string(strip(text, {.left = false})) + std::string(last_text_mark);
  return {};
}

Result<std::string> cut_at_mark(std::string prompt) {
  const std::size_t mark = prompt.rfind(last_text_mark);
  if (mark == std::string::npos)
    return invalid(
        "the template does not write the last message as it is, so that no answer can go on with it");
  prompt.resize(mark);
  return prompt;
}

Result<Variables> variables_of(const Conversation& conversation) {
  auto messages = checked_messages(conversation.messages);
  if (!messages) return std::move(messages).error();
  if (conversation.continues_last) {
    if (auto marked = mark_last(*messages); !marked) return std::move(marked).error();
  }
  Variables variables;
  if (conversation.arguments.object() != nullptr) {
    for (const json::Member& member : *conversation.arguments.object())
      variables.insert_or_assign(member.key, from_json(member.value, conversation.guard));
  }
  const bool has_tools = conversation.tools.list() != nullptr && !conversation.tools.list()->empty();
  if (!conversation.tools.is_null() && conversation.tools.list() == nullptr)
    return invalid("'tools' is no list").within("tools");
  variables.insert_or_assign("messages", from_json(*messages, conversation.guard));
  variables.insert_or_assign("tools",
                             has_tools ? from_json(conversation.tools, conversation.guard) : Value(nullptr));
  variables.insert_or_assign("documents", nullptr);
  variables.insert_or_assign("add_generation_prompt",
                             conversation.generation_prompt && !conversation.continues_last);
  // A model without such a token has no such name, so that templates can ask whether it is defined.
  if (!conversation.begin_text.empty()) variables.insert_or_assign("bos_token", conversation.begin_text);
  if (!conversation.end_text.empty()) variables.insert_or_assign("eos_token", conversation.end_text);
  for (const auto& [name, value] : variables) {
    if (value.weight() > value_bytes_max)
      return invalid("'" + name + "' has more than " + std::to_string(value_bytes_max) + " bytes")
          .within(name == "messages" || name == "tools" ? name : "chat_template_kwargs");
  }
  return variables;
}

// As a variable, a key or an attribute.
bool names_word(const Expression& expression, std::string_view word) {
  const std::string* const text = expression.value.text();
  return expression.text == word || (text != nullptr && *text == word) ||
         std::any_of(expression.parts.begin(), expression.parts.end(),
                     [&](const ExpressionPtr& part) { return part != nullptr && names_word(*part, word); }) ||
         std::any_of(expression.named.begin(), expression.named.end(), [&](const auto& argument) {
           return argument.second != nullptr && names_word(*argument.second, word);
         });
}

bool names_word(const Block& block, std::string_view word) {
  const auto in = [&](const ExpressionPtr& part) { return part != nullptr && names_word(*part, word); };
  return std::any_of(block.begin(), block.end(), [&](const std::unique_ptr<const Statement>& each) {
    return in(each->expression) || in(each->filter) || names_word(each->body, word) ||
           names_word(each->otherwise, word) || names_word(each->macro.body, word) ||
           std::any_of(
               each->branches.begin(), each->branches.end(),
               [&](const auto& branch) { return in(branch.first) || names_word(branch.second, word); }) ||
           std::any_of(each->macro.parameters.begin(), each->macro.parameters.end(),
                       [&](const auto& parameter) { return in(parameter.second); });
  });
}

}  // namespace

struct ChatTemplate::Tree {
  Block block;
  bool names_tools = false;
  bool names_tool_calls = false;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view text) {
  auto block = parse_template(text);
  if (!block) return std::move(block).error().within("chat template");
  Tree tree{.names_tools = names_word(*block, "tools"), .names_tool_calls = names_word(*block, "tool_calls")};
  tree.block = std::move(*block);
  return ChatTemplate(std::make_shared<const Tree>(std::move(tree)), false);
}

ChatTemplate ChatTemplate::fallback() {
  ChatTemplate made = std::move(parse(chatml)).value();
  made.is_fallback_ = true;
  return made;
}

Result<std::string> ChatTemplate::prompt(const Conversation& conversation) const {
  auto variables = variables_of(conversation);
  if (!variables) return std::move(variables).error();
  auto prompt = render(tree_->block, std::move(*variables), conversation.now, conversation.abandoned);
  if (!prompt) return std::move(prompt).error().within("chat template");
  return conversation.continues_last ? cut_at_mark(std::move(*prompt)) : std::move(prompt);
}

bool ChatTemplate::names_tools() const { return tree_->names_tools; }

bool ChatTemplate::names_tool_calls() const { return tree_->names_tool_calls; }

std::string ChatTemplate::describe() const {
  return is_fallback_ ? "ChatML, as the model has no template" : "the model's own template";
}

}  // namespace tutti::serve::chat
