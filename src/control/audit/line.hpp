// The lines of the audit log. Each has its number and the hash of the one before it, and ends with a hash of
// all that: whoever changes, removes or inserts one breaks the chain, unless he makes all that follow anew,
// which whoever has noted a later hash elsewhere sees. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"
#include "control/cluster/audit_log.hpp"

namespace tutti::audit {

using Head = cluster::AuditHead;

// Of each text in a line; what is longer is cut, and what a terminal would obey, or some would take for the
// end of a line, is shown instead.
constexpr std::size_t text_bytes_max = 1'000;

struct Entry {
  Instant at;
  std::string who = {};
  std::string token = {};  // its id; "": the cluster's own, or none
  std::string from = {};   // the address
  std::string verb = {};
  std::string object = {};
  std::string what = {};
  std::string before = {};
  std::string after = {};
  std::string refused = {};  // why; "": it was done
  std::uint64_t left_out =
      0;  // so many refusals it stands for, of which there is no line: they were too many
};

// The line that comes next, with its end, and the head moves to it.
std::string next_line(const Entry& entry, Head& head);

// Is it whole, and does it follow that one, where one is given? Up to where the log goes with it.
Result<Head> check_line(std::string_view line, const std::optional<Head>& before);

// When it was written and whose it is; nothing if that cannot be read. Such times are in order as texts are.
struct Label {
  std::string at;
  std::string who;
};
std::optional<Label> label_of(std::string_view line);

}  // namespace tutti::audit
