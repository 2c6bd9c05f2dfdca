#include "net/http/turns.hpp"

#include <new>

#include <boost/asio/post.hpp>

namespace tutti::net {
namespace {

// Each who has left is a connection that is taken down now: a little work, and there may be thousands.
constexpr std::size_t looks_max = 64;

}  // namespace

void Turns::enter(const std::string& address, const std::shared_ptr<Place>& place) {
  Line& line = lines_[address];
  line.push_back(place);
  if (line.size() == 1) {
    try {
      addresses_.push_back(address);
    } catch (const std::bad_alloc&) {
      lines_.erase(address);
      throw;
    }
  }
  if (!is_round_) post_round();
}

void Turns::post_round() {
  boost::asio::post(context_, [self = shared_from_this()] { self->next_round(); });
  is_round_ = true;
}

void Turns::next_round() {
  is_round_ = false;
  std::size_t looks = 0;
  std::size_t begun = 0;
  for (std::size_t left = addresses_.size(); left > 0 && begun < at_once_ && looks < looks_max; --left) {
    const auto here = lines_.find(addresses_.front());
    if (call_one(here->second, looks)) ++begun;
    if (here->second.empty()) {
      lines_.erase(here);
      addresses_.pop_front();
    } else {
      addresses_.splice(addresses_.end(), addresses_, addresses_.begin());
    }
  }
  if (!addresses_.empty()) post_round();
}

bool Turns::call_one(Line& line, std::size_t& looks) {
  while (!line.empty() && looks < looks_max) {
    const auto place = line.front().lock();
    line.pop_front();
    if (place == nullptr) continue;
    const bool has_left = place->has_left();
    // One whose time is over has been told that already.
    if (place->timer.cancel() > 0 && !has_left) return true;
    ++looks;
  }
  return false;
}

}  // namespace tutti::net
