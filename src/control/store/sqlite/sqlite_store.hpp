// The store in one SQLite file. A commit returns when the disk has it, which takes milliseconds and may take
// seconds on a bad disk: the caller's loop waits. One thread at a time.
//
// Room is put aside, so that what frees room can be committed on a full disk (reserve.hpp).
//
// Beside PATH lie PATH-wal and PATH-shm, which belong to it, PATH.last, which tells what was committed last,
// and PATH.lock, which tells who uses it. A second controller is kept out by a lock on the file itself.
// People may read the file with `sqlite3` while a controller uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "control/store/store.hpp"

namespace tutti::store {

struct SqliteOptions {
  std::string kept_key;  // an object whose value is in PATH.last as well; "" for none
  bool accept_older =
      false;  // go on with a store that has lost commits; the object of `kept_key` is not lost
};

class SqliteStore final : public Store {
 public:
  // Creates the file if there is none. Refuses a file that is in use, damaged, of something else, of a newer
  // tutti, or older than what was committed last.
  static Result<std::unique_ptr<SqliteStore>> open(const std::string& path, SqliteOptions options = {});
  ~SqliteStore() override;

  Result<std::uint64_t> read(const Each& each) override;
  // A commit that failed for whatever reason is `unknown`; later ones work again as soon as the disk does.
  CommitResult commit(std::uint64_t revision, std::span<const Write> writes) override;
  CommitResult commit_from_reserve(std::uint64_t revision, std::span<const Write> writes) override;
  // Gives free pages back, a few at a time, once they are a good part of the file, and what the write-ahead
  // log held once. Fails if the file was moved away or replaced: then no commit works either.
  Result<> tidy() override;

 private:
  struct Parts;
  CommitResult write(std::uint64_t revision, std::span<const Write> writes);
  explicit SqliteStore(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::store
