// Which requests are computed together. Requests of one kind (their types and the shapes of a row) wait until
// there are enough of them, or until the first of them has waited long enough. Pure: time is told.
//
//   put ─▶ kind A: ▆▆▆▆▆▆▆▆  as many rows as a batch has: goes at once
//          kind B: ▆▆        goes when its first has waited delay_max
//   take ◀─ of all that may go, the kind with a request of whose turn it is; in it, all who ask take turns
//
// A row is a round: whoever was given five rows has his next turn five rounds later, and who comes anew has
// his first one in the next round. So one who has thousands waiting has a part of each batch beside the
// others, and a crowd of new ones keeps nobody waiting for ever.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/id.hpp"
#include "base/time.hpp"

namespace tutti::serve {

using RunId = Id<struct RunTag>;

struct GatherSettings {
  std::int64_t rows_max = 1;  // of a batch
  Duration delay_max{};       // that the first of a batch waits for others
};

class Gather {
 public:
  static constexpr std::size_t resting_max = 10'000;  // whose turns are remembered while they ask for nothing

  explicit Gather(const GatherSettings& settings) : settings_(settings) {}

  // Ids are given in rising order; time does not go back. At most rows_max rows. Where there is no memory for
  // it, nothing has happened.
  void put(RunId id, const std::string& kind, std::int64_t rows, Instant now, const std::string& who = "");
  // Nobody wants it any more. False: it is not here (any more).
  bool drop(RunId id);
  // The next batch; nothing if none may go yet. Of one kind, nobody's own overtake one another; who does not
  // fit into what is left of a batch is the first of the next. Where there is no memory for it, nothing has
  // happened.
  std::vector<RunId> take(Instant now);
  // When take() has something if nothing more comes; nothing if nothing waits.
  std::optional<Instant> due() const;

  std::size_t waiting() const { return places_.size(); }
  // Who are remembered, also without anything that waits.
  std::size_t askers() const { return askers_.size(); }

 private:
  struct Item {
    std::int64_t rows = 0;
    Instant came;
  };
  using Line = std::map<RunId, Item>;
  using Lines = std::map<std::string, Line>;  // by who asks; none is empty
  // Whose turn is earlier is next: by round, and in one round by who came into it first.
  struct Turn {
    std::uint64_t round = 0;
    std::uint64_t nth = 0;
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  struct Asker {
    Turn turn;
    std::size_t waiting = 0;  // requests, of all kinds
  };
  using Askers = std::map<std::string, Asker>;
  struct Kind {
    Lines lines;
    std::int64_t rows = 0;
  };
  // Who may be given a part of a batch, while it is made.
  struct Candidate {
    Lines::iterator line;
    Askers::iterator asker;
  };
  struct Place {
    std::string kind;
    std::string who;
  };

  bool is_full(const Kind& kind) const { return kind.rows >= settings_.rows_max; }
  Instant due_of(const Kind& kind) const;
  // The earliest turn of those who have something of it, and what he has there first.
  std::pair<Turn, RunId> front_of(const Kind& kind) const;
  // One request less, of him and of those that wait.
  void count_out(RunId id, Askers::iterator asker);

  const GatherSettings settings_;
  std::map<std::string, Kind> kinds_;  // none is empty
  std::map<RunId, Place> places_;
  Askers askers_;  // with something that waits, or with turns that are still to come
  std::uint64_t round_ = 0;
  std::uint64_t entered_ = 0;  // into rounds, so far
};

}  // namespace tutti::serve
