// SQLite's handles with an owner, and its result codes in words. Internal to this module. One thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <sqlite3.h>

#include "base/result.hpp"

namespace tutti::store {

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

// Without the file PATH.last the next store would begin to count jobs anew; moving the one file is safe.
constexpr std::string_view damaged_remedy =
    "restore it from a backup, or move it away with its -wal and -shm to begin with an empty store; either "
    "way start with --accept-older-store, and no id of a job is used again";

// How long a person with `sqlite3` may hold the file before a commit gives up.
constexpr int busy_ms_max = 2000;

// Opens an existing file for writing.
Result<Database> open_database(const std::string& path);

// Why the last call on this connection failed, for people; damage and foreign files come with a remedy.
Error database_error(sqlite3* database);

// Runs statements that answer nothing.
Result<> execute(sqlite3* database, const char* sql);

// A prepared statement. What goes wrong with preparing or binding is reported by the step that follows.
class Statement {
 public:
  Statement(sqlite3* database, std::string_view sql);

  // The views must live until reset().
  Statement& bind_text(int index, std::string_view text);
  Statement& bind_blob(int index, std::string_view bytes);
  Statement& bind_number(int index, std::int64_t number);

  // One row further: true if there is one, false at the end.
  Result<bool> step();
  // Steps through a statement that answers nothing, and resets it.
  Result<> run();
  // Ends the use, also after a failed step, and forgets the bindings.
  void reset();

  std::int64_t number(int column) const;
  std::string bytes(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };

  void note(int bind_code);

  sqlite3* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::optional<Error> prepare_error_;
  std::optional<Error> bind_error_;
};

}  // namespace tutti::store
