// Instants of the API, which are UTC, as the clock on the user's wall shows them. Main thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/time.hpp"

namespace tutti::cli {

// "2026-11-15T14:20:00.000Z" as "14:20", with "11-16 " before it when that is not today; the text itself if
// it is no instant.
std::string local_time(std::string_view instant);

// The same in full: "2026-11-15 14:20:00".
std::string local_date_time(std::string_view instant);

// Nothing if it is no instant.
std::optional<Instant> parse_instant(std::string_view text);

// The text with each instant in it shown so.
std::string with_local_times(std::string_view text);

}  // namespace tutti::cli
