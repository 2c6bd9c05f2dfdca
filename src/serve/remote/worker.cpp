#include "serve/remote/worker.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "serve/remote/ending.hpp"
#include "serve/remote/remote.hpp"

extern char** environ;

namespace tutti::serve::remote {
namespace {

// A message waits for a worker that computes no longer than this: one that does not even read hangs.
constexpr timeval send_time_max{.tv_sec = 60, .tv_usec = 0};

// Where no descriptor lies that the process gets: neither is overwritten before it is copied.
Result<files::FileDescriptor> moved_away(int descriptor) {
  constexpr int above = 16;
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, above);
  if (moved < 0) return failed_errno("a descriptor for the worker", errno);
  return files::FileDescriptor(moved);
}

Result<pid_t> spawn(const Worker::Program& program, int socket) {
  auto theirs = moved_away(socket);
  if (!theirs) return std::move(theirs).error();
  files::FileDescriptor listener;
  if (program.listener >= 0) {
    auto moved = moved_away(program.listener);
    if (!moved) return std::move(moved).error();
    listener = std::move(*moved);
  }
  std::vector<char*> words;
  words.reserve(program.command.size() + 1);
  for (const std::string& word : program.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs->get(), worker_descriptor);
  if (listener.valid()) posix_spawn_file_actions_adddup2(&actions, listener.get(), listener_descriptor);
  // A port that the engine listens at would stay taken as long as the worker lives.
  posix_spawn_file_actions_addclosefrom_np(&actions, listener_descriptor + (listener.valid() ? 1 : 0));
  // Ctrl-C is for whoever talks with people: he drains first.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = 0;
  const int failure = posix_spawnp(&process, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0)
    return failed_errno(program.command.front(), failure)
        .remedy("tutti-worker lies beside tutti; `./dev build` makes both");
  return process;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::start(const Program& program) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return failed_errno("a socket to the worker", errno);
  files::FileDescriptor own(ends[0]);
  if (setsockopt(own.get(), SOL_SOCKET, SO_SNDTIMEO, &send_time_max, sizeof send_time_max) != 0)
    return failed_errno("a socket to the worker", errno);
  // Only the worker has its end afterwards, so that its end is noticed.
  const files::FileDescriptor theirs(ends[1]);
  auto process = spawn(program, theirs.get());
  if (!process) return std::move(process).error();
  return std::unique_ptr<Worker>(new Worker(*process, Channel(std::move(own)), program.name));
}

Result<> Worker::send(Word word, std::string_view bytes) {
  if (!channel_) return gone();
  if (auto sent = channel_->send(word, bytes); !sent) return gone();
  return {};
}

Result<std::string> Worker::answer(Word wanted) {
  if (!channel_) return gone();
  auto message = channel_->receive();
  if (!message || !*message) return gone();
  if ((*message)->word == Word::failed) return decode_error((*message)->bytes);
  if ((*message)->word != wanted) return failed(name_ + " has answered something else");
  return std::move((*message)->bytes);
}

Result<Ready> Worker::ready() {
  auto bytes = answer(Word::ready);
  if (!bytes) return std::move(bytes).error();
  return decode_ready(*bytes);
}

void Worker::end() {
  channel_.reset();
  const std::scoped_lock lock(mutex_);
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) continue;
  process_ = 0;
  why_ = how_it_ended(status);
}

void Worker::abandon() {
  const std::scoped_lock lock(mutex_);
  if (process_ > 0) kill(process_, SIGKILL);
}

Error Worker::gone() {
  end();
  return failed(name_ + " has ended: " + why_);
}

}  // namespace tutti::serve::remote
