#include "control/sched/claims.hpp"

#include <algorithm>

namespace tutti::sched {

Claims::Claims(const Snapshot& snapshot, Instant now)
    : snapshot_(snapshot), now_(now), free_(snapshot.room) {}

bool Claims::goes_around(const JobView& job, Instant start) const {
  if (!promised_) return false;
  return job.expected == Duration::zero() || start + job.expected > promised_->first;
}

Claims::Soon& Claims::soon() {
  if (soon_) return *soon_;
  soon_ = Soon{free_, {}, now_};
  for (const JobView* gang : snapshot_.running) {
    if (!gang->ending || !ends_soon(*gang, now_)) continue;
    soon_->room.give(*gang->shape, gang->places);
    soon_->ending.push_back(gang);
    soon_->ended_by = std::max(soon_->ended_by, release_of(*gang, now_));
  }
  return *soon_;
}

Room Claims::soon_for(const JobView& job) {
  const Soon& soon = this->soon();
  return goes_around(job, soon.ended_by) ? unpromised_soon() : soon.room;
}

Room Claims::unpromised_soon() {
  const Soon& soon = this->soon();
  if (!promised_) return soon.room;
  Room room = promised_->others;
  for (const JobView* gang : soon.ending) room.give(*gang->shape, gang->places);
  for (const auto& [id, gang] : stopped_) {
    if (ends_soon(*gang, now_)) room.give(*gang->shape, gang->places);
  }
  return room;
}

void Claims::take(const JobView& job, const Places& places) {
  free_.take(*job.shape, places);
  if (promised_) promised_->others.take(*job.shape, places);
  if (soon_) soon_->room.take(*job.shape, places);
}

void Claims::stop(const JobView& gang) {
  if (ends_soon(gang, now_)) soon().room.give(*gang.shape, gang.places);
  stopped_.emplace(gang.id, &gang);
}

void Claims::promise(const JobView& job, const Promise& promise) {
  if (!promised_) promised_ = Promised{free_, promise.start};
  promised_->others.take(*job.shape, promise.places);
  promised_->first = std::min(promised_->first, promise.start);
}

}  // namespace tutti::sched
