#include "control/cluster/habits.hpp"

#include <algorithm>
#include <utility>

#include "control/cluster/model.hpp"

namespace tutti::cluster {
namespace {

// Enough to tell what a cluster is used for.
constexpr std::size_t mix_shapes_max = 64;
// A new run time counts this much for what a user's jobs usually take, and estimates leave some room.
constexpr double usual_weight = 0.3;
constexpr double usual_margin = 1.5;

}  // namespace

void Habits::changed(const Change& change) {
  const Job& job = change.job;
  if (change.enters(Phase::waiting) && job.attempt == 0) {
    intern(job.spec.shape).seen += 1;
    seen_ += 1;
  }
  if (!change.enters(Phase::ended)) return;
  remaining_.erase(job.id);
  if (job.served > 0) {
    const double devices =
        static_cast<double>(job.spec.shape.ranks) * job.spec.shape.gpu_share / sched::whole_share;
    past_.add(kind_of(job), job.submitted_at, job.served / devices, devices);
  }
  if (job.state != JobState::succeeded || job.spec.user.empty()) return;
  learn_usual(job.spec.user, in_seconds(job.finished_at - job.started_at));
}

std::optional<double> Habits::usual_s_of(const std::string& user) const {
  for (const auto* known : {&usual_s_, &usual_before_s_}) {
    if (const auto found = known->find(user); found != known->end()) return found->second;
  }
  return std::nullopt;
}

void Habits::learn_usual(const std::string& user, double took_s) {
  const double before_s = usual_s_of(user).value_or(took_s);
  if (usual_s_.size() >= usual_users_max / 2 && !usual_s_.contains(user))
    usual_before_s_ = std::exchange(usual_s_, {});
  usual_s_[user] = before_s + usual_weight * (took_s - before_s);
}

Habits::ShapeClass& Habits::intern(const sched::Shape& shape) {
  const auto [known, added] = shapes_.try_emplace(shape);
  if (added) {
    known->second.shape = std::make_shared<const sched::Shape>(shape);
    known->second.number = static_cast<std::uint32_t>(shapes_.size() - 1);
  }
  return known->second;
}

std::uint32_t Habits::kind_of(const Job& job) {
  const KindKey key{job.spec.queue, job.spec.user, intern(job.spec.shape).number};
  return kinds_.try_emplace(key, static_cast<std::uint32_t>(kinds_.size())).first->second;
}

void Habits::fill(const Job& job, sched::JobView& view) {
  const ShapeClass& known = job.too_small.empty() ? intern(job.spec.shape) : intern(shape_of(job));
  view.shape = known.shape;
  view.shape_class = known.number;
  view.kind = kind_of(job);
  describe(job, view);
}

sched::JobView Habits::view_of(const Job& job) const {
  sched::JobView view;
  sched::Shape shape = job.too_small.empty() ? job.spec.shape : shape_of(job);
  const auto known = shapes_.find(shape);
  const bool is_known = known != shapes_.end();
  view.shape = is_known ? known->second.shape : std::make_shared<const sched::Shape>(std::move(shape));
  view.shape_class = is_known ? known->second.number : shape_classes();
  const auto asked = shapes_.find(job.spec.shape);
  const auto kind = asked == shapes_.end()
                        ? kinds_.end()
                        : kinds_.find({job.spec.queue, job.spec.user, asked->second.number});
  view.kind = kind == kinds_.end() ? static_cast<std::uint32_t>(kinds_.size()) : kind->second;
  describe(job, view);
  return view;
}

void Habits::describe(const Job& job, sched::JobView& view) const {
  view.id = job.id;
  view.attempt = job.attempt;
  view.priority = job.spec.priority;
  view.submitted_at = job.submitted_at;
  view.queued_at = job.queued_at;
  view.grace = job.spec.grace;
  view.time_limit = job.spec.time_limit;
  // Told to end at its limit, it may stay as long as it has asked for.
  view.expected =
      job.spec.time_limit > Duration::zero() ? job.spec.time_limit + job.spec.grace : usual(job.spec.user);
  if (const auto real = remaining_.find(job.id); real != remaining_.end()) view.remaining = real->second;
  view.served = job.served;
  view.yields = job.spec.yields;
}

Duration Habits::usual(const std::string& user) const {
  const auto known = usual_s_of(user);
  if (!known) return {};
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*known * usual_margin));
}

std::shared_ptr<const sched::Mix> Habits::mix() {
  // Made anew when half as much again has been seen: it changes slowly.
  if (mix_ && seen_ < seen_at_mix_ * 1.5 + 16) return mix_;
  std::vector<std::pair<sched::Shape, double>> mix;
  for (const auto& [shape, known] : shapes_) {
    if (known.seen > 0) mix.emplace_back(shape, known.seen);
  }
  std::stable_sort(mix.begin(), mix.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (mix.size() > mix_shapes_max) mix.resize(mix_shapes_max);
  mix_ = std::make_shared<const sched::Mix>(sched::make_mix(std::move(mix)));
  seen_at_mix_ = seen_;
  return mix_;
}

// A queue may hold more shapes than are kept: what is in use is not forgotten again and again.
bool Habits::overflows() const {
  return std::max(shapes_.size(), kinds_.size()) > std::max(shapes_max, 2 * in_use_);
}

void Habits::refilled() { in_use_ = std::max(shapes_.size(), kinds_.size()); }

void Habits::forget() {
  ++times_forgotten_;
  shapes_.clear();
  kinds_.clear();
  past_ = {};
}

Result<> Habits::check(const Views& waiting, const Views& running) const {
  for (const Views* views : {&waiting, &running}) {
    for (const auto& [id, view] : *views) {
      const auto shape = shapes_.find(*view.shape);
      if (shape == shapes_.end() || shape->second.number != view.shape_class)
        return failed("the index numbers the shape of job " + id.text() + " wrongly");
    }
  }
  for (const auto& [id, remaining] : remaining_) {
    if (!waiting.contains(id) && !running.contains(id))
      return failed("the index knows how long job " + id.text() + " runs, which has ended");
  }
  return {};
}

}  // namespace tutti::cluster
