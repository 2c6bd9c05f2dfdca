#include "gate/ask/members.hpp"

#include <cstddef>
#include <string>

namespace tutti::gate {
namespace {

constexpr std::string_view white = " \t\r\n";

class Members {
 public:
  explicit Members(std::string_view text) : text_(text) {}

  Result<> each(const std::function<bool(std::string_view, std::string_view)>& tell) {
    skip_white();
    if (!take('{')) return wrong("is no JSON object");
    skip_white();
    if (take('}')) return end();
    for (;;) {
      skip_white();
      std::string_view key;
      if (!read_text(key)) return wrong("has a key that is no text");
      skip_white();
      if (!take(':')) return wrong("has a key without a value");
      skip_white();
      const std::size_t begin = at_;
      if (!pass_value()) return wrong("has a value that does not end");
      if (!tell(key, text_.substr(begin, at_ - begin))) return {};
      skip_white();
      if (take('}')) return end();
      if (!take(',')) return wrong("has something between its members");
    }
  }

 private:
  Result<> wrong(const std::string& what) const {
    return invalid("the body " + what + ", at byte " + std::to_string(at_));
  }
  Result<> end() {
    skip_white();
    return at_ == text_.size() ? Result<>() : wrong("goes on behind its end");
  }
  void skip_white() { at_ = std::min(text_.find_first_not_of(white, at_), text_.size()); }
  bool take(char wanted) {
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  // What is between its quotes.
  bool read_text(std::string_view& inner) {
    if (!take('"')) return false;
    const std::size_t begin = at_;
    for (;;) {
      at_ = std::min(text_.find_first_of("\"\\", at_), text_.size());
      if (at_ == text_.size()) return false;
      if (text_[at_] == '"') break;
      at_ += 2;  // whatever is escaped
    }
    inner = text_.substr(begin, at_ - begin);
    ++at_;
    return true;
  }
  bool pass_value() {
    std::size_t depth = 0;
    const std::size_t begin = at_;
    for (;;) {
      // Outside of lists and objects, whatever ends a member ends the value, too.
      at_ = std::min(text_.find_first_of(depth == 0 ? "\"[{]},: \t\r\n" : "\"[{]}", at_), text_.size());
      if (at_ == text_.size()) return false;
      const char found = text_[at_];
      std::string_view passed;
      if (found == '"') {
        if (!read_text(passed)) return false;
        if (depth == 0) return true;
      } else if (found == '[' || found == '{') {
        ++depth;
        ++at_;
      } else if (depth == 0) {
        return at_ > begin;
      } else {
        ++at_;
        if (--depth == 0) return true;
      }
    }
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<> each_member(std::string_view text,
                     const std::function<bool(std::string_view, std::string_view)>& tell) {
  return Members(text).each(tell);
}

}  // namespace tutti::gate
