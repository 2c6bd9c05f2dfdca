// What jobs of this cluster ask for, and how long they run: by user, by kind, and of all of them. From this a
// job becomes what the scheduler sees. A part of the index.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "control/cluster/change.hpp"
#include "control/cluster/views.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

// Beyond it those of jobs that are long gone are forgotten.
constexpr std::size_t shapes_max = 65'536;
// Of so many it is known how long their jobs take; beyond it those are forgotten of whom none has ended for
// longest.
constexpr std::size_t usual_users_max = 65'536;

class Habits {
 public:
  void changed(const Change& change);
  // How long the job really will run: only a simulation can tell it.
  void knows(sched::JobId job, Duration remaining) { remaining_[job] = remaining; }

  // Writes what does not depend on where it runs, nor on the numbers that a snapshot gives to queues and
  // users.
  void fill(const Job& job, sched::JobView& view);
  // The same of a job that is only asked about: a shape or a kind that no job has is not learned, and has the
  // number behind all that are known.
  sched::JobView view_of(const Job& job) const;

  // How long jobs of this user usually take; 0 if none has ended.
  Duration usual(const std::string& user) const;
  const sched::Past& past() const { return past_; }
  std::shared_ptr<const sched::Mix> mix();
  // All classes of shapes are below this.
  std::uint32_t shape_classes() const { return static_cast<std::uint32_t>(shapes_.size()); }

  // Are there more shapes or kinds than are kept? Then all are forgotten, and what was filled is filled anew.
  bool overflows() const;
  void forget();
  // What is known now is in use: there is nothing to forget before there is twice as much.
  void refilled();
  // How often all was forgotten.
  std::uint64_t times_forgotten() const { return times_forgotten_; }

  // Does it know these jobs, which wait or run, by the numbers that it gave them, and no others? What it
  // learned from jobs that have ended is history, and cannot be read from a state.
  Result<> check(const Views& waiting, const Views& running) const;

 private:
  struct ShapeClass {
    std::shared_ptr<const sched::Shape> shape;
    std::uint32_t number = 0;
    double seen = 0;  // how often it was submitted
  };
  struct KindKey {
    std::string queue;
    std::string user;
    std::uint32_t shape_class = 0;
    friend auto operator<=>(const KindKey&, const KindKey&) = default;
  };
  ShapeClass& intern(const sched::Shape& shape);
  std::uint32_t kind_of(const Job& job);
  std::optional<double> usual_s_of(const std::string& user) const;
  void learn_usual(const std::string& user, double took_s);
  // All but its shape and its kind.
  void describe(const Job& job, sched::JobView& view) const;

  std::map<sched::Shape, ShapeClass, sched::ShapeOrder> shapes_;
  std::map<KindKey, std::uint32_t> kinds_;
  sched::Past past_;  // by kind
  // By user. When half as many as may be known are in the first, it becomes the second, and that is
  // forgotten.
  std::map<std::string, double> usual_s_;
  std::map<std::string, double> usual_before_s_;
  std::map<sched::JobId, Duration> remaining_;
  std::size_t in_use_ = 0;  // shapes or kinds after the last refill
  std::uint64_t times_forgotten_ = 0;
  double seen_ = 0;  // submissions of all shapes
  double seen_at_mix_ = 0;
  std::shared_ptr<const sched::Mix> mix_;
};

}  // namespace tutti::cluster
