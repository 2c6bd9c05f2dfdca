#include "control/audit/line.hpp"

#include "base/bytes.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "base/text.hpp"
#include "base/visible.hpp"
#include "net/sync/digest.hpp"

namespace tutti::audit {
namespace {

constexpr std::string_view hash_key = ",\"hash\":\"";
constexpr std::string_view line_end = "\"}";

void add(std::string& line, std::string_view key, const std::string& text) {
  if (text.empty()) return;
  line += ",\"" + std::string(key) + "\":";
  line += json::write(json::Value(cut_utf8(visible_line(text), text_bytes_max)));
}

std::string hash_of(std::string_view begin) { return sync::hash_bytes(as_bytes(begin)); }

}  // namespace

std::string next_line(const Entry& entry, Head& head) {
  std::string line = "{\"n\":" + std::to_string(head.last + 1);
  add(line, "at", format_instant(entry.at));
  add(line, "who", entry.who);
  add(line, "token", entry.token);
  add(line, "from", entry.from);
  add(line, "verb", entry.verb);
  add(line, "object", entry.object);
  add(line, "what", entry.what);
  add(line, "before", entry.before);
  add(line, "after", entry.after);
  add(line, "refused", entry.refused);
  if (entry.left_out > 0) line += ",\"left_out\":" + std::to_string(entry.left_out);
  line += ",\"prev\":\"" + head.hash + "\"";
  head = {head.last + 1, hash_of(line)};
  line.append(hash_key).append(head.hash).append(line_end).append("\n");
  return line;
}

Result<Head> check_line(std::string_view line, const std::optional<Head>& before) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const auto head = cluster::audit_head_of(line);
  if (!head) return invalid("it is no line of an audit log");
  const std::string name = "line " + std::to_string(head->last);
  const std::string_view begin =
      line.substr(0, line.size() - hash_key.size() - head->hash.size() - line_end.size());
  if (hash_of(begin) != head->hash) return invalid(name + " was changed: its hash is another one");
  if (!before) return *head;
  if (head->last != before->last + 1)
    return invalid(name + " follows line " + std::to_string(before->last) +
                   (head->last > before->last ? ": those between them are gone" : ""));
  if (!begin.ends_with("\"prev\":\"" + before->hash + "\""))
    return invalid(name + " does not follow the line before it: that one was another");
  return *head;
}

std::optional<Label> label_of(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const auto value = json::parse(line);
  if (!value || value->object() == nullptr) return std::nullopt;
  const auto text_of = [&](std::string_view key) {
    const json::Value* found = value->object()->find(key);
    const std::string* text = found == nullptr ? nullptr : found->text();
    return text == nullptr ? std::string() : *text;
  };
  Label label{text_of("at"), text_of("who")};
  if (label.at.empty()) return std::nullopt;
  return label;
}

}  // namespace tutti::audit
