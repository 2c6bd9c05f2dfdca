// The copy of a rank's log in the file that its job has named (`--output`). That file may be on a disk that
// does not answer, and whoever writes to such a one can, at the worst, not even be killed: so a process of
// its own writes it, and the rank's end waits for that one for a while only. Used by the shim,
// single-threaded.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/time.hpp"
#include "node/rank/account.hpp"

namespace tutti::rank {

// A disk that takes nothing for so long does not answer, and the copy ends there.
constexpr Duration copy_patience = 10s;
// The same once somebody has asked for the end of the rank: less than an agent waits for its shim.
constexpr Duration copy_patience_asked = 2s;

class OutputCopy {
 public:
  using Clock = std::chrono::steady_clock;

  // Of no file, until it is started.
  OutputCopy() = default;
  OutputCopy(const OutputCopy&) = delete;
  OutputCopy& operator=(const OutputCopy&) = delete;
  // What the writer has not written by now it does not write.
  ~OutputCopy();

  // Starts the writer, and waits a moment for it to open the file: as that account, if there is one, because
  // all of the path may be in its hands, and then it is none that the account's ranks are kept from. An
  // account of which so many have been left behind, in disks that do not answer, gets none. The writer has a
  // copy of the memory of this process: nothing that only the rank may have is in it.
  void start(const std::string& path, const Account* account = nullptr);
  // The writer takes the bytes, sooner or later; without one nothing happens.
  void add(std::string_view bytes);
  // It has not taken all of them yet: whoever has more waits.
  bool is_full() const { return !waiting_.empty(); }
  // Passes on what waits, and hears what the writer says: after a poll of the two descriptors, and after the
  // deadline, which ends the copy.
  void go_on();
  int input() const { return input_.get(); }  // has room for what waits when it is writable
  int words() const { return words_.get(); }  // readable when the writer has said something, or has gone
  Clock::time_point deadline() const;

  // Nothing more comes: the writer ends when it has written all.
  void close() { input_.reset(); }
  bool is_being_written() const { return words_.valid(); }
  // Its end is waited for no longer.
  void leave();

  // Why the file does not have all of it; "" if it has.
  const std::string& cut() const { return cut_; }
  // The same as a line for the log, once.
  std::string take_note() { return std::exchange(note_, {}); }

  // A child of this process that waiting for any child does not count; -1 for none.
  pid_t writer() const { return writer_; }

 private:
  void end(const std::string& why);
  void cannot_write(const std::string& why);
  void hear();
  void reap();

  std::string path_;
  pid_t writer_ = -1;
  files::FileDescriptor input_;
  files::FileDescriptor words_;
  std::string waiting_;
  Clock::time_point taken_at_;  // when the writer last took something
  bool done_ = false;           // it has written all
  std::string cut_;
  std::string note_;
};

}  // namespace tutti::rank
