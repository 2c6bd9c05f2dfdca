// How many bytes all jobs hold, counted as they come, end and go, so that a submit is refused before the
// controller's memory or its store is full. What the elements of an array share counts once. Derived. A
// value: owned by the state's loop.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

struct Job;
struct JobSpec;

constexpr std::size_t unfinished_bytes_max = std::size_t{512} << 20;
constexpr std::size_t unfinished_bytes_of_user_max = std::size_t{128} << 20;
// Finished ones go sooner than their age says when they hold more.
constexpr std::size_t kept_bytes_max = std::size_t{256} << 20;
// Jobs that end faster than they may be forgotten: nothing more is taken until some are.
constexpr std::size_t all_bytes_max = std::size_t{1} << 30;

// What one job has of its own, and what it shares with the other elements of its array.
std::size_t own_bytes_of(const JobSpec& spec);
std::size_t shared_bytes_of(const JobSpec& spec);

class JobBytes {
 public:
  // It is there, and has not ended.
  void comes(const Job& job);
  void ends(const Job& job);
  // It has ended before, and is not kept any longer.
  void goes(const Job& job);

  std::size_t unfinished() const { return unfinished_; }
  std::size_t all() const { return all_; }
  std::size_t finished() const { return all_ - unfinished_; }
  std::size_t of_user(const std::string& user) const;

  // May so many jobs like this one come?
  Result<> admit(const JobSpec& spec, std::size_t jobs) const;

  friend bool operator==(const JobBytes&, const JobBytes&) = default;

 private:
  struct Array {
    std::size_t shared_bytes = 0;
    std::int32_t unfinished = 0;  // elements
    std::int32_t all = 0;

    friend bool operator==(const Array&, const Array&) = default;
  };

  void add(const std::string& user, std::size_t bytes);
  void remove(const std::string& user, std::size_t bytes);

  std::map<sched::JobId, Array> arrays_;
  std::map<std::string, std::size_t> users_;
  std::size_t unfinished_ = 0;
  std::size_t all_ = 0;
};

}  // namespace tutti::cluster
