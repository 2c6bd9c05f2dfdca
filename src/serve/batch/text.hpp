// The text of an answer as it comes: what may still become a stop text, or is half a letter, is held back
// until it is known. Pure, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::serve {

// The texts that end an answer, with what it takes to find them: once for all answers of a request, of which
// there may be many. Immutable.
class StopTexts {
 public:
  // At most 65,535 bytes each.
  explicit StopTexts(const std::vector<std::string>& texts);

 private:
  friend class AnswerText;
  struct Stop {
    std::string text;
    std::vector<std::uint16_t> fallback;  // after a mismatch behind n bytes, so many of them match still
  };
  std::vector<Stop> stops_;
};

class AnswerText {
 public:
  explicit AnswerText(std::shared_ptr<const StopTexts> stops);

  // The bytes of one more token. True if the text is over: a stop text has come, and what stands before it is
  // what take() gives. Of several that end at one byte, the longest counts.
  bool add(std::string_view bytes);
  // What is sure and was not taken before.
  std::string take();
  // The answer ends here: all of it is sure.
  std::string finish();

 private:
  std::shared_ptr<const StopTexts> stops_;
  std::vector<std::uint16_t> matched_;  // bytes of each of them
  std::string pending_;
  bool over_ = false;
};

}  // namespace tutti::serve
