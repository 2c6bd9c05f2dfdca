// The folder ROOT in which the jobs of a cluster have their folders for checkpoints, BASE/CLUSTER, held open.
// Users may have rights to what is above it, or in it, and agents are root: so what is done here is done to
// names below the folder that is held, never to a path, and no link is followed below BASE. Any thread; all
// of it waits for the disk.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::rank {

enum class CheckpointMarks { begun, ended, removed };

class CheckpointRoot {
 public:
  // Nothing if it is not there. Refused (invalid) is one that is somebody else's where this agent is root:
  // neither root's, nor that of whom root is on this disk, nor that of the owner of BASE. One of root's that
  // users may write to is closed to them.
  static Result<std::optional<CheckpointRoot>> open(const std::string& path);
  // The same, and made if it is not there: with a mode that lets users pass to what is theirs and no more.
  static Result<CheckpointRoot> make(const std::string& path);

  // Root is nobody on this disk, so users make their folders themselves: they may write to ROOT, which has
  // the sticky bit.
  bool users_make_theirs() const { return users_make_theirs_; }
  int folder() const { return folder_.get(); }
  // For what takes paths: a name in the folder that is held.
  std::string held(const std::string& name) const;
  // For messages.
  std::string named(const std::string& name) const { return path_ + "/" + name; }
  std::string named(CheckpointMarks marks) const;
  // Whether there is nothing of this name. One that fails or does not know is not missing: it is no other
  // disk.
  bool is_missing(const std::string& name) const;

  // The folder of such marks. Only one that is the agent's own and closed to others is: users may have been
  // first to make it.
  Result<std::optional<files::FileDescriptor>> open_marks(CheckpointMarks marks);
  Result<files::FileDescriptor> make_marks(CheckpointMarks marks);
  // Those of its marks that the agent has set.
  bool is_own(const struct stat& status);
  bool lacks_mark(CheckpointMarks marks, const std::string& job);

 private:
  CheckpointRoot(std::string path, files::FileDescriptor folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  static Result<CheckpointRoot> judged(CheckpointRoot root, const files::FileDescriptor& base, bool is_new);
  Result<> let_users_in();
  uid_t self();

  std::string path_;
  files::FileDescriptor folder_;
  bool users_make_theirs_ = false;
  std::optional<uid_t> self_;  // who this process is on that disk, once it was asked for
};

// That users other than the owner of BASE could put another folder in its place, for people; "" if they
// cannot.
std::string checkpoints_in_other_hands(const std::string& base);

}  // namespace tutti::rank
