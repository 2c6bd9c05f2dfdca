#include "cli/chat_words.hpp"

#include <utility>

#include <nlohmann/json.hpp>

namespace tutti::cli {
namespace {

constexpr std::size_t problem_bytes_max = 1000;
constexpr std::size_t foreign_bytes_max = 100;

nlohmann::json parsed(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }

// Null where there is none, or nothing that has members.
const nlohmann::json* member(const nlohmann::json* value, const char* key) {
  if (value == nullptr || !value->is_object()) return nullptr;
  const auto found = value->find(key);
  return found == value->end() ? nullptr : &*found;
}
const nlohmann::json* first(const nlohmann::json* value) {
  return value == nullptr || !value->is_array() || value->empty() ? nullptr : &value->front();
}
const std::string* text(const nlohmann::json* value) {
  return value == nullptr ? nullptr : value->get_ptr<const std::string*>();
}

}  // namespace

std::optional<std::string> model_in(std::string_view body) {
  const nlohmann::json root = parsed(body);
  const std::string* const id = text(member(first(member(&root, "data")), "id"));
  return id == nullptr ? std::nullopt : std::optional(*id);
}

std::string problem_in(std::string_view body) {
  const nlohmann::json root = parsed(body);
  const nlohmann::json* const error = member(&root, "error");
  // Some servers write their words in place of an object with them.
  const std::string* words = text(member(error, "message"));
  if (words == nullptr) words = text(error);
  const std::string_view told = words == nullptr || words->empty() ? body : std::string_view(*words);
  return told.empty() ? "it says that something is wrong, and not what"
                      : std::string(told.substr(0, problem_bytes_max));
}

Heard heard_in(std::string_view data) {
  const nlohmann::json root = parsed(data);
  if (const nlohmann::json* const error = member(&root, "error"); error != nullptr && !error->is_null())
    return {.problem = problem_in(data)};
  if (data.empty()) return {};  // of an event that is its name alone
  if (!root.is_object())
    return {.problem =
                "it sent what is no part of an answer: " + std::string(data.substr(0, foreign_bytes_max))};
  const nlohmann::json* const choice = first(member(&root, "choices"));
  const std::string* const piece = text(member(member(choice, "delta"), "content"));
  const std::string* const why = text(member(choice, "finish_reason"));
  return {.piece = piece == nullptr ? "" : *piece, .is_last = why != nullptr && !why->empty()};
}

std::string Answer::hear(std::string_view data) {
  if (data == "[DONE]") {
    is_whole_ = is_over_ = true;
    return "";
  }
  Heard heard = heard_in(data);
  problem_ = std::move(heard.problem);
  is_over_ = !problem_.empty();
  is_whole_ = is_whole_ || heard.is_last;
  text_ += heard.piece;
  return std::move(heard.piece);
}

std::string Answer::lack(const std::string& problem) const {
  if (!problem_.empty()) return text_.empty() ? problem_ : "the answer was cut off: " + problem_;
  if (is_whole_) return "";
  if (text_.empty()) return problem.empty() ? "there was no answer: it ended before its first word" : problem;
  return "the answer was cut off" + (problem.empty() ? "" : ": " + problem);
}

}  // namespace tutti::cli
