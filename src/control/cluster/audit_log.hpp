// The end of the audit log: its newest lines, which are in the store until they are in files, too. A line is
// JSON that begins with its number and ends with its hash, in which that of the line before it is counted
// (control/audit). Pure functions and plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::cluster {

// Where files cannot be written, so much waits in the store; then nothing is changed that cannot be told.
constexpr std::size_t audit_waiting_bytes_max = 64 << 20;

// Up to where it goes.
struct AuditHead {
  std::uint64_t last = 0;  // the number of its last line; 0: there is none
  std::string hash = {};   // of that line

  friend bool operator==(const AuditHead&, const AuditHead&) = default;
};

// Of a log that ends with this line; nothing if it is none.
std::optional<AuditHead> audit_head_of(std::string_view line);
// Of one that ends with these lines, each of which has its end.
std::optional<AuditHead> audit_head_of_lines(std::string_view lines);

struct AuditLog {
  AuditHead head;
  // What was committed together, by the number of its first line. The newest stays, so that the head is
  // known.
  std::map<std::uint64_t, std::string> lines;
  std::size_t bytes = 0;  // of all these; derived

  friend bool operator==(const AuditLog&, const AuditLog&) = default;
};

void add_audit_lines(AuditLog& log, std::uint64_t first, std::string lines);

}  // namespace tutti::cluster
