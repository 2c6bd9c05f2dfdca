// What was committed last, in a small file beside the store: a store whose write-ahead log is gone, or that
// was copied back, opens without a fault and is older than this file. It is written after each commit and
// goes to the disk now and then, so after a power cut it may be behind the store, which is no harm; it is
// never ahead. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace tutti::store {

struct Committed {
  std::uint64_t revision = 0;
  std::string kept;  // the value of the one object that must not be lost with the store

  friend bool operator==(const Committed&, const Committed&) = default;
};

class LastCommit {
 public:
  // Makes the file if there is none.
  static Result<LastCommit> open(const std::string& path);
  LastCommit(LastCommit&& other) noexcept;
  LastCommit& operator=(LastCommit&&) = delete;
  ~LastCommit();

  // Nothing if the file is new or unreadable.
  std::optional<Committed> read() const;
  // A failure is passed over: the commit itself has worked, and an older note does no harm.
  void note(const Committed& committed);

 private:
  explicit LastCommit(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
  int unsynced_ = 0;
};

}  // namespace tutti::store
