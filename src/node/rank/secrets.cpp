#include "node/rank/secrets.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "node/rank/private_mounts.hpp"

namespace tutti::rank {
namespace {

constexpr const char* shared_memory = "/dev/shm";
constexpr std::string_view folder_prefix = "tutti-secrets-";
constexpr std::string_view random_letters = "XXXXXX";
constexpr const char* note_name = "secrets_at";
constexpr std::size_t note_bytes_max = 256;
constexpr mode_t file_mode = 0400;
constexpr std::size_t number_bytes = sizeof(std::uint64_t);
constexpr std::size_t packed_bytes_max = rank_secrets_bytes_max +
                                         rank_secrets_max * (rank_secret_name_bytes_max + 2 * number_bytes) +
                                         number_bytes;

// It becomes the name of a file.
bool is_name(std::string_view name) {
  const auto is_plain = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9');
  };
  return !name.empty() && name.size() <= rank_secret_name_bytes_max && is_plain(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char letter) {
           return is_plain(letter) || letter == '_' || letter == '.' || letter == '-';
         });
}

Result<> check(const std::vector<SecretFile>& files) {
  std::set<std::string_view> names;
  std::size_t bytes = 0;
  for (const SecretFile& file : files) {
    bytes += file.value.size();
    if (!is_name(file.name) || !names.insert(file.name).second)
      return failed("a secret has a name that is none");
  }
  if (files.size() > rank_secrets_max || bytes > rank_secrets_bytes_max)
    return failed("the secrets of a rank are too many, or too large");
  return {};
}

void add_number(std::string& to, std::size_t number) {
  const auto value = static_cast<std::uint64_t>(number);
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof bytes);
}

void add_text(std::string& to, const std::string& text) {
  add_number(to, text.size());
  to += text;
}

std::optional<std::string_view> take(std::string_view& from, std::uint64_t bytes) {
  if (bytes > from.size()) return std::nullopt;
  const std::string_view taken = from.substr(0, bytes);
  from.remove_prefix(bytes);
  return taken;
}

std::optional<std::uint64_t> take_number(std::string_view& from) {
  std::uint64_t number = 0;
  const auto bytes = take(from, sizeof number);
  if (!bytes) return std::nullopt;
  std::memcpy(&number, bytes->data(), sizeof number);
  return number;
}

std::optional<std::string> take_text(std::string_view& from) {
  const auto bytes = take_number(from);
  const auto text = bytes ? take(from, *bytes) : std::nullopt;
  return text ? std::optional(std::string(*text)) : std::nullopt;
}

// What this user makes there keeps its name: nobody else may move it and lay something in its place.
bool keeps_names(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0 || (status.st_uid != 0 && status.st_uid != geteuid())) return false;
  return (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (status.st_mode & S_ISVTX) != 0;
}

// "" and errno if none can be made there.
std::string make_random_folder(const std::string& where) {
  std::string path = where + "/" + std::string(folder_prefix) + std::string(random_letters);
  return mkdtemp(path.data()) == nullptr ? "" : path;
}

// No link, and nobody else's.
files::FileDescriptor open_own_folder(const std::string& path) {
  files::FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!folder.valid() || fstat(folder.get(), &status) != 0) return {};
  if (status.st_uid == geteuid()) return folder;
  errno = EPERM;
  return {};
}

bool mount_memory(const std::string& folder, std::size_t bytes, std::size_t inodes) {
  const std::string options =
      "mode=0700,size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(inodes);
  constexpr unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  // Kernels before 6.4 do not know that what is in memory is not to be swapped to a disk.
  return mount("tutti-secrets", folder.c_str(), "tmpfs", flags, (options + ",noswap").c_str()) == 0 ||
         mount("tutti-secrets", folder.c_str(), "tmpfs", flags, options.c_str()) == 0;
}

// 0, or why the folder was not left with that owner and mode.
int hand_over(int folder, uid_t owner, gid_t group, mode_t mode) {
  return fchown(folder, owner, group) == 0 && fchmod(folder, mode) == 0 ? 0 : errno;
}

// It is the name of such a folder, and nothing below it or elsewhere.
bool is_secrets_folder(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || !path.substr(slash + 1).starts_with(folder_prefix)) return false;
  const std::string_view where = path.substr(0, slash);
  return where == shared_memory ||
         (where.starts_with("/run/user/") &&
          where.find_first_not_of("0123456789", std::strlen("/run/user/")) == std::string_view::npos);
}

}  // namespace

void forget(std::vector<SecretFile>& files) {
  for (SecretFile& file : files) explicit_bzero(file.value.data(), file.value.size());
  files.clear();
}

Result<files::FileDescriptor> pack_secrets(const std::vector<SecretFile>& files) {
  if (auto sound = check(files); !sound) return std::move(sound).error();
  std::string packed;
  // Made as large as it gets, so that no copy of it stays behind.
  packed.reserve(packed_bytes_max);
  add_number(packed, files.size());
  for (const SecretFile& file : files) {
    add_text(packed, file.name);
    add_text(packed, file.value);
  }
  files::FileDescriptor memory(memfd_create("tutti-secrets", MFD_CLOEXEC));
  const int why = errno;
  Result<> written = failed_errno("cannot hold secrets in memory", why);
  if (memory.valid()) written = files::write_all(memory.get(), as_bytes(packed), "secrets");
  explicit_bzero(packed.data(), packed.size());
  if (!written) return std::move(written).error();
  return memory;
}

Result<std::vector<SecretFile>> unpack_secrets(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0 || status.st_size < 0 ||
      static_cast<std::uint64_t>(status.st_size) > packed_bytes_max)
    return failed("its secrets have not come");
  std::string packed(static_cast<std::size_t>(status.st_size), '\0');
  if (auto read = files::read_at(file, 0, std::as_writable_bytes(std::span(packed)), "secrets"); !read)
    return std::move(read).error();
  std::string_view rest = packed;
  std::vector<SecretFile> files;
  const auto count = take_number(rest);
  bool sound = count && *count <= rank_secrets_max;
  for (std::uint64_t at = 0; sound && at < *count; ++at) {
    auto name = take_text(rest);
    auto value = name ? take_text(rest) : std::nullopt;
    sound = value.has_value();
    if (sound) files.push_back({*std::move(name), *std::move(value)});
  }
  sound = sound && rest.empty() && check(files);
  explicit_bzero(packed.data(), packed.size());
  if (sound) return files;
  forget(files);
  return failed("its secrets have come damaged");
}

// On the way into a file system in memory nothing but want of memory fails.
int write_secrets(const files::FileDescriptor& folder, const std::vector<SecretFile>& files,
                  const Account* account) {
  for (const SecretFile& secret : files) {
    const files::FileDescriptor file(openat(folder.get(), secret.name.c_str(),
                                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, file_mode));
    if (!file.valid()) return errno;
    if (!files::write_all(file.get(), as_bytes(secret.value), secret.name)) return errno != 0 ? errno : EIO;
    if (account != nullptr && fchown(file.get(), account->uid, account->gid) != 0) return errno;
    if (fchmod(file.get(), file_mode) != 0) return errno;
  }
  return 0;
}

int mount_secrets(const std::vector<SecretFile>& files, const Account& account, std::string& folder) {
  // Both are the attempt's own here; the mount covers what lies there, and nothing is written beside it.
  const bool has_shared_memory = is_in_memory(shared_memory);
  folder = make_random_folder(has_shared_memory ? shared_memory : "/tmp");
  if (folder.empty()) return errno;
  const auto page = static_cast<std::size_t>(std::max(sysconf(_SC_PAGESIZE), 4096L));
  const std::size_t bytes = rank_secrets_bytes_max + (files.size() + 2) * page;
  if (!mount_memory(folder, bytes, files.size() + 8)) return errno;
  const files::FileDescriptor mounted = open_own_folder(folder);
  if (!mounted.valid()) return errno;
  if (const int why = write_secrets(mounted, files, &account); why != 0) return why;
  if (const int why = hand_over(mounted.get(), account.uid, account.gid, 0500); why != 0) return why;
  // The mount, which is this process's, and not what lies below it: kernels of 6.4 and later refuse that
  // where it is not to be swapped.
  constexpr unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  return mount(nullptr, folder.c_str(), nullptr, flags, nullptr) == 0 ? 0 : errno;
}

Result<std::string> make_secrets_folder(const std::string& rank_folder, const std::vector<SecretFile>& files,
                                        const Account* account) {
  std::vector<std::string> places{shared_memory};
  // That of an account is in its own hands.
  if (account == nullptr) places.push_back("/run/user/" + std::to_string(geteuid()));
  std::string folder;
  int why = ENOENT;
  for (const std::string& where : places) {
    if (!is_in_memory(where.c_str()) || !keeps_names(where.c_str())) continue;
    folder = make_random_folder(where);
    if (!folder.empty()) break;
    why = errno;
  }
  if (folder.empty())
    return failed_errno("there is no folder in memory for its secrets, which go to no disk", why)
        .remedy("mount a tmpfs at /dev/shm on this node, closed as /tmp is (mode 1777)");
  auto noted = files::replace_file(rank_folder + "/" + note_name, folder);
  if (!noted) {
    rmdir(folder.c_str());
    return std::move(noted).error();
  }
  const files::FileDescriptor made = open_own_folder(folder);
  why = made.valid() ? write_secrets(made, files, account) : errno;
  // It stays this user's: whom it is for passes through it, and can lay nothing in it.
  if (why == 0 && account != nullptr) why = hand_over(made.get(), geteuid(), account->gid, 0710);
  if (why == 0) return folder;
  remove_secrets_folder(rank_folder);
  return failed_errno("cannot write its secrets", why);
}

void remove_secrets_folder(const std::string& rank_folder) {
  const std::string note = rank_folder + "/" + note_name;
  const auto text = files::read_plain_file(note, note_bytes_max);
  if (!text || !*text) return;
  const std::string path(trim(**text));
  // Nobody else has one of this user's in hand, nor lays anything in its place.
  if (is_secrets_folder(path) && open_own_folder(path).valid() && !files::remove_folder(path)) return;
  unlink(note.c_str());
}

}  // namespace tutti::rank
