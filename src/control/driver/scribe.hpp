// Gathers what the audit log is to say of a turn: who asked for what, and what became of it. Refusals cost
// whoever asks nothing and the disk a line each: of one person, or of one address of those who are nobody,
// and of all, only so many are written; of each kind of request one a minute before that, so that nobody
// hides one behind others. Those who are nobody may have any number of addresses: what all of them get is
// apart, and hides nothing of what a person does. Of whom the rest was is written, and how much it was. One
// thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rate.hpp"
#include "control/audit/line.hpp"
#include "control/cluster/step.hpp"

namespace tutti::driver {

struct Item;

constexpr Rate refusals_max{.per_second = 10, .burst = 100};        // of one person or address
constexpr Rate kinds_max{.per_second = 1.0 / 60, .burst = 1};       // of one kind of his, besides
constexpr Rate all_refusals_max{.per_second = 50, .burst = 1'000};  // and of all persons, or all others

constexpr Duration left_out_told_every = 1min;
constexpr std::size_t left_out_of_max = 100;  // persons and addresses

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

  // So was this one, and nothing can be written now.
  void leave_out(const audit::Entry& entry);

  // Of whom there are no lines, now and then.
  void tell_left_out(Instant now);

  // All that was gathered, as lines with that date; the head moves on. "" if there is nothing.
  std::string write(audit::Head& head, Instant date);
  // What was written last is in the store now, or is not: then there is no line of its refusals.
  void stored() { written_.clear(); }
  void lost();

 private:
  // What is written of those who are refused.
  struct Share {
    RateLimits each{refusals_max};
    RateLimits kinds{kinds_max};
    std::optional<TokenBucket> all = {};
  };
  // Of whom there is no line.
  struct LeftOut {
    std::string who;
    std::string from;
    std::uint64_t count = 0;
  };

  std::vector<audit::Entry> entries_;
  std::vector<audit::Entry> written_;  // refusals, until it is known whether they are stored
  Share persons_;
  Share nobodies_;
  std::map<std::string, LeftOut> left_out_;
  Instant left_out_told_;
};

}  // namespace tutti::driver
