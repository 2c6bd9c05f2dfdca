#include "control/cluster/audit_log.hpp"

#include <algorithm>
#include <charconv>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

constexpr std::string_view begin = "{\"n\":";
constexpr std::string_view before_hash = ",\"hash\":\"";
constexpr std::string_view end = "\"}";
constexpr std::size_t hash_digits = 64;

bool is_digit(char letter) { return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f'); }

}  // namespace

std::optional<AuditHead> audit_head_of(std::string_view line) {
  constexpr std::size_t tail = before_hash.size() + hash_digits + end.size();
  if (!line.starts_with(begin) || !line.ends_with(end) || line.size() < begin.size() + tail)
    return std::nullopt;
  AuditHead head;
  const char* const digits = line.data() + begin.size();
  const auto parsed = std::from_chars(digits, line.data() + line.size(), head.last);
  if (parsed.ec != std::errc() || head.last == 0) return std::nullopt;
  const std::string_view rest = line.substr(line.size() - tail);
  head.hash = rest.substr(before_hash.size(), hash_digits);
  if (!rest.starts_with(before_hash) || !std::all_of(head.hash.begin(), head.hash.end(), is_digit))
    return std::nullopt;
  return head;
}

std::optional<AuditHead> audit_head_of_lines(std::string_view lines) {
  if (!lines.ends_with('\n')) return std::nullopt;
  lines.remove_suffix(1);
  const std::size_t last = lines.rfind('\n');
  return audit_head_of(last == std::string_view::npos ? lines : lines.substr(last + 1));
}

void add_audit_lines(AuditLog& log, std::uint64_t first, std::string lines) {
  log.bytes += lines.size();
  log.lines.insert_or_assign(first, std::move(lines));
}

// The newest lines stay: what comes next follows them.
void Machine::on(const AuditShelved& event) {
  AuditLog& log = state_.audit;
  while (log.lines.size() > 1 && std::next(log.lines.begin())->first <= event.last + 1) {
    effects_.audit.insert(log.lines.begin()->first);
    log.bytes -= log.lines.begin()->second.size();
    log.lines.erase(log.lines.begin());
  }
}

// What this store has of them is there, too.
void Machine::on(const AuditFound& event) {
  AuditLog& log = state_.audit;
  if (event.head.last <= log.head.last) return;
  for (const auto& [first, lines] : log.lines) effects_.audit.insert(first);
  log = {.head = event.head, .lines = {}, .bytes = 0};
}

}  // namespace tutti::cluster
