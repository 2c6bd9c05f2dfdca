#include "control/store/sqlite/sqlite_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "control/store/sqlite/database.hpp"
#include "control/store/sqlite/file_lock.hpp"
#include "control/store/sqlite/last_commit.hpp"
#include "control/store/sqlite/reserve.hpp"

namespace tutti::store {
namespace {

// 2: what was asked for is an object of its own. A store of 1 is read, and written as 2 from then on.
constexpr std::int64_t schema_version = 2;

constexpr int checkpoint_pages = 1000;            // the log is copied into the file when it has so many
constexpr std::uint64_t frame_bytes = 4096 + 24;  // of one page in the log
// An ordinary commit is expected to add at least so much: pages are written whole, with those above them.
constexpr std::uint64_t commit_bytes_min = std::uint64_t{256} << 10;

// A log that one large commit made longer than this is made short again.
constexpr std::uint64_t log_bytes_max = std::uint64_t{32} << 20;

constexpr const char* no_room = "the disk is full";

constexpr std::int64_t vacuum_incremental = 2;  // as SQLite numbers it
constexpr std::int64_t free_pages_min = 1024;   // fewer are soon used again
constexpr int vacuum_pages = 256;               // of one tidy()

// SQLite would create the file with the umask's permissions; its companions copy those of the file.
Result<> create_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return failed_errno("the store cannot be opened", errno);
  close(descriptor);
  return {};
}

Result<std::int64_t> ask_number(sqlite3* database, const char* sql) {
  Statement statement(database, sql);
  auto row = statement.step();
  if (!row) return std::move(row).error();
  TUTTI_CHECK(*row, "a question for one number has an answer");
  return statement.number(0);
}

// Free pages can be given back only if the file was made for it; one that was not is written anew, once. It
// is a matter of room alone: where it does not work the store is as good as before.
void allow_shrinking(sqlite3* database) {
  const auto mode = ask_number(database, "PRAGMA auto_vacuum");
  if (!mode || *mode == vacuum_incremental) return;
  (void)execute(database, "PRAGMA auto_vacuum = INCREMENTAL; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);");
}

Result<> create_schema(sqlite3* database) {
  auto created = execute(database,
                         "BEGIN IMMEDIATE;"
                         "CREATE TABLE objects(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
                         "CREATE TABLE meta(id INTEGER PRIMARY KEY CHECK (id = 1), schema INTEGER NOT NULL,"
                         " revision INTEGER NOT NULL);");
  if (!created) return created;
  const std::string row = "INSERT INTO meta VALUES (1, " + std::to_string(schema_version) + ", 0); COMMIT;";
  return execute(database, row.c_str());
}

Result<> check_schema(sqlite3* database) {
  auto ours = ask_number(
      database, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('objects', 'meta')");
  if (!ours) return std::move(ours).error();
  if (*ours != 2)
    return failed("the file is a database of something else").remedy("give the controller a path of its own");
  auto version = ask_number(database, "SELECT coalesce(max(schema), 0) FROM meta");
  if (!version) return std::move(version).error();
  if (*version > schema_version)
    return failed("a newer tutti has written this store (schema " + std::to_string(*version) +
                  ", this one knows " + std::to_string(schema_version) + ")")
        .remedy("start the newer tutti");
  if (*version < 1) return failed("the store has lost its version").remedy("restore it from a backup");
  return {};
}

// Walks the whole file once, so that damage stops the start and not, days later, a commit.
Result<> check_damage(sqlite3* database) {
  Statement check(database, "PRAGMA quick_check(1)");
  auto row = check.step();
  if (!row) return std::move(row).error();
  const std::string answer = check.bytes(0);
  if (answer == "ok") return {};
  return failed("the file is damaged: " + answer).remedy(damaged_remedy);
}

// Where the write-ahead log is impossible, SQLite keeps another mode and reports no error.
Result<> set_durability(sqlite3* database) {
  Statement mode(database, "PRAGMA journal_mode = WAL");
  auto row = mode.step();
  if (!row) return std::move(row).error();
  if (mode.bytes(0) != "wal")
    return failed("the file system does not support the store's write-ahead log")
        .remedy("put the store onto a local disk");
  mode.reset();
  return execute(database, "PRAGMA synchronous = FULL");
}

Error older(std::uint64_t found, std::uint64_t committed) {
  return failed(
             "it is at revision " + std::to_string(found) + ", and revision " + std::to_string(committed) +
             " was committed: its write-ahead log (the file with -wal behind the name) is gone or damaged, "
             "or it is an older copy")
      .remedy(
          "put the file and its -wal back; or start with --accept-older-store, and the jobs that are missing "
          "are forgotten, their ids stay used");
}

// Nothing is changed before it is clear that the file is ours. An empty one is filled only if nothing can be
// put back into its place.
Result<> prepare_file(sqlite3* database, const std::optional<Committed>& lost, bool was_used) {
  auto tables = ask_number(database, "SELECT count(*) FROM sqlite_schema");
  if (!tables) return std::move(tables).error();
  if (*tables > 0) {
    if (auto checked = check_schema(database); !checked) return checked;
  }
  if (*tables == 0 && lost && lost->revision > 0) return older(0, lost->revision);
  if (*tables == 0 && !lost && was_used)
    return failed(
               "there is nothing in it although it was used: its write-ahead log (the file with -wal behind "
               "the name) is gone, and .last does not tell what was committed")
        .remedy(
            "put the -wal back; or start with --accept-older-store, and all jobs are forgotten: ids of jobs "
            "may then be used again");
  // It counts only before there is anything in the file.
  if (*tables == 0) (void)execute(database, "PRAGMA auto_vacuum = INCREMENTAL");
  if (auto set = set_durability(database); !set) return set;
  if (*tables == 0) return create_schema(database);
  if (auto sound = check_damage(database); !sound) return sound;
  allow_shrinking(database);
  const std::string now_ours = "UPDATE meta SET schema = " + std::to_string(schema_version) +
                               " WHERE schema < " + std::to_string(schema_version);
  return execute(database, now_ours.c_str());
}

}  // namespace

// Taken apart from the last to the first: the statements, their connection, the lock.
struct SqliteStore::Parts {
  FileLock lock;
  FileLock file;  // outlives the connection: closing it would release the locks that SQLite has on it
  std::string path;
  Database database;
  LastCommit last;
  SqliteOptions options;
  std::string kept;  // the value of options.kept_key
  Reserve reserve;
  std::uint64_t log_pages = 0;  // in the write-ahead log
  Statement get_revision{database.get(), "SELECT revision FROM meta WHERE id = 1"};
  Statement set_revision{database.get(), "UPDATE meta SET revision = ?1 WHERE id = 1"};
  Statement get_objects{database.get(), "SELECT key, value FROM objects ORDER BY key"};
  Statement put_object{database.get(), "INSERT OR REPLACE INTO objects VALUES (?1, ?2)"};
  Statement remove_object{database.get(), "DELETE FROM objects WHERE key = ?1"};

  Statement get_object{database.get(), "SELECT value FROM objects WHERE key = ?1"};

  Result<std::uint64_t> revision();
  // Compares the store with what was committed last.
  Result<> catch_up();
  Result<> go_on_after(const Committed& lost);
  void committed(std::uint64_t revision, std::span<const Write> writes);
  Result<> write(const Write& write);
  // Both run inside a transaction that the caller has begun.
  Result<std::uint64_t> read_all(const Each& each);
  Result<bool> write_all(std::uint64_t expected, std::span<const Write> writes);
  // Ends a transaction that went wrong; some errors have ended it already.
  void roll_back();
  // After each commit: SQLite would copy the log, too, but would not tell how long it is.
  static int on_commit(void* parts, sqlite3* database, const char* name, int pages);
  bool keeps_reserve(std::span<const Write> writes);
  // Would a commit still be found by the next controller?
  Result<> in_place() const;
  void shorten_log();
};

Result<> SqliteStore::Parts::in_place() const {
  const bool log_in_place = reserve.is_at(path + "-wal");
  if (file.is_at(path) && log_in_place) return {};
  return failed(path + (log_in_place ? "" : "-wal") +
                " was moved away or replaced while this controller uses it")
      .remedy("put it back; or stop this controller, and what is there now is used by the next one");
}

// Nobody waits: while somebody reads the store it stays as it is until the next time.
void SqliteStore::Parts::shorten_log() {
  if (reserve.log_bytes() <= log_bytes_max) return;
  sqlite3_busy_timeout(database.get(), 0);
  if (execute(database.get(), "PRAGMA wal_checkpoint(TRUNCATE)") && reserve.log_bytes() == 0) {
    log_pages = 0;
    reserve.log_was_cut();
  }
  sqlite3_busy_timeout(database.get(), busy_ms_max);
}

int SqliteStore::Parts::on_commit(void* parts, sqlite3* database, const char* name, int pages) {
  auto& log_pages = static_cast<Parts*>(parts)->log_pages;
  log_pages = static_cast<std::uint64_t>(pages);
  int in_log = 0;
  int copied = 0;
  // What cannot be copied now stays in the log, and is tried again after the next commit.
  if (pages >= checkpoint_pages &&
      sqlite3_wal_checkpoint_v2(database, name, SQLITE_CHECKPOINT_PASSIVE, &in_log, &copied) == SQLITE_OK &&
      in_log == copied)
    log_pages = 0;
  return SQLITE_OK;
}

bool SqliteStore::Parts::keeps_reserve(std::span<const Write> writes) {
  std::uint64_t bytes = commit_bytes_min;
  for (const Write& one : writes) bytes += 2 * (one.key.size() + (one.value ? one.value->size() : 0));
  return reserve.keep(log_pages * frame_bytes, bytes);
}

Result<std::uint64_t> SqliteStore::Parts::revision() {
  auto row = get_revision.step();
  if (row && !*row) row = failed("the store has lost its revision").remedy("restore it from a backup");
  const std::int64_t found = row ? get_revision.number(0) : 0;
  get_revision.reset();
  if (!row) return std::move(row).error();
  return static_cast<std::uint64_t>(found);
}

Result<> SqliteStore::Parts::write(const Write& write) {
  if (!write.value) return remove_object.bind_text(1, write.key).run();
  return put_object.bind_text(1, write.key).bind_blob(2, *write.value).run();
}

Result<std::uint64_t> SqliteStore::Parts::read_all(const Each& each) {
  auto found = revision();
  if (!found) return std::move(found).error();
  Result<> taken;
  auto row = get_objects.step();
  for (; row && *row && taken; row = get_objects.step())
    taken = each(get_objects.bytes(0), get_objects.bytes(1));
  get_objects.reset();
  if (!taken) return std::move(taken).error();
  if (!row) return std::move(row).error();
  return found;
}

// False, and nothing written, if somebody else has moved the revision on.
Result<bool> SqliteStore::Parts::write_all(std::uint64_t expected, std::span<const Write> writes) {
  auto found = revision();
  if (!found) return std::move(found).error();
  if (*found != expected) return false;
  for (const Write& one : writes) {
    if (auto written = write(one); !written) return std::move(written).error();
  }
  auto moved = set_revision.bind_number(1, static_cast<std::int64_t>(expected + 1)).run();
  if (!moved) return std::move(moved).error();
  return true;
}

Result<> SqliteStore::Parts::catch_up() {
  auto found = revision();
  if (!found) return std::move(found).error();
  const auto known = last.read();
  if (known && known->revision > *found) {
    if (!options.accept_older) return older(*found, known->revision);
    if (auto gone_on = go_on_after(*known); !gone_on) return gone_on;
    found = known->revision + 1;
  }
  if (!options.kept_key.empty()) {
    auto row = get_object.bind_text(1, options.kept_key).step();
    if (row && *row) kept = get_object.bytes(0);
    get_object.reset();
    if (!row) return std::move(row).error();
  }
  last.note({*found, kept});
  return {};
}

// Revisions go on above those that were lost, so that no older copy passes for a newer one later.
Result<> SqliteStore::Parts::go_on_after(const Committed& lost) {
  if (auto begun = execute(database.get(), "BEGIN IMMEDIATE"); !begun) return begun;
  Result<> done;
  if (!options.kept_key.empty() && !lost.kept.empty()) done = write({options.kept_key, lost.kept});
  if (done) done = set_revision.bind_number(1, static_cast<std::int64_t>(lost.revision + 1)).run();
  if (done) done = execute(database.get(), "COMMIT");
  if (!done) roll_back();
  return done;
}

void SqliteStore::Parts::committed(std::uint64_t revision, std::span<const Write> writes) {
  for (const Write& one : writes) {
    if (one.key == options.kept_key && one.value) kept = *one.value;
  }
  last.note({revision, kept});
}

void SqliteStore::Parts::roll_back() {
  if (sqlite3_get_autocommit(database.get()) == 0) (void)execute(database.get(), "ROLLBACK");
}

SqliteStore::SqliteStore(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
SqliteStore::~SqliteStore() = default;

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::string& path, SqliteOptions options) {
  auto lock = FileLock::take(path + ".lock");
  if (!lock) return std::move(lock).error().within(path);
  std::error_code none;
  const bool was_used = std::filesystem::file_size(path, none) > 0 && !none && !options.accept_older;
  if (auto created = create_file(path); !created) return std::move(created).error().within(path);
  auto file = FileLock::take_file(path);
  if (!file) return std::move(file).error().within(path);
  auto database = open_database(path);
  if (!database) return std::move(database).error().within(path);
  auto last = LastCommit::open(path + ".last");
  if (!last) return std::move(last).error();
  const auto lost = options.accept_older ? std::nullopt : last->read();
  if (auto prepared = prepare_file(database->get(), lost, was_used); !prepared)
    return std::move(prepared).error().within(path);
  auto parts =
      std::unique_ptr<Parts>(new Parts{std::move(*lock), std::move(*file), path, std::move(*database),
                                       std::move(*last), std::move(options), ""});
  sqlite3_wal_hook(parts->database.get(), Parts::on_commit, parts.get());
  if (auto caught_up = parts->catch_up(); !caught_up) return std::move(caught_up).error().within(path);
  if (auto opened = parts->reserve.open(path + "-wal"); !opened)
    return std::move(opened).error().within(path);
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(parts)));
}

Result<std::uint64_t> SqliteStore::read(const Each& each) {
  if (auto begun = execute(parts_->database.get(), "BEGIN"); !begun) return std::move(begun).error();
  auto revision = parts_->read_all(each);
  parts_->roll_back();
  return revision;
}

CommitResult SqliteStore::commit(std::uint64_t revision, std::span<const Write> writes) {
  if (!parts_->keeps_reserve(writes)) return {CommitResult::Status::unknown, 0, no_room};
  return write(revision, writes);
}

CommitResult SqliteStore::commit_from_reserve(std::uint64_t revision, std::span<const Write> writes) {
  const bool room = parts_->keeps_reserve(writes);
  CommitResult done = write(revision, writes);
  if (done.status == CommitResult::Status::done && !room) {
    done.from_reserve = true;
    done.why = no_room;
  }
  return done;
}

Result<> SqliteStore::tidy() {
  if (auto there = parts_->in_place(); !there) return there;
  parts_->shorten_log();
  sqlite3* database = parts_->database.get();
  const auto free_pages = ask_number(database, "PRAGMA freelist_count");
  const auto pages = ask_number(database, "PRAGMA page_count");
  if (!free_pages || !pages || *free_pages < free_pages_min || *free_pages < *pages / 4) return {};
  static const std::string give_back = "PRAGMA incremental_vacuum(" + std::to_string(vacuum_pages) + ")";
  (void)execute(database, give_back.c_str());
  return {};
}

CommitResult SqliteStore::write(std::uint64_t revision, std::span<const Write> writes) {
  const auto unknown = [this](const Error& error) -> CommitResult {
    parts_->roll_back();
    return {CommitResult::Status::unknown, 0, error.message()};
  };
  if (auto there = parts_->in_place(); !there)
    return {CommitResult::Status::unknown, 0, there.error().message() + ": " + there.error().remedy()};
  if (auto begun = execute(parts_->database.get(), "BEGIN IMMEDIATE"); !begun) return unknown(begun.error());
  const auto written = parts_->write_all(revision, writes);
  if (!written) return unknown(written.error());
  if (!*written) {
    parts_->roll_back();
    return {CommitResult::Status::conflict, 0, "somebody else has written to the store"};
  }
  if (auto ended = execute(parts_->database.get(), "COMMIT"); !ended) return unknown(ended.error());
  parts_->committed(revision + 1, writes);
  return {CommitResult::Status::done, revision + 1, ""};
}

}  // namespace tutti::store
