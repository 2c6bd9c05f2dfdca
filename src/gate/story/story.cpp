#include "gate/story/story.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::gate {
namespace {

constexpr std::string_view own_comment = ": tutti";
constexpr std::string_view data_field = "data:";
constexpr std::string_view last_data = "[DONE]";
constexpr std::string_view error_begin = "{\"error\"";
// In the text of an answer its quotes would be escaped.
constexpr std::string_view finish_member = "\"finish_reason\":\"";
// Of an error with which another one may be asked.
constexpr std::string_view elsewhere_type = "overloaded_error";
constexpr std::string_view role_member = "\"role\"";
constexpr std::size_t id_bytes_max = 128;

std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Where an event ends that begins here: behind the empty line. npos: it has not ended.
std::size_t end_of_event(std::string_view text, std::size_t searched) {
  for (std::size_t at = searched;;) {
    at = text.find('\n', at);
    if (at == std::string_view::npos) return at;
    ++at;
    if (text.substr(at).starts_with('\n')) return at + 1;
    if (text.substr(at).starts_with("\r\n")) return at + 2;
  }
}

bool can_be_named(std::string_view id) {
  return !id.empty() && id.size() <= id_bytes_max && std::ranges::all_of(id, [](char letter) {
    return letter > ' ' && letter < '\x7f' && letter != '"' && letter != '\\';
  });
}

bool is_for_another(std::string_view data) {
  const auto value = json::parse(data);
  if (!value) return false;
  const json::Value* const error = value->find("error");
  const json::Value* const type = error == nullptr ? nullptr : error->find("type");
  return type != nullptr && *type == elsewhere_type;
}

}  // namespace

Result<std::string> Story::take(std::string_view bytes) {
  std::string out;
  // The end of an event may be cut in two.
  std::size_t searched = pending_.size() < 2 ? 0 : pending_.size() - 2;
  pending_ += bytes;
  std::size_t begin = 0;
  while (!is_given_up() && !is_whole_) {
    const std::size_t end = end_of_event(pending_, std::max(searched, begin));
    if (end == std::string::npos) break;
    if (!take_event(std::string_view(pending_).substr(begin, end - begin), out))
      return failed("it says of tokens what cannot be");
    begin = searched = end;
  }
  pending_.erase(0, is_whole_ ? std::string::npos : begin);
  if (pending_.size() > event_bytes_max) return failed("an event of its stream does not end");
  return out;
}

bool Story::take_event(std::string_view event, std::string& out) {
  bool is_told = false;  // its tokens
  bool has_data = false;
  bool is_last = false;
  std::string kept;
  for (std::string_view rest = event; !rest.empty();) {
    const std::string_view before = rest;
    const std::string_view line = next_line(rest);
    const std::string_view whole_line = before.substr(0, before.size() - rest.size());
    if (line.starts_with(own_comment)) {
      if (!read_comment(line.substr(own_comment.size()))) return false;
      is_told = true;
      if (!with_comments_) continue;
    } else if (line.starts_with(data_field)) {
      std::string_view data = line.substr(data_field.size());
      if (data.starts_with(' ')) data.remove_prefix(1);
      has_data = true;
      is_last = data == last_data;
      if (data.starts_with(error_begin) && can_go_on() && is_for_another(data)) {
        reason_ = event;
        return true;
      }
      if (id_.empty() && !is_last && may_go_on_) read_name(data);
    }
    kept += whole_line;
  }
  if (has_data && !is_told && !is_last && !is_finished_) {
    // Who speaks is said once, and of no use to anybody before something is said.
    const bool is_first = may_go_on_ && !has_begun_ && held_.empty();
    if (is_first && event.find(role_member) != std::string_view::npos) {
      held_ = kept;
      return true;
    }
    is_known_ = false;
  }
  out += std::exchange(held_, {});
  is_whole_ = is_last;
  // Whoever goes on behind the last token says once more why it ends there. Of several answers each ends.
  const bool is_end = may_go_on_ && event.find(finish_member) != std::string_view::npos;
  if (is_end && std::exchange(is_finished_, true)) return true;
  out += kept;
  events_ += has_data && !is_last ? 1 : 0;
  has_begun_ = has_begun_ || !out.empty();
  return true;
}

bool Story::read_comment(std::string_view numbers) {
  while (!numbers.empty()) {
    if (numbers.front() != ' ') return false;
    numbers.remove_prefix(1);
    std::int32_t token = 0;
    const auto read = std::from_chars(numbers.data(), numbers.data() + numbers.size(), token);
    if (read.ec != std::errc() || token < 0 || tokens_.size() >= tokens_max) return false;
    numbers.remove_prefix(static_cast<std::size_t>(read.ptr - numbers.data()));
    tokens_.push_back(token);
  }
  return true;
}

void Story::read_name(std::string_view data) {
  const auto value = json::parse(data);
  const json::Value* const id = value ? value->find("id") : nullptr;
  const json::Value* const created = value ? value->find("created") : nullptr;
  if (id == nullptr || id->text() == nullptr || !can_be_named(*id->text()) || created == nullptr ||
      !created->whole()) {
    is_known_ = false;
    return;
  }
  id_ = *id->text();
  created_ = *created->whole();
}

std::string Story::rest() const {
  if (!has_begun_) return {};
  return json::write(json::Object{{"id", id_}, {"created", created_}, {"tokens", json::array_of(tokens_)}});
}

void Story::begin_again() {
  pending_.clear();
  held_.clear();
  reason_.clear();
  if (has_begun_) return;
  // Nobody has heard of it: it is told anew, under another name.
  id_.clear();
  tokens_.clear();
  is_known_ = true;
}

}  // namespace tutti::gate
