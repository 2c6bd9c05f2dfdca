// How keys share what is short: places, and blocks of the cache. One who is alone has all of it. When another
// comes whose turn it is, or who needs one block more, and has less than some key even then, the youngest of
// the key that has most make way, so that nobody makes way for who has more, and no two of them for each
// other in turns. The oldest of a key makes way for no other key: of each something always goes on.
#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/index.hpp"
#include "serve/batch/sequence.hpp"

namespace tutti::serve {
namespace {

// A step looks past so many that do not fit, so that a crowd of them costs it little.
constexpr std::size_t passed_max = 16;

}  // namespace

Batch::Sequence& Batch::sequence_of(const SequenceId& id) const {
  return *requests_.at(id.request)->sequences[at(id.answer)];
}

// A block that several use is a part of each of them.
double Batch::weight_of(const Sequence& sequence) const {
  double weight = 0;
  for (const BlockId block : sequence.blocks) weight += 1.0 / static_cast<double>(blocks_.users(block));
  return weight;
}

Batch::Holdings Batch::holdings() const {
  Holdings held;
  for (const SequenceId& id : running_) {
    const Sequence& sequence = sequence_of(id);
    Held& own = held[sequence.request->key];
    own.blocks += weight_of(sequence);
    ++own.places;
  }
  return held;
}

// To count them takes a look at every block.
Batch::Holdings& Batch::holdings(Passing& passing) const {
  if (!passing.held) passing.held = holdings();
  return *passing.held;
}

Batch::Need Batch::need_of(const Sequence& sequence) const {
  const auto found =
      may_find(sequence) ? blocks_.look(sequence.request->adapter, sequence.before_last()) : Blocks::Found{};
  return {.fresh = blocks_for(sequence.size()) - found.blocks, .found = found.blocks, .idle = found.idle};
}

// Whether there are blocks for it, now or once others have left.
bool Batch::fits(const Need& need, std::span<Sequence* const> leaving) const {
  // Room for those that run to grow, else the next step would throw out who has just come.
  const auto spare = std::min(static_cast<std::int64_t>(running_.size()), std::int64_t{blocks_.count() / 16});
  if (leaving.empty()) return need.fresh + need.idle + spare <= blocks_.available();
  // What is found may be used by nobody else.
  std::int64_t left = 0;
  for (const Sequence* each : leaving)
    left += std::ranges::count_if(each->blocks, [&](BlockId block) { return blocks_.users(block) == 1; });
  return need.fresh + need.found + spare <= blocks_.available() + left;
}

// Of the keys that have somebody to spare the one with the most blocks, if it has more than so many.
std::optional<std::string_view> Batch::largest(const Holdings& held, double than) {
  std::optional<std::string_view> found;
  for (const auto& [key, own] : held) {
    if (own.places < 2 || own.blocks <= than) continue;
    than = own.blocks;
    found = key;
  }
  return found;
}

Batch::Sequence& Batch::youngest_of(std::string_view key, std::span<Sequence* const> but) const {
  const auto youngest = std::find_if(running_.rbegin(), running_.rend(), [&](const SequenceId& id) {
    const Sequence& sequence = sequence_of(id);
    return sequence.request->key == key && std::ranges::find(but, &sequence) == but.end();
  });
  TUTTI_CHECK(youngest != running_.rend());
  return sequence_of(*youngest);
}

// There is no block left for the next token of this one. Where nobody has more, the youngest goes of those
// who have as much: it may be this one itself. The oldest of all stays, so that every request ends.
Batch::Sequence& Batch::leaves_for(const Sequence& sequence) const {
  const Holdings held = holdings();
  const double own = held.at(sequence.request->key).blocks;
  if (const auto most = largest(held, own + 1)) return youngest_of(*most);
  const auto youngest = std::find_if(running_.rbegin(), running_.rend(), [&](const SequenceId& id) {
    return held.at(sequence_of(id).request->key).blocks >= own;
  });
  TUTTI_CHECK(youngest != running_.rend());
  return sequence_of(*youngest == *running_.begin() ? *running_.rbegin() : *youngest);
}

// When it is another key's turn and there is no place or no block for it, others make way for one in a step,
// before anything of the step is planned.
void Batch::share() {
  if (running_.empty() || order_.active() < 2) return;
  Passing passing;
  while (const auto turn = order_.next(at(counts_.steps), passing.passed)) {
    Sequence& sequence = sequence_of(*turn);
    if (sequence.state != State::waiting) return;
    std::vector<Sequence*> leaving;
    if (!has_place()) {
      Sequence* const first = gives_place(sequence);
      if (first == nullptr) return;
      leaving.push_back(first);
    }
    const Need need = need_of(sequence);
    if (leaving.empty() && fits(need)) return;  // it is let in as it is
    const bool is_enough = !leaving.empty() && fits(need, leaving);
    if (is_enough || find_leaving(sequence, need, holdings(passing), leaving)) {
      for (Sequence* const each : leaving) preempt(*each);
      return admit(sequence);
    }
    if (!may_pass(sequence, passing)) return;
  }
}

// Who makes way for this one where all places are taken; null if nobody does.
Batch::Sequence* Batch::gives_place(const Sequence& sequence) const {
  std::map<std::string_view, std::int64_t> places;
  for (const SequenceId& id : running_) ++places[sequence_of(id).request->key];
  const auto most = std::ranges::max_element(places, {}, [](const auto& entry) { return entry.second; });
  const auto own = places.find(sequence.request->key);
  const std::int64_t has = own == places.end() ? 0 : own->second;
  return has + 1 < most->second ? &youngest_of(most->first) : nullptr;
}

// Adds to those who make way until there are blocks for this one; false if they stay too few.
bool Batch::find_leaving(const Sequence& sequence, const Need& need, Holdings held,
                         std::vector<Sequence*>& leaving) const {
  const auto leave = [&](const Sequence& each) {
    Held& own = held[each.request->key];
    own.blocks -= weight_of(each);
    --own.places;
  };
  for (const Sequence* const each : leaving) leave(*each);
  const double wanted = held[sequence.request->key].blocks + static_cast<double>(need.fresh + need.idle);
  do {
    const auto most = largest(held, wanted);
    if (!most) return false;
    leaving.push_back(&youngest_of(*most, leaving));
    leave(*leaving.back());
  } while (!fits(need, leaving));
  return true;
}

// Others may go in past this one, for whom there is no room yet: what is free would be of use to nobody. For
// a while only, else a long prompt would wait for ever; then only those who have less than its key has.
bool Batch::may_pass(Sequence& sequence, Passing& passing) const {
  if (sequence.refused_step < 0) sequence.refused_step = counts_.steps;
  if (passing.passed.size() == passed_max) return false;
  passing.passed.push_back(sequence.id);
  if (at(counts_.steps - sequence.refused_step) < settings_.passing_steps) return true;
  passing.most = std::min(passing.most, holdings(passing)[sequence.request->key].blocks);
  return passing.most > 0;
}

// Whether it may go in past those that were looked past so far.
bool Batch::may_enter(const Sequence& sequence, const Need& need, Passing& passing) {
  if (std::isinf(passing.most)) return true;
  double& own = (*passing.held)[sequence.request->key].blocks;
  const double with_it = own + static_cast<double>(need.fresh + need.idle);
  if (with_it >= passing.most) return false;
  own = with_it;
  return true;
}

}  // namespace tutti::serve
