// The text of an answer as it comes: what may still become a stop text, or is half a letter, is held back
// until it is known. Pure, one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::serve {

class AnswerText {
 public:
  explicit AnswerText(const std::vector<std::string>& stop_texts);

  // The bytes of one more token. True if the text is over: a stop text has come, and what stands before it is
  // what take() gives. Of several that end at one byte, the longest counts.
  bool add(std::string_view bytes);
  // What is sure and was not taken before.
  std::string take();
  // The answer ends here: all of it is sure.
  std::string finish();

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t> fallback;  // after a mismatch behind n bytes, so many of them match still
    std::size_t matched = 0;
  };
  std::vector<Stop> stops_;
  std::string pending_;
  bool over_ = false;
};

}  // namespace tutti::serve
