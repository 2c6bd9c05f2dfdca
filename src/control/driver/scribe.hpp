// Gathers what the audit log is to say of a turn: who asked for what, and what became of it. Refusals cost
// whoever asks nothing and the disk a line each: of one address, and of all, only so many are written, and
// how many were left out is. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/rate.hpp"
#include "control/audit/line.hpp"
#include "control/cluster/step.hpp"

namespace tutti::driver {

struct Item;

constexpr Rate refusals_max{.per_second = 10, .burst = 100};        // of one address
constexpr Rate all_refusals_max{.per_second = 50, .burst = 1'000};  // and of all

class Scribe {
 public:
  // Before it happens; nothing if nobody has asked for it. `who` is who asks, as far as that is known.
  std::optional<audit::Entry> begin(const cluster::State& state, const Item& item,
                                    const people::Name& who) const;
  // It has happened, or was refused as wrong. `now` is steady.
  void end(const cluster::State& state, const Item& item, audit::Entry entry,
           const Result<std::vector<cluster::JobId>>& reply, Instant now);
  // He may not.
  void refused(std::optional<audit::Entry> entry, const Error& why, Instant now);

  // All that was gathered, as lines with that date; the head moves on. "" if there is nothing.
  std::string write(audit::Head& head, Instant date);

 private:
  std::vector<audit::Entry> entries_;
  RateLimits refusals_{refusals_max};
  std::optional<TokenBucket> all_refusals_;
  std::uint64_t left_out_ = 0;
};

}  // namespace tutti::driver
