#include "serve/server/entering.hpp"

#include <utility>
#include <vector>

namespace tutti::serve {

Result<> Entering::enter(const Submit& submit, std::size_t inside_max) {
  while (next_ < prepared_.prompts.size() && inside_.size() < inside_max) {
    // Its place first: who is let in can be taken out again.
    const auto place = inside_.try_emplace(next_).first;
    auto submitted = submit(prepared_.request_of(next_), next_);
    if (!submitted) {
      inside_.erase(place);
      return std::move(submitted).error();
    }
    place->second = *submitted;
    std::vector<Token>().swap(prepared_.prompts[next_].tokens);
    ++next_;
  }
  return {};
}

Entering::Step Entering::step(const Submit& submit, SteadyClock::time_point now) {
  const std::size_t before = next_;
  auto entered = enter(submit, inputs_inside_max);
  if (next_ > before) waits_since_.reset();
  if (entered || !inside_.empty()) return Step::goes_on;
  why_ = std::move(entered).error();
  if (why_->code() == ErrorCode::invalid) return Step::is_over;
  if (!waits_since_) waits_since_ = now;
  return now - *waits_since_ < entering_time_max ? Step::waits : Step::is_over;
}

}  // namespace tutti::serve
