#include "gate/ask/ask.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <span>

#include "base/hash/hash.hpp"
#include "base/json/parse.hpp"
#include "gate/ask/members.hpp"

namespace tutti::gate {
namespace {

// Of these the text is looked at, of `prompt`, `messages` and `input` how long they are and how they begin.
constexpr std::array<std::string_view, 12> looked_at{
    "model", "stream", "n",        "best_of", "max_tokens", "max_completion_tokens",
    "echo",  "prompt", "messages", "input",   "logprobs",   "tutti_resume"};
constexpr std::size_t small_value_bytes_max = std::size_t{8} << 10;

using Found = std::map<std::string_view, std::string_view>;

Error named(std::string_view field, const std::string& what) {
  return invalid(what).within(std::string(field));
}

std::string_view value_of(const Found& found, std::string_view name) {
  const auto at = found.find(name);
  return at == found.end() ? std::string_view() : at->second;
}

bool is_true(const Found& found, std::string_view name) { return value_of(found, name) == "true"; }

// Nothing where it is no whole number, which whoever answers will say.
std::int64_t whole_of(const Found& found, std::string_view name, std::int64_t otherwise) {
  const std::string_view text = value_of(found, name);
  if (text.empty() || text.size() > small_value_bytes_max) return otherwise;
  const auto value = json::parse(text);
  return value ? value->whole().value_or(otherwise) : otherwise;
}

// A list that is not one of messages has several prompts, or one of tokens.
bool is_one_prompt(const Found& found) {
  if (found.contains("messages")) return true;
  return value_of(found, "prompt").starts_with('"');
}

std::vector<std::uint64_t> marks_of(std::string_view text) {
  std::vector<std::uint64_t> marks;
  std::uint64_t before = 0;
  // What is behind the last border may go on otherwise.
  for (std::size_t begin = 0; begin + mark_bytes <= text.size() && marks.size() < marks_max;
       begin += mark_bytes) {
    before = hash64(std::as_bytes(std::span(text.substr(begin, mark_bytes))), before);
    marks.push_back(before);
  }
  return marks;
}

Result<std::string> model_of(std::string_view value) {
  const Error wrong =
      named("model", "must be a text of at most " + std::to_string(model_bytes_max) + " bytes");
  if (value.size() > 6 * model_bytes_max) return wrong;
  const auto parsed = json::parse(value);
  if (!parsed || parsed->text() == nullptr || parsed->text()->size() > model_bytes_max) return wrong;
  return *parsed->text();
}

}  // namespace

Result<Ask> read_ask(std::string_view body) {
  Found found;
  std::string_view twice;
  bool is_escaped = false;
  auto read = each_member(body, [&](std::string_view key, std::string_view value) {
    // Whoever answers reads an escape as what it stands for.
    if (key.find('\\') != std::string_view::npos) is_escaped = true;
    const auto known = std::ranges::find(looked_at, key);
    if (known == looked_at.end()) return !is_escaped;
    if (!found.emplace(*known, value).second) twice = *known;
    return twice.empty();
  });
  if (!read) return std::move(read).error();
  if (is_escaped) return invalid("the body has a key with an escape in it").remedy("write it as it is");
  if (!twice.empty()) return named(twice, "is there twice");
  Ask ask;
  const std::string_view model = value_of(found, "model");
  if (!model.empty() && model != "null") {
    auto name = model_of(model);
    if (!name) return std::move(name).error();
    ask.model = std::move(*name);
  }
  ask.streams = is_true(found, "stream");
  const std::int64_t answers =
      std::clamp<std::int64_t>(std::max(whole_of(found, "n", 1), whole_of(found, "best_of", 1)), 1, 1 << 10);
  ask.may_go_on = ask.streams && answers == 1 && is_one_prompt(found) && !is_true(found, "echo") &&
                  !found.contains("tutti_resume");
  std::string_view prompt;
  for (const std::string_view name : {"messages", "prompt", "input"}) {
    if (prompt.empty()) prompt = value_of(found, name);
  }
  ask.prompt_tokens = static_cast<std::int64_t>(prompt.size()) / token_bytes + 1;
  ask.marks = marks_of(prompt);
  // Nothing is generated for embeddings.
  if (!found.contains("input")) {
    const std::int64_t bound =
        std::max(whole_of(found, "max_tokens", 0), whole_of(found, "max_completion_tokens", 0));
    ask.answer_tokens =
        answers * (bound > 0 ? std::min(bound, 4 * answer_tokens_expected) : answer_tokens_expected);
  }
  return ask;
}

// In a text of JSON a quotation mark has a backslash before it: this can stand in none.
std::int64_t told_tokens(std::string_view answer) {
  constexpr std::string_view mark = "\"total_tokens\":";
  const std::size_t at = answer.rfind(mark);
  if (at == std::string_view::npos) return 0;
  std::string_view rest = answer.substr(at + mark.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  std::int64_t tokens = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), tokens);
  return read.ec == std::errc() && tokens > 0 ? tokens : 0;
}

std::string with_member(std::string_view body, std::string_view name, std::string_view json) {
  const std::size_t brace = body.find('{');
  std::string text;
  text.reserve(body.size() + name.size() + json.size() + 4);
  text += "{\"";
  text += name;
  text += "\":";
  text += json;
  const std::string_view rest = body.substr(brace + 1);
  if (rest.find_first_not_of(" \t\r\n") != rest.find('}')) text += ',';
  text += rest;
  return text;
}

}  // namespace tutti::gate
