#include <algorithm>
#include <cmath>

#include "base/json/write.hpp"
#include "base/text.hpp"
#include "serve/chat/value.hpp"

namespace tutti::serve::chat {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::size_t bytes_max, std::string& out)
      : style_(style), bytes_max_(bytes_max), out_(out) {}

  bool write(const Value& value, std::size_t depth) {
    if (const List* list = value.list())
      return write_all(*list, '[', ']', depth, [&](const Value& each) { return write(each, depth + 1); });
    if (const Map* map = value.map()) return write_map(*map, depth);
    if (const std::string* text = value.text()) {
      write_text(*text);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (const bool* boolean = value.boolean()) {
      out_ += *boolean ? "true" : "false";
    } else if (const double* number = value.number()) {
      out_ += std::isfinite(*number) ? number_text(*number)
              : std::isnan(*number)  ? "NaN"
              : *number < 0          ? "-Infinity"
                                     : "Infinity";
    } else if (const auto* whole = value.whole()) {
      out_ += std::to_string(*whole);
    } else {
      return false;
    }
    return true;
  }

 private:
  bool write_map(const Map& map, std::size_t depth) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : map) items.push_back(&item);
    if (style_.sorted)
      std::stable_sort(items.begin(), items.end(),
                       [](const auto* a, const auto* b) { return a->first < b->first; });
    return write_all(items, '{', '}', depth, [&](const auto* item) {
      write_text(item->first);
      out_ += style_.behind_key;
      return write(item->second, depth + 1);
    });
  }

  template <class Items, class Write>
  bool write_all(const Items& items, char open, char close, std::size_t depth, Write write_one) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.between_items;
      first = false;
      new_line(depth + 1);
      if (out_.size() > bytes_max_) return true;
      if (!write_one(item)) return false;
    }
    if (!first) new_line(depth);
    out_ += close;
    return true;
  }

  void new_line(std::size_t depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(depth * static_cast<std::size_t>(style_.indent), ' ');
  }

  void write_text(const std::string& text) { out_ += json::write(text, {.ascii = style_.ascii}); }

  const JsonStyle& style_;
  std::size_t bytes_max_;
  std::string& out_;
};

}  // namespace

bool write_json(const Value& value, const JsonStyle& style, std::size_t bytes_max, std::string& out) {
  return JsonWriter(style, bytes_max, out).write(value, 0);
}

}  // namespace tutti::serve::chat
