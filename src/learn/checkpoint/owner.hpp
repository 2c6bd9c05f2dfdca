// Who trains in a run's folder: one at a time. The file `owner` in it names who, and its time of change is
// the owner's heartbeat; it is made where there is none and renamed to be taken away, which shared file
// systems do for one of several at most. Functions of files, and a value: who waits, beats and judges is
// train/ownership.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "learn/checkpoint/fence.hpp"

namespace tutti::checkpoint {

struct Owner {
  Fence fence;
  std::string node;
  std::int64_t pid = 0;
  std::int64_t since_s = 0;  // of the Unix epoch
  std::string token;         // unlike that of any other owner

  // "job 12 (attempt 0, on node n1)", "process 77 on node n1".
  std::string text() const;
  // "2026-03-01 12:00:00 UTC"
  std::string since_text() const;

  std::string json() const;
  static Result<Owner> parse(std::string_view text);
};

struct SeenOwner {
  Owner owner;
  std::int64_t beat_ns = 0;  // the file's time of change: another one is a heartbeat
};

// As the file system knows it now; nothing if the folder is free.
Result<std::optional<SeenOwner>> owner_of(const std::string& run);

// Makes the file if there is none; nothing if there is one. The descriptor is what `beat` takes.
Result<std::optional<files::FileDescriptor>> become_owner(const std::string& run, const Owner& owner);
// Takes the file away if it is still this owner's; false if it is not.
Result<bool> remove_owner(const std::string& run, const Owner& owner);
// Tells the others that the owner lives.
Result<> beat(const files::FileDescriptor& file);

// For how long an owner was seen without a heartbeat. Two looks vouch for the time between them only as far
// as it is about what lies between looks: who hung in one of them, on a disk that did not answer, has not
// seen whether the owner beat, and the same disk kept it from beating. A value: time is an argument.
class OwnerWatch {
 public:
  explicit OwnerWatch(Duration look_every) : look_every_(look_every) {}
  // Nothing if the owner has beaten since it was first seen. Another owner is watched anew.
  std::optional<Duration> still_for(const SeenOwner& seen, Duration now);

 private:
  Duration look_every_;
  std::optional<SeenOwner> first_;
  Duration last_look_{};
  Duration still_{};
};

}  // namespace tutti::checkpoint
