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
  bool is_last = false;  // it says why the answer ends; what comes behind it are numbers
};
Heard heard_in(std::string_view data);

// An answer as it comes, event by event. It is whole when the server has said so: a connection that ends says
// nothing, whatever has come over it.
class Answer {
 public:
  // What is to be shown of it; nothing more is wanted of one that is_over().
  std::string hear(std::string_view data);
  bool is_over() const { return is_over_; }

  const std::string& text() const { return text_; }
  // Why it is not whole, "" if it is. `problem`: why no more can come, "" if the server just ended.
  std::string lack(const std::string& problem) const;

 private:
  std::string text_;
  std::string problem_;
  bool is_whole_ = false;
  bool is_over_ = false;
};

}  // namespace tutti::cli
