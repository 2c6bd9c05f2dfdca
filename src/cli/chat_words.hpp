// What a server that speaks OpenAI's API says in a conversation. It may be anybody's: whatever stands in
// place of what is expected is nothing, or shown as it is, and never more than a person wants to read. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::cli {

// The name of the first model in the answer of /v1/models.
std::optional<std::string> model_in(std::string_view body);

// The words of an error, or all that was said in their place.
std::string problem_in(std::string_view body);

// One event of an answer.
struct Heard {
  std::string piece;
  std::string problem;
};
Heard heard_in(std::string_view data);

}  // namespace tutti::cli
