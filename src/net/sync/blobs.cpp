#include "net/sync/blobs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <tuple>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "net/sync/digest.hpp"

namespace tutti::sync {

struct BlobStore::Blob {
  std::string hash;
  Bytes room;
  timespec used{};
};

namespace {

constexpr std::size_t prefix_letters = 2;
constexpr std::size_t copy_buffer_bytes = 64 << 10;
constexpr std::size_t copy_range_bytes_max = std::size_t{1} << 30;
// A file that a put() left behind when its process ended.
constexpr std::string_view fresh_prefix = "new-";
constexpr time_t abandoned_after_seconds = 3600;
// Each waits for the disk: beyond that it is quicker to write all that the file system holds back.
constexpr std::size_t synced_one_by_one_max = 64;

Error no_hash(std::string_view hash) { return invalid(files::shown(hash) + " is not the hash of a blob"); }

Error no_blob(std::string_view hash, int error_number) {
  if (error_number == ENOENT) return failed("blob " + std::string(hash) + " is not in the store");
  return failed_errno("cannot read blob " + std::string(hash), error_number);
}

// For trim(). A blob that cannot be touched can be read all the same.
void mark_used(int file) { static_cast<void>(futimens(file, nullptr)); }

Result<> copy_by_hand(int from, int to, const std::string& path) {
  std::array<std::byte, copy_buffer_bytes> buffer;
  while (true) {
    const auto count = files::read_some(from, buffer, files::shown(path));
    if (!count) return count.error();
    if (*count == 0) return {};
    if (auto written = files::write_all(to, std::span(buffer).first(*count), files::shown(path)); !written)
      return written;
  }
}

// The kernel shares blocks or copies, as the file system can. Where it does neither, the copy goes on by hand
// from the same place; after a whole copy, that finds nothing left.
Result<> copy_content(int from, int to, const std::string& path) {
  while (true) {
    const ssize_t count = copy_file_range(from, nullptr, to, nullptr, copy_range_bytes_max, 0);
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    const bool unsupported = count == 0 || errno == EXDEV || errno == ENOSYS || errno == EOPNOTSUPP ||
                             errno == EINVAL || errno == EPERM;
    if (!unsupported) return failed_errno("cannot write " + files::shown(path), errno);
    return copy_by_hand(from, to, path);
  }
}

// Fills in its name, and removes it if it fails.
Result<> write_fresh(std::string& fresh, std::span<const std::byte> bytes) {
  const files::FileDescriptor file(mkostemp(fresh.data(), O_CLOEXEC));
  if (!file.valid()) return failed_errno("cannot write " + files::shown(fresh), errno);
  auto written = files::write_all(file.get(), bytes, files::shown(fresh));
  if (!written) unlink(fresh.c_str());
  return written;
}

// There may be very many, and somebody who ships one again counts on it from then on.
bool was_used_since(const std::string& path, const timespec& listed) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 &&
         std::tie(status.st_mtim.tv_sec, status.st_mtim.tv_nsec) != std::tie(listed.tv_sec, listed.tv_nsec);
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

std::string BlobStore::path_of(std::string_view hash) const {
  TUTTI_CHECK(is_hash(hash), "a blob is named by a hash");
  return folder_ + '/' + std::string(hash.substr(0, prefix_letters)) + '/' +
         std::string(hash.substr(prefix_letters));
}

bool BlobStore::has(std::string_view hash) const {
  struct stat status {};
  return is_hash(hash) && lstat(path_of(hash).c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool BlobStore::has(std::string_view hash, Bytes bytes) const {
  struct stat status {};
  return is_hash(hash) && lstat(path_of(hash).c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         Bytes(status.st_size) == bytes;
}

Result<> BlobStore::put(std::string_view hash, std::span<const std::byte> bytes) {
  if (!is_hash(hash)) return no_hash(hash);
  if (hash_bytes(bytes) != hash)
    return invalid("the bytes sent as blob " + std::string(hash) + " are not its");
  // A job may rely on it: it is not replaced by one that a power cut could still take.
  if (has(hash, Bytes(static_cast<std::int64_t>(bytes.size())))) {
    if (const auto there = get(hash); there && *there) return {};
  }
  for (const auto& folder : {folder_, folder_of(path_of(hash))}) {
    if (auto made = files::make_folder(folder, 0700); !made) return made;
  }
  std::string fresh = folder_ + '/' + std::string(fresh_prefix) + "XXXXXX";
  if (auto written = write_fresh(fresh, bytes); !written) return written;
  auto moved = move_into_place(fresh, hash);
  if (!moved) unlink(fresh.c_str());
  return moved;
}

// Whoever finds it there finds it noted as unsynced, too.
Result<> BlobStore::move_into_place(const std::string& fresh, std::string_view hash) {
  const std::string path = path_of(hash);
  const std::lock_guard lock(mutex_);
  if (rename(fresh.c_str(), path.c_str()) != 0)
    return failed_errno("cannot write " + files::shown(path), errno);
  if (!more_unsynced_) unsynced_.insert(std::string(hash));
  if (unsynced_.size() <= synced_one_by_one_max) return {};
  unsynced_.clear();
  more_unsynced_ = true;
  return {};
}

Result<> BlobStore::keep(std::span<const std::string> hashes) {
  const std::lock_guard one_at_a_time(syncing_);
  std::set<std::string> due;
  bool all = false;
  {
    const std::lock_guard lock(mutex_);
    all = std::exchange(more_unsynced_, false);
    for (const auto& hash : hashes) {
      if (unsynced_.erase(hash) > 0) due.insert(hash);
    }
  }
  if (!all) return sync_each(due);
  auto synced = sync_all();
  const std::lock_guard lock(mutex_);
  if (!synced) more_unsynced_ = true;
  return synced;
}

Result<> BlobStore::sync_all() {
  const files::FileDescriptor folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid() && syncfs(folder.get()) == 0) return {};
  return failed_errno("cannot write " + files::shown(folder_) + " to the disk", errno);
}

// What could not be written is dropped: the system holds it for written from then on, and it is sent again.
Result<> BlobStore::sync_each(const std::set<std::string>& hashes) {
  Result<> done;
  std::set<std::string> folders;
  for (const auto& hash : hashes) {
    const std::string path = path_of(hash);
    const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    auto synced = file.valid() ? files::sync_file(file.get(), files::shown(path)) : no_blob(hash, errno);
    folders.insert(folder_of(path));
    if (synced) continue;
    unlink(path.c_str());
    done = std::move(synced);
  }
  if (!hashes.empty()) folders.insert({folder_, folder_of(folder_)});
  for (const auto& folder : folders) {
    auto synced = files::sync_folder(folder);
    if (synced) continue;
    for (const auto& hash : hashes) unlink(path_of(hash).c_str());
    done = std::move(synced);
  }
  return done;
}

Result<> BlobStore::verify(std::string_view hash, std::string_view found) const {
  if (found == hash) return {};
  unlink(path_of(hash).c_str());
  return damaged("blob " + std::string(hash) + " was damaged and is dropped").remedy("send it again");
}

Result<std::optional<std::string>> BlobStore::get(std::string_view hash) const {
  if (!is_hash(hash)) return no_hash(hash);
  const std::string path = path_of(hash);
  const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::optional<std::string>();
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return no_blob(hash, errno);
  if (!S_ISREG(status.st_mode)) return failed("cannot read blob " + std::string(hash) + ": it is no file");
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  if (auto read =
          files::read_at(file.get(), 0, std::as_writable_bytes(std::span(content)), files::shown(path));
      !read) {
    return std::move(read).error();
  }
  if (auto verified = verify(hash, hash_bytes(as_bytes(content))); !verified) {
    return std::move(verified).error();
  }
  mark_used(file.get());
  return std::optional(std::move(content));
}

Error cannot_make(const std::string& what, const std::string& path, int error_number) {
  const bool wrong = error_number == ENAMETOOLONG || error_number == ELOOP || error_number == EINVAL;
  const Error error = failed_errno("cannot make " + what + " " + files::shown(path), error_number);
  return wrong ? invalid(error.message()) : error;
}

Result<Bytes> BlobStore::copy(std::span<const std::string> hashes, const std::string& path, bool executable,
                              const StillWanted& still_wanted) const {
  for (const auto& hash : hashes) {
    if (!is_hash(hash)) return no_hash(hash);
    if (!has(hash)) return no_blob(hash, ENOENT);
  }
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const files::FileDescriptor to(open(path.c_str(), flags, executable ? 0755 : 0644));
  if (!to.valid()) return cannot_make("the file", path, errno);
  for (const auto& hash : hashes) {
    if (still_wanted && !still_wanted()) return failed("nobody wants it any more");
    if (auto appended = append(hash, to.get(), path); !appended) return std::move(appended).error();
  }
  const off_t bytes = lseek(to.get(), 0, SEEK_CUR);
  if (bytes < 0) return failed_errno("cannot read " + files::shown(path), errno);
  return Bytes(bytes);
}

// What is verified is what was written. The descriptor stands at the end of the file, before and after.
Result<> BlobStore::append(std::string_view hash, int to, const std::string& path) const {
  const files::FileDescriptor from(open(path_of(hash).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!from.valid()) return no_blob(hash, errno);
  const off_t begin = lseek(to, 0, SEEK_CUR);
  if (begin < 0) return failed_errno("cannot read " + files::shown(path), errno);
  if (auto copied = copy_content(from.get(), to, path); !copied) return copied;
  if (lseek(to, begin, SEEK_SET) != begin) return failed_errno("cannot read " + files::shown(path), errno);
  const auto found = hash_descriptor(to, path);
  if (!found) return found.error();
  if (auto verified = verify(hash, *found); !verified) return verified;
  mark_used(from.get());
  return {};
}

void BlobStore::remove_abandoned(const std::string& path) const {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return;
  if (status.st_mtim.tv_sec + abandoned_after_seconds < time(nullptr)) unlink(path.c_str());
}

Result<std::vector<BlobStore::Blob>> BlobStore::list() const {
  std::vector<Blob> blobs;
  const auto prefixes = files::list_folder(folder_);
  if (!prefixes) return prefixes.error();
  if (!*prefixes) return blobs;
  for (const auto& prefix : **prefixes) {
    if (prefix.starts_with(fresh_prefix)) remove_abandoned(folder_ + '/' + prefix);
    if (prefix.size() != prefix_letters) continue;
    const auto names = files::list_folder(folder_ + '/' + prefix);
    if (!names) return names.error();
    if (!*names) continue;
    for (const auto& name : **names) {
      struct stat status {};
      // One that is gone by now was removed by another process.
      if (!is_hash(prefix + name) || lstat(path_of(prefix + name).c_str(), &status) != 0) continue;
      blobs.push_back(
          {.hash = prefix + name, .room = room_of(Bytes(status.st_size)), .used = status.st_mtim});
    }
  }
  return blobs;
}

bool BlobStore::use(std::string_view hash) const {
  return is_hash(hash) && utimensat(AT_FDCWD, path_of(hash).c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<> BlobStore::trim(Bytes bytes_max) {
  auto left = trim(TrimOptions{.bytes_max = bytes_max});
  if (!left) return std::move(left).error();
  return {};
}

Result<BlobStore::Held> BlobStore::trim(const TrimOptions& options) {
  auto blobs = list();
  if (!blobs) return std::move(blobs).error();
  std::ranges::sort(*blobs, {}, [](const Blob& blob) {
    return std::tuple(blob.used.tv_sec, blob.used.tv_nsec, std::string_view(blob.hash));
  });
  Held held{.bytes = Bytes(0), .count = blobs->size()};
  for (const auto& blob : *blobs) held.bytes += blob.room;
  const auto now =
      options.now == Instant()
          ? static_cast<std::int64_t>(time(nullptr))
          : std::chrono::duration_cast<std::chrono::seconds>(options.now.time_since_epoch()).count();
  for (const auto& blob : *blobs) {
    const Duration age = std::chrono::seconds(now - blob.used.tv_sec);
    const bool too_old = options.age_max > Duration::zero() && age > options.age_max;
    if (!too_old && held.bytes <= options.bytes_max && held.count <= options.count_max) break;
    // All that follow were used later.
    if (options.age_min > Duration::zero() && age < options.age_min) break;
    if (options.keep != nullptr && options.keep->contains(blob.hash)) continue;
    const std::string path = path_of(blob.hash);
    if (was_used_since(path, blob.used)) continue;
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
      return failed_errno("cannot remove " + files::shown(path), errno);
    held.bytes -= blob.room;
    --held.count;
  }
  return held;
}

}  // namespace tutti::sync
