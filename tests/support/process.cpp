#include "support/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/check.hpp"

namespace tutti::support {
namespace {

[[noreturn]] void become(const std::vector<std::string>& words, const RunOptions& options) {
  for (const auto& [name, value] : options.env) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

// Reads both pipes until both ends are closed. False when the time is over.
bool drain(int out, int err, Finished& finished, std::chrono::steady_clock::time_point deadline) {
  std::array<pollfd, 2> ends{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(ends.data(), ends.size(), static_cast<int>(left.count())) <= 0)
      return false;
    for (auto& end : ends) {
      if (end.fd < 0 || end.revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t got = ::read(end.fd, buffer.data(), buffer.size());
      if (got <= 0) {
        end.fd = -1;
      } else {
        (&end == ends.data() ? finished.out : finished.err)
            .append(buffer.data(), static_cast<std::size_t>(got));
      }
    }
  }
  return true;
}

}  // namespace

Finished run(const std::vector<std::string>& words, const RunOptions& options) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  TUTTI_CHECK(::pipe2(out.data(), O_CLOEXEC) == 0 && ::pipe2(err.data(), O_CLOEXEC) == 0);
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  const pid_t child = ::fork();
  TUTTI_CHECK(child >= 0);
  if (child == 0) {
    ::setpgid(0, 0);
    const int to = options.stdout_to.empty()
                       ? out[1]
                       : ::open(options.stdout_to.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    ::dup2(to, STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    become(words, options);
  }
  ::close(out[1]);
  ::close(err[1]);
  Finished finished;
  if (!drain(out[0], err[0], finished, deadline)) {
    finished.timed_out = true;
    ::kill(-child, SIGKILL);
  }
  ::close(out[0]);
  ::close(err[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti_test_XXXXXX").string();
  TUTTI_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tutti::support
