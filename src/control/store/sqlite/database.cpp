#include "control/store/sqlite/database.hpp"

#include <cstring>
#include <utility>

#include "base/check.hpp"

namespace tutti::store {
namespace {

std::string errno_text(int error_number) {
  char buffer[256];
  return strerror_r(error_number, buffer, sizeof buffer);
}

std::string why_code(sqlite3* database, int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return "the disk is full";
    case SQLITE_IOERR: {
      const int error_number = sqlite3_system_errno(database);
      return "the disk failed" + (error_number == 0 ? "" : ": " + errno_text(error_number));
    }
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return "the file cannot be written";
    case SQLITE_CANTOPEN:
      return "the file or one beside it cannot be opened";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another program holds the file";
    case SQLITE_CORRUPT:
      return "the file is damaged";
    case SQLITE_NOTADB:
      return "the file is not a store of tutti, or its beginning is damaged";
    default:
      return sqlite3_errmsg(database);
  }
}

Error error_of(sqlite3* database, int code) {
  Error error = failed(why_code(database, code));
  const int kind = code & 0xff;
  if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB) return std::move(error).remedy(damaged_remedy);
  return error;
}

}  // namespace

Error database_error(sqlite3* database) { return error_of(database, sqlite3_extended_errcode(database)); }

Result<Database> open_database(const std::string& path) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  Database database(handle);
  if (code != SQLITE_OK) return error_of(handle, code);
  sqlite3_busy_timeout(handle, busy_ms_max);
  return database;
}

Result<> execute(sqlite3* database, const char* sql) {
  if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return database_error(database);
  return {};
}

Statement::Statement(sqlite3* database, std::string_view sql) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(database, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) prepare_error_ = error_of(database, code);
  statement_.reset(statement);
}

void Statement::note(int bind_code) {
  if (bind_code != SQLITE_OK && !bind_error_) bind_error_ = error_of(database_, bind_code);
}

Statement& Statement::bind_text(int index, std::string_view text) {
  note(sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind_blob(int index, std::string_view bytes) {
  // SQLite takes a null pointer for NULL, and an empty view may hold one.
  const char* data = bytes.empty() ? "" : bytes.data();
  note(sqlite3_bind_blob64(statement_.get(), index, data, bytes.size(), SQLITE_STATIC));
  return *this;
}

Statement& Statement::bind_number(int index, std::int64_t number) {
  note(sqlite3_bind_int64(statement_.get(), index, number));
  return *this;
}

Result<bool> Statement::step() {
  if (prepare_error_) return *prepare_error_;
  if (bind_error_) return *bind_error_;
  switch (sqlite3_step(statement_.get())) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return database_error(database_);
  }
}

Result<> Statement::run() {
  auto stepped = step();
  reset();
  if (!stepped) return std::move(stepped).error();
  TUTTI_CHECK(!*stepped, "a statement that answers nothing has answered");
  return {};
}

void Statement::reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  bind_error_.reset();
}

std::int64_t Statement::number(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return size == 0 ? std::string()
                   : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

}  // namespace tutti::store
