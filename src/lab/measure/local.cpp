#include "lab/measure/local.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <vector>

#include "comm/socket.hpp"

namespace tutti::measure {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view failure_mark = "!";

// The forked ranks with a pipe from each.
class Ranks {
 public:
  static Result<Ranks> start(const LocalRanks& wanted, const RankBody& body) {
    auto endpoint = comm::Endpoint::of("127.0.0.1", 0);
    if (!endpoint) return std::move(endpoint).error();
    auto listener = comm::listen_on(*endpoint);
    if (!listener) return std::move(listener).error();
    auto port = comm::port_of(*listener);
    if (!port) return std::move(port).error();
    Ranks ranks;
    for (int rank = 0; rank < wanted.count; ++rank) {
      comm::Options options{.rank = rank,
                            .size = wanted.count,
                            .master_port = *port,
                            .deadline = wanted.deadline,
                            .transport = wanted.transport};
      if (rank == 0) options.hub_listener = dup(listener->get());
      if (auto forked = ranks.fork_one(options, body); !forked) return std::move(forked).error();
      if (rank == 0) close(options.hub_listener);
    }
    return ranks;
  }
  Ranks() = default;
  Ranks(Ranks&&) noexcept = default;
  Ranks& operator=(Ranks&&) = delete;
  ~Ranks() {
    for (auto& [rank, child] : children_) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      close(child.pipe);
    }
  }

  pid_t pid(int rank) const { return children_.at(rank).pid; }

  // The next line of any rank; the rank is -1 when all pipes are closed.
  std::pair<int, std::string> next() {
    for (;;) {
      for (auto& [rank, child] : children_) {
        const auto end = child.buffer.find('\n');
        if (end == std::string::npos) continue;
        std::string line = child.buffer.substr(0, end);
        child.buffer.erase(0, end + 1);
        return {rank, std::move(line)};
      }
      if (!read_more()) return {-1, ""};
    }
  }

 private:
  struct Child {
    pid_t pid = -1;
    int pipe = -1;
    bool open = true;
    std::string buffer{};
  };

  Result<> fork_one(const comm::Options& options, const RankBody& body) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return failed_errno("pipe", errno);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return failed_errno("fork", errno);
    if (pid == 0) {
      close(ends[0]);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      _exit(run_child(options, body, ends[1]));
    }
    close(ends[1]);
    children_[options.rank] = {.pid = pid, .pipe = ends[0]};
    return {};
  }

  static int run_child(const comm::Options& options, const RankBody& body, int pipe) {
    const Say say = [pipe](const std::string& line) {
      const std::string whole = line + "\n";
      [[maybe_unused]] const auto written = write(pipe, whole.data(), whole.size());
    };
    auto world = comm::Communicator::connect(options);
    const Result<> done = world ? body(*world, say) : Result<>(world.error());
    if (!done) say(std::string(failure_mark) + done.error().text());
    return done ? 0 : 1;
  }

  bool read_more() {
    std::vector<pollfd> entries;
    std::vector<Child*> open;
    for (auto& [rank, child] : children_) {
      if (!child.open) continue;
      entries.push_back({child.pipe, POLLIN, 0});
      open.push_back(&child);
    }
    if (open.empty()) return false;
    if (poll(entries.data(), entries.size(), -1) < 0) return errno == EINTR;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (entries[i].revents == 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t got = read(open[i]->pipe, bytes.data(), bytes.size());
      if (got > 0) open[i]->buffer.append(bytes.data(), static_cast<std::size_t>(got));
      if (got == 0) open[i]->open = false;
    }
    return true;
  }

  std::map<int, Child> children_;
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

Result<> run_local(const LocalRanks& ranks, const RankBody& body, const Hear& hear) {
  auto started = Ranks::start(ranks, body);
  if (!started) return std::move(started).error();
  Result<> first;
  for (auto [rank, line] = started->next(); rank >= 0; std::tie(rank, line) = started->next()) {
    if (!line.starts_with(failure_mark)) {
      hear(rank, line);
    } else if (first) {
      first = failed(line.substr(failure_mark.size()));
    }
  }
  return first;
}

Result<Killed> measure_kill(const LocalRanks& ranks, int victim, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  const RankBody body = [&](comm::Communicator& world, const Say& say) -> Result<> {
    std::vector<float> data(count, 1.0F);
    for (int round = 0;; ++round) {
      auto done =
          world.all_reduce(data.data(), data.data(), count, comm::DataType::f32, comm::Reduction::max).wait();
      if (!done) {
        say(std::to_string(now_ns()) + " " + done.error().text());
        return {};
      }
      if (round == 100) say("running");
    }
  };
  auto started = Ranks::start(ranks, body);
  if (!started) return std::move(started).error();
  int running = 0;
  int ended = 0;
  std::int64_t killed_ns = 0;
  Killed result;
  for (auto [rank, line] = started->next(); rank >= 0; std::tie(rank, line) = started->next()) {
    if (line.starts_with(failure_mark)) return failed(line.substr(failure_mark.size()));
    if (line == "running") {
      if (++running < ranks.count) continue;
      killed_ns = now_ns();
      kill(started->pid(victim), SIGKILL);
      continue;
    }
    if (killed_ns == 0) return failed(line);
    const auto space = line.find(' ');
    const auto at_ns = std::strtoll(line.c_str(), nullptr, 10);
    result.error_ms = std::max(result.error_ms, static_cast<double>(at_ns - killed_ns) * 1e-6);
    result.error = line.substr(space + 1);
    ++ended;
  }
  if (ended != ranks.count - 1)
    return failed(std::to_string(ranks.count - 1 - ended) + " ranks got no error");
  return result;
}

}  // namespace tutti::measure
