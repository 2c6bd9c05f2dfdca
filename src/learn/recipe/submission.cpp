#include "learn/recipe/submission.hpp"

#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::recipe {

std::string json_of(const Submission& submission) {
  const json::Object fields{{"recipe", json_of(submission.recipe)},
                            {"config", submission.config},
                            {"from_scratch", submission.from_scratch},
                            {"take_over", submission.take_over},
                            {"claim", submission.claim}};
  return json::write(fields, {.indent = 2}) + "\n";
}

Result<Submission> parse_submission(std::string_view text) {
  const auto value = json::parse(text);
  const auto field = [&](const char* key) { return value ? value->find(key) : nullptr; };
  const json::Value* const recipe = field("recipe");
  const json::Value* const config = field("config");
  const auto toggle = [&](const char* key) {
    return field(key) != nullptr && field(key)->boolean().value_or(false);
  };
  const json::Value* const claim = field("claim");
  if (recipe == nullptr || recipe->text() == nullptr || config == nullptr || config->text() == nullptr)
    return invalid("it holds no recipe and no model");
  auto parsed = parse_recipe(*recipe->text());
  if (!parsed) return std::move(parsed).error();
  return Submission{.recipe = std::move(*parsed),
                    .config = *config->text(),
                    .from_scratch = toggle("from_scratch"),
                    .take_over = toggle("take_over"),
                    .claim = claim != nullptr && claim->text() != nullptr ? *claim->text() : ""};
}

}  // namespace tutti::recipe
