#include "base/config/document.hpp"

#include <algorithm>

#include <yaml-cpp/yaml.h>

#include "base/files/files.hpp"
#include "base/text.hpp"

namespace tutti::config {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // positions in the file begin behind it

int line_of(const YAML::Mark& mark) { return mark.line + 1; }

Error at_line(std::string_view name, int line, std::string why) {
  return invalid(std::move(why)).within(std::string(name) + ":" + std::to_string(line));
}

// Whether the scalar that begins here is in quotes that never end. yaml-cpp takes such a one for the rest of
// the file, if that ends with a line.
bool is_never_closed(std::string_view yaml, std::size_t begin) {
  constexpr std::string_view spaces = " \t\r\n";
  begin = yaml.find_first_not_of(spaces, begin);
  while (begin < yaml.size() && (yaml[begin] == '&' || yaml[begin] == '!')) {  // an anchor, a tag
    const auto end = yaml.find_first_of(spaces, begin);
    begin = yaml.find_first_not_of(spaces, end);
  }
  if (begin >= yaml.size() || (yaml[begin] != '"' && yaml[begin] != '\'')) return false;
  const char quote = yaml[begin];
  for (std::size_t at = begin + 1; at < yaml.size(); ++at) {
    const bool doubled = quote == '\'' && yaml.substr(at, 2) == "''";
    if (doubled || (quote == '"' && yaml[at] == '\\')) {
      ++at;
    } else if (yaml[at] == quote) {
      return false;
    }
  }
  return true;
}

// Copies yaml-cpp's graph into a tree, within the limits.
class Copier {
 public:
  Copier(std::string_view name, std::string_view yaml)
      : name_(name), yaml_(yaml.starts_with(byte_order_mark) ? yaml.substr(byte_order_mark.size()) : yaml) {}

  Result<Value> copy(const YAML::Node& node, int depth) {
    const int line = line_of(node.Mark());
    if (depth > document_depth_max) return at_line(name_, line, "the file is nested too deeply");
    if (++values_ > document_values_max) return at_line(name_, line, "the file holds too many values");
    Value value;
    value.line = line;
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return value;
      case YAML::NodeType::Scalar:
        if ((bytes_ += node.Scalar().size()) > text_bytes_max)
          return at_line(name_, line, "the file holds too much text");
        if (is_quoted(node) && is_never_closed(yaml_, static_cast<std::size_t>(node.Mark().pos)))
          return at_line(name_, line, "the quote that begins here is never closed");
        value.kind = Value::Kind::scalar;
        value.scalar = node.Scalar();
        return value;
      case YAML::NodeType::Sequence:
        return copy_sequence(node, depth, std::move(value));
      case YAML::NodeType::Map:
        return copy_mapping(node, depth, std::move(value));
    }
    return value;
  }

 private:
  // An escape of two bytes may stand for three.
  static constexpr std::size_t text_bytes_max = 2 * document_bytes_max;

  // Plain ones have the tag "?".
  static bool is_quoted(const YAML::Node& node) { return node.Tag() != "?" && node.Mark().pos >= 0; }

  Result<Value> copy_sequence(const YAML::Node& node, int depth, Value value) {
    value.kind = Value::Kind::sequence;
    for (const auto& item : node) {
      auto copied = copy(item, depth + 1);
      if (!copied) return copied;
      value.items.push_back(std::move(*copied));
    }
    return value;
  }

  Result<Value> copy_mapping(const YAML::Node& node, int depth, Value value) {
    value.kind = Value::Kind::mapping;
    for (const auto& pair : node) {
      const int line = line_of(pair.first.Mark());
      if (!pair.first.IsScalar()) return at_line(name_, line, "a key must be a word");
      const std::string& key = pair.first.Scalar();
      if (value.find(key) != nullptr) return at_line(name_, line, "the key '" + key + "' stands here twice");
      auto copied = copy(pair.second, depth + 1);
      if (!copied) return copied;
      value.keys.push_back(key);
      value.key_lines.push_back(line);
      value.items.push_back(std::move(*copied));
    }
    return value;
  }

  std::string name_;
  std::string_view yaml_;
  std::size_t values_ = 0;
  std::size_t bytes_ = 0;  // of all scalars: aliases repeat them
};

// The line on which a second document begins, 0 if there is none. YAML::LoadAll would tell, but it never
// returns from some inputs, such as ",-a:b".
int second_document(std::string_view yaml) {
  bool begun = false;
  int line_number = 0;
  for (const std::string_view line : split(yaml, '\n')) {
    ++line_number;
    const bool marker = line == "---" || line.starts_with("--- ") || line.starts_with("---\r");
    if (marker && begun) return line_number;
    const bool content = !trim(line).empty() && !line.starts_with("#") && !line.starts_with("%");
    begun = begun || content;
  }
  return 0;
}

Error too_large(std::string_view name) {
  return invalid("the file is larger than 1 MiB")
      .within(name)
      .remedy("a configuration file is a page or two: is this the right file?");
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}

Error Document::error(int line, std::string_view key, std::string why) const {
  return invalid(std::move(why)).within(name + ":" + std::to_string(line) + ": " + std::string(key));
}

Result<Document> parse_document(std::string_view yaml, std::string_view name) {
  if (yaml.size() > document_bytes_max) return too_large(name);
  if (const int line = second_document(yaml); line > 0) {
    return at_line(name, line, "a second document begins here; one file holds one");
  }
  try {
    const YAML::Node node = YAML::Load(std::string(yaml));
    if (node.IsNull()) return invalid("the file is empty").within(name);
    if (!node.IsMap()) return at_line(name, line_of(node.Mark()), "expected lines of the form 'key: value'");
    auto root = Copier(name, yaml).copy(node, 0);
    if (!root) return std::move(root).error();
    return Document{std::string(name), std::move(*root)};
  } catch (const YAML::Exception& thrown) {
    return at_line(name, line_of(thrown.mark), "not valid YAML: " + thrown.msg);
  }
}

Result<Document> read_document(const std::filesystem::path& path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    return failed("this is a folder, not a file").within(path.string());
  const auto text = files::read_existing_file(path.string(), document_bytes_max);
  if (!text) return text.error();
  return parse_document(*text, path.filename().string());
}

}  // namespace tutti::config
