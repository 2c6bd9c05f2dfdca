// The prompts of one request on their way into the engine. Of embeddings there may be thousands: so many are
// inside at a time, and the next one follows when one is done, so that others get in between. Where others
// have taken the places meanwhile, it waits for one, and not for ever. Used by the server's loop only.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/clock/clock.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http/loop.hpp"
#include "serve/batch/request.hpp"
#include "serve/server/prepare.hpp"

namespace tutti::serve {

// More than are computed at once, so that no step waits for the loop.
inline constexpr std::size_t inputs_inside_max = 128;
// Where nothing of it is inside and there is no place: how soon it asks again, and for how long.
inline constexpr Duration entering_pause = 20ms;
inline constexpr Duration entering_time_max = 30s;

class Entering {
 public:
  // Whether the engine takes the n-th.
  using Submit = std::function<Result<RequestId>(Request request, std::size_t nth)>;

  explicit Entering(Prepared prepared) : prepared_(std::move(prepared)) {}

  // All, or none and why. What is inside then is told by inside().
  Result<> enter_all(const Submit& submit) { return enter(submit, prepared_.prompts.size()); }

  enum class Step {
    goes_on,  // all are in, or some are whose end leads to the next step
    waits,    // for a place: another step in a moment
    is_over,  // it is not taken, or has waited for too long: why() says for what
  };
  Step step(const Submit& submit, SteadyClock::time_point now);
  const Error& why() const { return *why_; }

  // The n-th is computed: there is room for another one.
  void done(std::size_t nth) { inside_.erase(nth); }
  const std::map<std::size_t, RequestId>& inside() const { return inside_; }

  std::shared_ptr<net::Loop::Handle> again;  // while it waits

 private:
  Result<> enter(const Submit& submit, std::size_t inside_max);

  Prepared prepared_;
  std::size_t next_ = 0;
  std::map<std::size_t, RequestId> inside_;
  std::optional<Error> why_;
  std::optional<SteadyClock::time_point> waits_since_;
};

}  // namespace tutti::serve
