#include "node/agent/room.hpp"

#include <algorithm>

namespace tutti::agent {
namespace {

constexpr std::size_t files_of_an_attempt = 1;  // the claim to its port
constexpr std::size_t given_up_max = 256;

}  // namespace

bool Room::fits(Attempt attempt, std::size_t ranks) const {
  return inside_.contains(attempt) || files_ + ranks + files_of_an_attempt <= files_max_;
}

bool Room::can_hold(Attempt attempt, std::size_t ranks) const {
  return inside_.contains(attempt) || ranks + files_of_an_attempt <= files_max_;
}

Room::Taken& Room::add(Attempt attempt) {
  const auto [taken, added] = inside_.try_emplace(attempt);
  if (added) files_ += files_of_an_attempt;
  return taken->second;
}

bool Room::enter(Attempt attempt, std::size_t ranks) {
  const bool others_first = !waiting_.empty() && !inside_.contains(attempt);
  if (others_first || !fits(attempt, ranks)) return false;
  add(attempt).entered_for += ranks;
  files_ += ranks;
  return true;
}

void Room::wait(Attempt attempt, std::size_t ranks, std::function<void()> begin,
                std::function<void()> give_up) {
  auto timer = loop_.after(patience_, [this, attempt] { this->give_up(attempt); });
  Waiting one{attempt, ranks, std::move(begin), std::move(give_up), std::move(timer)};
  const auto place = comes_back(one)
                         ? std::find_if(waiting_.begin(), waiting_.end(),
                                        [this](const Waiting& other) { return !comes_back(other); })
                         : waiting_.end();
  waiting_.insert(place, std::move(one));
  let_in();
}

// Each time at the end of a long line it would never get in.
bool Room::comes_back(const Waiting& one) const {
  return std::find(given_up_.begin(), given_up_.end(), one.attempt.first) != given_up_.end();
}

void Room::give_up(Attempt attempt) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Waiting& one) { return one.attempt == attempt; });
  if (found == waiting_.end()) return;
  const auto tell = std::move(found->give_up);
  if (!comes_back(*found)) given_up_.push_back(attempt.first);
  if (given_up_.size() > given_up_max) given_up_.pop_front();
  leave(attempt);
  tell();
}

void Room::start(Attempt attempt, std::size_t ranks) {
  Taken& taken = add(attempt);
  files_ += ranks;
  files_ -= std::exchange(taken.entered_for, 0);
  taken.started += ranks;
}

bool Room::is_waiting(Attempt attempt) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& one) { return one.attempt == attempt; });
}

void Room::leave(Attempt attempt) {
  if (const auto taken = inside_.extract(attempt)) {
    files_ -= taken.mapped().entered_for + taken.mapped().started + files_of_an_attempt;
  } else {
    std::erase_if(waiting_, [&](const Waiting& one) { return one.attempt == attempt; });
  }
  let_in();
}

// One that begins may leave at once: the round that is under way goes on then.
void Room::let_in() {
  if (std::exchange(letting_in_, true)) return;
  while (!waiting_.empty() && fits(waiting_.front().attempt, waiting_.front().ranks)) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    std::erase(given_up_, next.attempt.first);
    add(next.attempt).entered_for += next.ranks;
    files_ += next.ranks;
    next.begin();
  }
  letting_in_ = false;
}

}  // namespace tutti::agent
