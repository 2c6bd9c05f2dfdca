#include "serve/constrain/key_order.hpp"

#include <algorithm>

#include "base/json/parse.hpp"

namespace tutti::serve {

std::string escaped(std::string_view key) {
  std::string step;
  for (const char letter : key) {
    if (letter == '~') {
      step += "~0";
    } else if (letter == '/') {
      step += "~1";
    } else {
      step += letter;
    }
  }
  return step;
}

std::string unescaped(std::string_view step) {
  std::string key;
  for (std::size_t at = 0; at < step.size(); ++at) {
    const bool is_coded = step[at] == '~' && at + 1 < step.size();
    if (is_coded && step[at + 1] == '1') {
      key += '/';
    } else if (is_coded && step[at + 1] == '0') {
      key += '~';
    } else {
      key += step[at];
      continue;
    }
    ++at;
  }
  return key;
}

// The text is known to be valid, so that only its brackets, strings, commas and colons have to be looked at.
KeyOrder::KeyOrder(std::string_view text, std::size_t path_bytes_max) {
  struct Open {
    bool is_object = false;
    bool before_key = false;
    std::size_t index = 0;
    std::size_t path_size = 0;  // of the object or list itself
  };
  std::vector<Open> open;
  std::string path;
  const auto in_list = [&] {
    if (!open.empty() && !open.back().is_object) {
      path.resize(open.back().path_size);
      path += "/" + std::to_string(open.back().index);
    }
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char here = text[at];
    if (here == '{' || here == '[') {
      in_list();
      open.push_back({here == '{', here == '{', 0, path.size()});
    } else if (here == '}' || here == ']') {
      if (open.empty()) return;
      path.resize(open.back().path_size);
      open.pop_back();
    } else if (here == ',') {
      if (open.empty()) return;
      open.back().before_key = open.back().is_object;
      ++open.back().index;
    } else if (here == '"') {
      const std::size_t begin = at;
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\') ++at;
      }
      if (open.empty() || !open.back().before_key || at >= text.size()) continue;
      open.back().before_key = false;
      path.resize(open.back().path_size);
      const auto key = json::parse(text.substr(begin, at + 1 - begin));
      if (!key || key->text() == nullptr) return;
      if (path.size() <= path_bytes_max) keys_[path].push_back(*key->text());
      path += "/" + escaped(*key->text());
    }
  }
}

std::vector<std::string> KeyOrder::keys(const std::string& path, const json::Object& object) const {
  std::vector<std::string> ordered;
  if (const auto found = keys_.find(path); found != keys_.end()) ordered = found->second;
  // Whatever the text was taken for, the keys are those of the object.
  std::erase_if(ordered, [&](const std::string& key) { return object.find(key) == nullptr; });
  for (const json::Member& member : object) {
    if (std::find(ordered.begin(), ordered.end(), member.key) == ordered.end()) ordered.push_back(member.key);
  }
  return ordered;
}

}  // namespace tutti::serve
