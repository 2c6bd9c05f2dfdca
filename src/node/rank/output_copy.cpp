#include "node/rank/output_copy.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "node/rank/leftovers.hpp"
#include "node/rank/private_mounts.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

// So that what the log says of a file that cannot be opened stands before what the rank prints.
constexpr int open_patience_ms = 2'000;
// Writers of one account on this machine that were left behind: with more of them it gets no copies.
constexpr std::size_t writers_left_max = 64;
constexpr const char* no_answer = "its disk does not answer";
constexpr const char* too_many_left =
    "too many copies of logs of the same account hang in disks that do not answer";
constexpr const char* not_for_copies =
    "on nodes where ranks run as the accounts of their users only files and named pipes on a disk are "
    "written, and none below /tmp, /var/tmp or /dev/shm, which each job has for itself";
// Ranks of one job make the same file at the same time; one of them has.
constexpr int open_tries_max = 3;

// A child without SIGCHLD is waited for by this alone. Its bit is the sign of the word that options are in.
constexpr int uncounted = static_cast<int>(__WCLONE);

// What the writer tells.
struct Word {
  enum class Kind : int { opened, not_opened, refused, cut, done };
  Kind kind = Kind::done;
  int error_number = 0;
};

// ---- the writer's side

void tell(Word::Kind kind, int error_number) {
  const Word word{.kind = kind, .error_number = error_number};
  // Nobody is left to tell if this fails.
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, &word, sizeof word);
}

[[noreturn]] void give_up(Word::Kind kind, int error_number) {
  tell(kind, error_number);
  _exit(1);
}

void write_bytes(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t part = write(file, bytes.data(), bytes.size());
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) give_up(Word::Kind::cut, part < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<std::size_t>(part));
  }
}

std::string held_path(const files::FileDescriptor& file) {
  return "/proc/self/fd/" + std::to_string(file.get());
}

// The writer is in none of what keeps its rank: so what it is for must be nothing that this keeps the rank
// from, devices that it was not given and memory beyond its limit.
void refuse_unless_it_may_be_written(const files::FileDescriptor& file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) give_up(Word::Kind::not_opened, errno);
  std::error_code unknown;
  const std::string path = std::filesystem::read_symlink(held_path(file), unknown).string();
  const bool is_device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) || S_ISSOCK(status.st_mode);
  if (unknown || is_device || is_below_private_place(path) || is_in_memory(held_path(file).c_str()))
    give_up(Word::Kind::refused, EPERM);
}

// What is there is opened once it is known what it is, and what is new is a file.
int open_as_account(const std::string& path) {
  constexpr int flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  for (int tries = 0; tries < open_tries_max; ++tries) {
    const files::FileDescriptor found(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (found.valid()) {
      refuse_unless_it_may_be_written(found);
      return open(held_path(found).c_str(), flags);
    }
    if (errno != ENOENT) return -1;
    const std::filesystem::path place(path);
    const files::FileDescriptor above(open(place.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!above.valid()) return -1;
    refuse_unless_it_may_be_written(above);
    const int made = openat(above.get(), place.filename().c_str(), flags | O_CREAT | O_EXCL, 0644);
    if (made >= 0 || errno != EEXIST) return made;
  }
  errno = ENOENT;  // a link that leads to nothing
  return -1;
}

// Holds nothing that is the shim's, so that it can be left behind: neither its session nor its files.
[[noreturn]] void become_writer(const std::string& path, const Account* account, int input, int words) {
  set_process_name(copy_writer_name);
  setsid();
  dup2(input, STDIN_FILENO);
  dup2(words, STDOUT_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  if (account != nullptr) {
    if (const int why = become(*account); why != 0) give_up(Word::Kind::not_opened, why);
    umask(rank_umask);
  }
  // All ranks of a job may append to one file. Not blocking: a named pipe without a reader is no file.
  const int file =
      account != nullptr
          ? open_as_account(path)
          : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
  if (file < 0) give_up(Word::Kind::not_opened, errno);
  tell(Word::Kind::opened, 0);
  char buffer[65536];
  for (;;) {
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    write_bytes(file, {buffer, static_cast<std::size_t>(count)});
  }
  // Where files are of a network, this is when it is known whether they have been written.
  if (close(file) != 0) give_up(Word::Kind::cut, errno);
  tell(Word::Kind::done, 0);
  _exit(0);
}

// ---- the shim's side

// A child that is not told of by SIGCHLD: the kernel does not count it among those that are waited for when
// one waits for any.
pid_t fork_uncounted() {
  return static_cast<pid_t>(syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr));
}

// That of a rank which has ended waits for its writer, too.
bool is_shim(const std::string& name) { return name == shim_name || name.starts_with(ended_shim_name); }

// Their shims have gone, and even a kill has not ended them. A rank can be called as they are, but it is in
// the cgroup that holds it, and they are not, unless all of this cluster runs in a rank of another one.
// Whoever else is called so counts for himself alone.
std::size_t writers_left_behind(uid_t user) {
  const auto processes = all_processes();
  const std::string own = hold_of(getpid());
  return static_cast<std::size_t>(std::count_if(processes.begin(), processes.end(), [&](pid_t pid) {
    if (process_name(pid) != copy_writer_name || user_of(pid) != user) return false;
    if (const std::string hold = hold_of(pid); !hold.empty() && hold != own) return false;
    const auto process = read_process(pid);
    return process && process->state != 'Z' && !is_shim(process_name(process->parent));
  }));
}

}  // namespace

OutputCopy::~OutputCopy() {
  if (writer_ <= 0) return;
  kill(writer_, SIGKILL);
  reap();
}

void OutputCopy::start(const std::string& path, const Account* account) {
  path_ = path;
  if (writers_left_behind(account != nullptr ? account->uid : geteuid()) >= writers_left_max)
    return cannot_write(too_many_left);
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return cannot_write(std::strerror(errno));
  const files::FileDescriptor input(in[0]);
  input_ = files::FileDescriptor(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return cannot_write(std::strerror(errno));
  words_ = files::FileDescriptor(out[0]);
  const files::FileDescriptor words(out[1]);
  fcntl(input_.get(), F_SETFL, O_NONBLOCK);
  fcntl(words_.get(), F_SETFL, O_NONBLOCK);
  writer_ = fork_uncounted();
  if (writer_ == 0) become_writer(path, account, input.get(), words.get());
  if (writer_ < 0) {
    words_.reset();
    return cannot_write(std::strerror(errno));
  }
  pollfd word{.fd = words_.get(), .events = POLLIN, .revents = 0};
  poll(&word, 1, open_patience_ms);
  hear();
}

void OutputCopy::add(std::string_view bytes) {
  if (!input_.valid()) return;
  if (waiting_.empty()) taken_at_ = Clock::now();
  waiting_ += bytes;
  go_on();
}

OutputCopy::Clock::time_point OutputCopy::deadline() const {
  return is_full() ? taken_at_ + copy_patience : Clock::time_point::max();
}

void OutputCopy::go_on() {
  hear();
  while (input_.valid() && is_full()) {
    const ssize_t part = write(input_.get(), waiting_.data(), waiting_.size());
    if (part < 0 && errno == EINTR) continue;
    if (part < 0 && errno == EAGAIN) break;
    if (part < 0) {
      // It has gone, and has said why before.
      hear();
      return end(std::strerror(EPIPE));
    }
    waiting_.erase(0, static_cast<std::size_t>(part));
    taken_at_ = Clock::now();
  }
  if (is_full() && Clock::now() >= deadline()) end(no_answer);
}

void OutputCopy::hear() {
  if (!words_.valid()) return;
  for (;;) {
    Word word;
    const ssize_t count = read(words_.get(), &word, sizeof word);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    if (count != static_cast<ssize_t>(sizeof word)) break;
    if (word.kind == Word::Kind::not_opened) cannot_write(std::strerror(word.error_number));
    if (word.kind == Word::Kind::refused) cannot_write(not_for_copies);
    if (word.kind == Word::Kind::cut) end(std::strerror(word.error_number));
    if (word.kind == Word::Kind::done) done_ = true;
  }
  words_.reset();
  reap();
  if (!done_) end("who wrote it was killed");
}

void OutputCopy::reap() {
  // It may still be on its way, and hang there: then it is left to whoever comes after this process.
  if (writer_ > 0 && waitpid(writer_, nullptr, WNOHANG | uncounted) == writer_) writer_ = -1;
}

void OutputCopy::leave() {
  end(no_answer);
  if (writer_ > 0) kill(writer_, SIGKILL);
}

// The log has all of it, and says so; if its disk is full, too, the rank's end says it.
void OutputCopy::end(const std::string& why) {
  input_.reset();
  waiting_.clear();
  if (!cut_.empty()) return;
  cut_ = "the copy of its log in " + path_ + " is cut: " + why;
  note_ = "tutti: " + path_ + " ends here: " + why + "; `tutti logs` has the rest\n";
}

void OutputCopy::cannot_write(const std::string& why) {
  input_.reset();
  waiting_.clear();
  cut_ = "cannot write " + path_ + ": " + why;
  note_ = "tutti: " + cut_ + "\n";
}

}  // namespace tutti::rank
