#include "support/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.hpp"
#include "base/text.hpp"

namespace tutti::support {
namespace {

[[noreturn]] void become(const std::vector<std::string>& words,
                         const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
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

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

const std::string tutti_program = TUTTI_BUILD_DIR "/bin/tutti";

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
    become(words, options.env);
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
  finished.exit_code = exit_code_of(status);
  return finished;
}

Process::Process(const std::vector<std::string>& words, const std::string& output,
                 const std::map<std::string, std::string>& env) {
  pid_ = ::fork();
  TUTTI_CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  const auto append_to = [](const std::string& path) {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  };
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(append_to(output), STDOUT_FILENO);
  ::dup2(append_to(output + ".err"), STDERR_FILENO);
  become(words, env);
}

Process::~Process() {
  signal(SIGKILL);
  wait();
}

void Process::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

int Process::wait() {
  if (ended_) return exit_code_;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  exit_code_ = exit_code_of(status);
  return exit_code_;
}

bool eventually(const std::function<bool()>& condition, Duration patience) {
  const auto give_up_at = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up_at) return false;
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

std::vector<pid_t> processes_naming(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || pid == ::getpid()) continue;
    const bool names = read_text("/proc/" + name + "/cmdline").find(text) != std::string::npos ||
                       read_text("/proc/" + name + "/environ").find(text) != std::string::npos;
    if (names) found.push_back(pid);
  }
  return found;
}

std::vector<std::string> environment_of(pid_t pid) {
  std::vector<std::string> words;
  const std::string text = read_text("/proc/" + std::to_string(pid) + "/environ");
  for (const auto word : split(text, '\0')) words.emplace_back(word);
  return words;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string until(const std::string& file, const std::string& then) {
  return "while [ ! -e '" + file + "' ]; do sleep 0.02; done; " + then;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // Not through iterators, which throw when a process ends while its files in /proc are read.
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const auto line : split(text, '\n')) lines.emplace_back(line);
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
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
