// Which requests are computed together. Requests of one kind (their types and the shapes of a row) wait until
// there are enough of them, or until the first of them has waited long enough. Pure: time is told.
//
//   put ─▶ kind A: ▆▆▆▆▆▆▆▆  as many rows as a batch has: goes at once
//          kind B: ▆▆        goes when its first has waited delay_max
//   take ◀─ of all that may go, the kind whose first came first
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
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
  explicit Gather(const GatherSettings& settings) : settings_(settings) {}

  // Ids are given in rising order; time does not go back. At most rows_max rows.
  void put(RunId id, const std::string& kind, std::int64_t rows, Instant now);
  // Nobody wants it any more. False: it is not here (any more).
  bool drop(RunId id);
  // The next batch, who came first first; nothing if none may go yet. Nobody overtakes another of his kind.
  std::vector<RunId> take(Instant now);
  // When take() has something if nothing more comes; nothing if nothing waits.
  std::optional<Instant> due() const;

  std::size_t waiting() const { return kinds_by_id_.size(); }

 private:
  struct Item {
    RunId id;
    std::int64_t rows = 0;
    Instant came;
  };
  struct Kind {
    std::deque<Item> items;
    std::int64_t rows = 0;
  };

  bool is_full(const Kind& kind) const { return kind.rows >= settings_.rows_max; }
  Instant due_of(const Kind& kind) const;

  const GatherSettings settings_;
  std::map<std::string, Kind> kinds_;  // none is empty
  std::map<RunId, std::string> kinds_by_id_;
};

}  // namespace tutti::serve
