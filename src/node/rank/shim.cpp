#include "node/rank/shim.hpp"
#include "node/rank/checkpoints.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/open_files.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/limits.hpp"
#include "node/rank/log_segments.hpp"
#include "node/rank/process.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::rank {
namespace {

using Clock = std::chrono::steady_clock;

// How long processes that outlive the rank's main process have to end.
constexpr Duration leftover_grace_max = 1s;
// A process that forked while it was looked for is found by looking again.
constexpr Duration kill_interval = 50ms;
constexpr std::size_t drained_bytes_max = std::size_t{1} << 20;

sigset_t shim_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&signals, signal);
  return signals;
}

struct Pipe {
  files::FileDescriptor read_end;
  files::FileDescriptor write_end;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed_errno("cannot make a pipe", errno);
  Pipe made{.read_end = files::FileDescriptor(ends[0]), .write_end = files::FileDescriptor(ends[1])};
  fcntl(made.read_end.get(), F_SETFL, O_NONBLOCK);
  return made;
}

// ---- the child's side of the start

enum class StartStep : int { checkpoints, workdir, command };

// What the child tells through a pipe that a successful exec closes.
struct StartFailure {
  StartStep step = StartStep::command;
  int error_number = 0;
};

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

void reset_signals() {
  signal(SIGPIPE, SIG_DFL);
  signal(SIGHUP, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void connect_streams(int output) {
  const files::FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
}

[[noreturn]] void give_up(int status_pipe, StartStep step) {
  const StartFailure failure{.step = step, .error_number = errno};
  // Nobody is left to tell if this fails, and the exit code says the main thing.
  [[maybe_unused]] const ssize_t written = write(status_pipe, &failure, sizeof failure);
  _exit(failure.error_number == ENOENT ? exit_code_not_found : exit_code_not_runnable);
}

[[noreturn]] void become_rank(RankSpec spec, const std::string& held_in, const RankLimits& limits, pid_t shim,
                              int output, int status_pipe) {
  // A rank whose shim was killed would be out of everybody's reach.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != shim) _exit(exit_code_not_runnable);
  setpgid(0, 0);
  raise_oom_score(rank_oom_score);
  limits.enter(held_in);
  connect_streams(output);
  reset_signals();
  files::set_open_files(static_cast<std::size_t>(spec.open_files));
  // Here, because the folder may be on a shared disk that does not answer: that is then this rank's trouble
  // alone, and it can be killed.
  if (!spec.checkpoints.empty() && !begin_checkpoints(spec.checkpoints, spec.has_saved))
    give_up(status_pipe, StartStep::checkpoints);
  if (chdir(spec.workdir.c_str()) != 0) give_up(status_pipe, StartStep::workdir);
  auto command = pointers_to(spec.command);
  auto environment = pointers_to(spec.env);
  // Not execvpe, which would look for the command in the shim's PATH.
  environ = environment.data();
  execvp(command[0], command.data());
  give_up(status_pipe, StartStep::command);
}

// ---- the shim's side

class Shim {
 public:
  Shim(const std::string& folder, RankSpec spec)
      : spec_(std::move(spec)),
        log_(folder, spec_.log_bytes_max),
        processes_(process_limits(host_processes())),
        limits_({.name = spec_.cgroup,
                 .cpus = spec_.cpus,
                 .memory = spec_.memory,
                 .processes = spec_.cgroup.empty() ? ProcessLimits() : processes_}),
        hold_(spec_.cgroup) {
    hold_.make();
  }
  Shim(const Shim&) = delete;
  Shim& operator=(const Shim&) = delete;
  ~Shim() { hold_.remove(); }

  RankExit run();

 private:
  enum class Phase { running, ending, killing };

  Result<> start();
  void open_copy();
  void wait_for_event();
  void take_signals();
  void ask_to_end(Duration grace);
  void reap();
  // One read of the pipe: how many bytes came; 0 if there are none now or ever again.
  std::size_t pump();
  void drain();
  void advance();
  void signal_all(int signal);
  int wait_ms() const;
  RankExit result();
  std::optional<RankExit> start_failure();

  RankSpec spec_;
  LogWriter log_;
  ProcessLimits processes_;
  RankLimits limits_;
  Hold hold_;
  files::FileDescriptor copy_;
  std::string copy_cut_;  // why the copy does not have all of it
  files::FileDescriptor signals_;
  files::FileDescriptor output_;
  files::FileDescriptor status_;
  pid_t main_ = -1;
  int exit_code_ = 0;
  bool by_signal_ = false;
  bool all_gone_ = false;
  Phase phase_ = Phase::running;
  Clock::time_point deadline_ = Clock::time_point::max();
};

RankExit Shim::run() {
  open_copy();
  if (auto started = start(); !started)
    return {.exit_code = exit_code_not_runnable, .detail = started.error().text()};
  while (!all_gone_) {
    wait_for_event();
    advance();
  }
  drain();
  return result();
}

// All ranks of a job may append to one file.
void Shim::open_copy() {
  if (spec_.output.empty()) return;
  const std::string path = spec_.output.front() == '/' ? spec_.output : spec_.workdir + "/" + spec_.output;
  // Not blocking: a named pipe without a reader must not hold up the rank.
  copy_ = files::FileDescriptor(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
  if (copy_.valid()) return;
  copy_cut_ = failed_errno("cannot write " + path, errno).text();
  log_.append("tutti: " + copy_cut_ + "\n");
}

Result<> Shim::start() {
  auto output = make_pipe();
  auto status = make_pipe();
  if (!output || !status) return (output ? std::move(status).error() : std::move(output).error());
  const sigset_t signals = shim_signals();
  signals_ = files::FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return failed_errno("cannot receive signals", errno);
  const pid_t shim = getpid();
  const auto [pid, held] = hold_.fork_under();
  main_ = pid;
  if (main_ < 0) return failed_errno("cannot start a process", errno);
  if (main_ == 0)
    become_rank(std::move(spec_), held ? hold_.folder() : "", limits_, shim, output->write_end.get(),
                status->write_end.get());
  output_ = std::move(output->read_end);
  status_ = std::move(status->read_end);
  return {};
}

void Shim::wait_for_event() {
  pollfd events[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                     {.fd = output_.get(), .events = POLLIN, .revents = 0}};
  if (poll(events, std::size(events), wait_ms()) <= 0) return;
  if (events[0].revents != 0) take_signals();
  if (events[1].revents != 0) pump();
}

void Shim::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGTERM && phase_ == Phase::running) ask_to_end(spec_.grace);
    if (info.ssi_signo == SIGUSR1) phase_ = Phase::killing;
    if (info.ssi_signo == SIGCHLD) reap();
  }
}

void Shim::ask_to_end(Duration grace) {
  if (phase_ == Phase::killing) return;
  phase_ = Phase::ending;
  deadline_ = std::min(deadline_, Clock::now() + grace);
  signal_all(SIGTERM);
  // A stopped process would not notice.
  signal_all(SIGCONT);
}

// As the subreaper of its descendants the shim has children as long as any of them is left.
void Shim::reap() {
  int status = 0;
  pid_t ended = 0;
  bool main_ended = false;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
    if (ended != main_) continue;
    main_ended = true;
    by_signal_ = WIFSIGNALED(status);
    exit_code_ = by_signal_ ? exit_code_signal_base + WTERMSIG(status) : WEXITSTATUS(status);
  }
  all_gone_ = ended < 0 && errno == ECHILD;
  // Again for those that were asked before: some may have been started since.
  if (main_ended && !all_gone_) ask_to_end(std::min(spec_.grace, leftover_grace_max));
}

std::size_t Shim::pump() {
  char buffer[65536];
  const ssize_t count = read(output_.get(), buffer, sizeof buffer);
  if (count == 0) output_.reset();
  if (count <= 0) return 0;
  const std::string_view bytes(buffer, static_cast<std::size_t>(count));
  log_.append(bytes);
  for (std::size_t written = 0; copy_.valid() && written < bytes.size();) {
    const ssize_t part = write(copy_.get(), bytes.data() + written, bytes.size() - written);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) {
      // The log has all of it, and says so; if its disk is full, too, the rank's end says it.
      const std::string why = std::strerror(part < 0 ? errno : EIO);
      copy_cut_ = "the copy of its log in " + spec_.output + " is cut: " + why;
      log_.append("tutti: " + spec_.output + " ends here: " + why + "; `tutti logs` has the rest\n");
      copy_.reset();
      break;
    }
    written += static_cast<std::size_t>(part);
  }
  return bytes.size();
}

// All processes of the rank are gone, and so is every writer of the pipe, unless the rank passed it on.
void Shim::drain() {
  std::size_t drained = 0;
  while (output_.valid() && drained < drained_bytes_max) {
    const std::size_t count = pump();
    if (count == 0) return;
    drained += count;
  }
}

void Shim::advance() {
  if (all_gone_) return;
  if (phase_ == Phase::ending && Clock::now() >= deadline_) phase_ = Phase::killing;
  if (phase_ != Phase::killing) return;
  // Those that have become another user first: a signal of this one may not reach them.
  hold_.kill();
  signal_all(SIGKILL);
}

void Shim::signal_all(int signal) {
  for (const pid_t pid : descendants_of(getpid())) kill(pid, signal);
}

int Shim::wait_ms() const {
  using std::chrono::ceil;
  using std::chrono::milliseconds;
  switch (phase_) {
    case Phase::running:
      return -1;
    case Phase::ending:
      return static_cast<int>(
          std::max<std::int64_t>(0, ceil<milliseconds>(deadline_ - Clock::now()).count()));
    case Phase::killing:
      return static_cast<int>(ceil<milliseconds>(kill_interval).count());
  }
  return -1;
}

RankExit Shim::result() {
  if (auto failure = start_failure()) return *std::move(failure);
  RankExit exit{.exit_code = exit_code_, .detail = {}, .by_signal = by_signal_};
  if (exit_code_ != 0 && limits_.memory_limit_reached())
    exit.detail = "killed: memory limit of " + format_bytes(spec_.memory) + " reached";
  if (exit_code_ != 0 && limits_.process_limit_reached())
    exit.detail += (exit.detail.empty() ? "" : "; ") + ("limit of " + std::to_string(processes_.rank)) +
                   " processes and threads reached";
  if (!copy_cut_.empty()) exit.detail += (exit.detail.empty() ? "" : "; ") + copy_cut_;
  return exit;
}

std::optional<RankExit> Shim::start_failure() {
  StartFailure failure;
  if (read(status_.get(), &failure, sizeof failure) != static_cast<ssize_t>(sizeof failure))
    return std::nullopt;
  switch (failure.step) {
    case StartStep::checkpoints:
      return RankExit{.exit_code = exit_code_not_runnable,
                      .detail = missing_checkpoints(spec_.checkpoints).text(),
                      .node_fault = true};
    case StartStep::workdir:
      return RankExit{
          .exit_code = exit_code_not_runnable,
          .detail =
              failed_errno("cannot enter the folder '" + spec_.workdir + "'", failure.error_number).text()};
    case StartStep::command:
      return RankExit{
          .exit_code = failure.error_number == ENOENT ? exit_code_not_found : exit_code_not_runnable,
          .detail = failed_errno("cannot run '" + spec_.command[0] + "'", failure.error_number).text()};
  }
  return std::nullopt;
}

void prepare_process() {
  setsid();
  const sigset_t signals = shim_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "tutti-shim");  // whatever the file is called: leftovers.cpp looks for it
}

Result<> announce(const std::string& folder) {
  const auto status = read_process(getpid());
  if (!status) return failed("cannot read /proc");
  return write_shim(folder, {.pid = getpid(), .start_time = status->start_time});
}

// Nothing if the rank was given up before it began. `held` is the folder too, as it was when the shim began.
std::optional<RankExit> run_rank(const std::string& folder, const std::string& held) {
  if (auto announced = announce(folder); !announced)
    return RankExit{.exit_code = exit_code_not_runnable, .detail = announced.error().text()};
  if (is_given_up(folder)) return std::nullopt;
  if (auto reserved = reserve_exit(folder); !reserved)
    return RankExit{.exit_code = exit_code_not_runnable, .detail = reserved.error().text()};
  auto spec = read_spec(folder);
  if (!spec) return RankExit{.exit_code = exit_code_not_runnable, .detail = spec.error().text()};
  return Shim(held, *std::move(spec)).run();
}

}  // namespace

// A rank can put a link to anywhere in place of its folder, so what is written after it has begun goes
// through a descriptor.
int run_shim(const std::string& folder) {
  prepare_process();
  const files::FileDescriptor open_folder(
      open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!open_folder.valid()) return exit_code_not_runnable;
  const std::string held = "/proc/self/fd/" + std::to_string(open_folder.get());
  const auto exit = run_rank(folder, held);
  if (!exit) return 0;
  if (!write_exit(held, *exit)) {
    // On a full disk the end of the rank is worth more than the beginning of its log.
    drop_oldest_segment(held);
    static_cast<void>(write_exit(held, *exit));
  }
  return exit->exit_code & 0xFF;
}

}  // namespace tutti::rank
