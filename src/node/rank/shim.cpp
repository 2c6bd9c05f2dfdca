#include "node/rank/shim.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/open_files.hpp"
#include "node/rank/checkpoints.hpp"
#include "node/rank/device_filter.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/limits.hpp"
#include "node/rank/log_segments.hpp"
#include "node/rank/output_copy.hpp"
#include "node/rank/process.hpp"
#include "node/rank/rank_folder.hpp"
#include "node/rank/secrets.hpp"
#include "node/rank/told_end.hpp"

namespace tutti::rank {
namespace {

using Clock = std::chrono::steady_clock;

// How long processes that outlive the rank's main process have to end.
constexpr Duration leftover_grace_max = 1s;
// A process that forked while it was looked for is found by looking again.
constexpr Duration kill_interval = 50ms;
constexpr std::size_t drained_bytes_max = std::size_t{1} << 20;
// How often it is looked whether a copy may be waited for any longer.
constexpr int copy_look_ms = 100;

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

enum class StartStep : int { places, devices, secrets, checkpoints, account, workdir, command };

// What the child tells through a pipe that a successful exec closes.
struct StartFailure {
  StartStep step = StartStep::command;
  int error_number = 0;
  bool node_fault = false;       // of `why`
  std::array<char, 1024> why{};  // in words, where the number is not enough
};
static_assert(sizeof(StartFailure) <= PIPE_BUF);  // it comes as one

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

void reset_signals() {
  for (const int number : {SIGPIPE, SIGHUP, SIGXFSZ}) signal(number, SIG_DFL);
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

[[noreturn]] void give_up(int status_pipe, StartStep step, int error_number = errno) {
  const StartFailure failure{.step = step, .error_number = error_number, .why = {}};
  // Nobody is left to tell if this fails, and the exit code says the main thing.
  [[maybe_unused]] const ssize_t written = write(status_pipe, &failure, sizeof failure);
  _exit(failure.error_number == ENOENT ? exit_code_not_found : exit_code_not_runnable);
}

[[noreturn]] void give_up(int status_pipe, StartStep step, const Error& why) {
  StartFailure failure{
      .step = step, .error_number = EPERM, .node_fault = why.code() != ErrorCode::invalid, .why = {}};
  why.text().copy(failure.why.data(), failure.why.size() - 1);
  [[maybe_unused]] const ssize_t written = write(status_pipe, &failure, sizeof failure);
  _exit(exit_code_not_runnable);
}

// A rank whose shim was killed would be out of everybody's reach.
void end_with_shim(pid_t shim) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != shim) _exit(exit_code_not_runnable);
}

// As the agent's user still.
void set_apart(const Isolation& isolation, const DeviceFilter& filter, bool is_held, int status_pipe) {
  if (isolation.filters_devices && !filter.enter(is_held)) give_up(status_pipe, StartStep::devices, EPERM);
  if (!isolation.places) return;
  const int why = enter_private_places(*isolation.places);
  if (why != 0) give_up(status_pipe, StartStep::places, why);
  // Where the agent stands is the host's, also below what is covered by now.
  if (chdir("/") != 0) give_up(status_pipe, StartStep::places);
}

// What the rank gets in memory of its own; where it cannot have that, the shim has made the folder.
struct RankSecrets {
  std::vector<SecretFile> files;
  std::string folder;  // "": there is none yet
};

bool mounts_secrets(const RankSpec& spec) { return spec.isolation && spec.isolation->places; }

void give_secrets(RankSpec& spec, RankSecrets& secrets, int status_pipe) {
  if (secrets.folder.empty()) {
    const int why = mount_secrets(secrets.files, spec.isolation->account, secrets.folder);
    if (why != 0) give_up(status_pipe, StartStep::secrets, why);
  }
  forget(secrets.files);
  const std::string variable = std::string(secrets_variable) + "=";
  std::erase_if(spec.env, [&](const std::string& entry) { return entry.starts_with(variable); });
  spec.env.push_back(variable + secrets.folder);
}

// Nothing is done as the agent's user any more.
void become_account(const RankSpec& spec, const BegunCheckpoints& begun, pid_t shim, int status_pipe) {
  const Account& account = spec.isolation->account;
  // So that it can open them again, as /dev/stdout is. It has no other files of the shim's.
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (fchown(stream, account.uid, account.gid) != 0) give_up(status_pipe, StartStep::account);
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (const int why = become(account); why != 0) give_up(status_pipe, StartStep::account, why);
  // Who becomes somebody else is not ended with his parent any more.
  end_with_shim(shim);
  if (auto made = make_own_checkpoints(begun, spec.checkpoints, account); !made)
    give_up(status_pipe, StartStep::checkpoints, made.error());
}

// Here, because the folder may be on a shared disk that does not answer: that is then this rank's trouble
// alone, and it can be killed.
BegunCheckpoints begin_saving(const RankSpec& spec, const std::string& folder, int status_pipe) {
  if (spec.checkpoints.empty()) return {};
  const Account* const account = spec.isolation ? &spec.isolation->account : nullptr;
  auto begun = begin_checkpoints(spec.checkpoints, spec.has_saved, folder, account);
  if (!begun) give_up(status_pipe, StartStep::checkpoints, begun.error());
  return *std::move(begun);
}

[[noreturn]] void become_rank(RankSpec spec, RankSecrets secrets, const std::string& folder,
                              const std::string& held_in, const RankLimits& limits,
                              const DeviceFilter& filter, pid_t shim, int output, int status_pipe) {
  end_with_shim(shim);
  setpgid(0, 0);
  raise_oom_score(rank_oom_score);
  limits.enter(held_in);
  connect_streams(output);
  reset_signals();
  if (spec.isolation) {
    set_apart(*spec.isolation, filter, !held_in.empty(), status_pipe);
    umask(rank_umask);
  }
  if (spec.secrets > 0) give_secrets(spec, secrets, status_pipe);
  files::set_open_files(static_cast<std::size_t>(spec.open_files));
  const BegunCheckpoints begun = begin_saving(spec, folder, status_pipe);
  if (spec.isolation) become_account(spec, begun, shim, status_pipe);
  if (chdir(spec.workdir.c_str()) != 0) give_up(status_pipe, StartStep::workdir);
  auto command = pointers_to(spec.command);
  auto environment = pointers_to(spec.env);
  // Not execvpe, which would look for the command in the shim's PATH.
  environ = environment.data();
  execvp(command[0], command.data());
  give_up(status_pipe, StartStep::command);
}

// Want of memory or of processes passes, and the next attempt may run; a program that is not there or may not
// be run is the same then.
RankExit cannot_run(const std::string& program, int error_number) {
  RankExit exit{.exit_code = error_number == ENOENT ? exit_code_not_found : exit_code_not_runnable,
                .detail = failed_errno("cannot run '" + program + "'", error_number).text()};
  const bool by_path = program.find('/') != std::string::npos;
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
      exit.no_program = true;
      exit.detail += by_path
                         ? "; it, and what interprets it, must be there on every node that may run it, or "
                           "be shipped with `--sync`"
                         : "; it must be in a folder of PATH on every node that may run it, or be named by "
                           "its path there";
      break;
    case EACCES:
    case ENOEXEC:
      exit.no_program = true;
      exit.detail +=
          "; it must be a program of this kind of machine that whoever the rank runs as may "
          "execute (chmod +x)";
      break;
    default:
      break;
  }
  return exit;
}

// ---- the shim's side

// Nothing of the rank has run: what keeps it from that is this node's, and another may run it.
RankExit not_begun(const Error& why) {
  return {.exit_code = exit_code_not_runnable, .detail = why.text(), .node_fault = true};
}

class Shim {
 public:
  // `packed`: its secrets, nothing if none have come.
  Shim(const std::string& folder, RankSpec spec, files::FileDescriptor packed)
      : folder_(folder),
        spec_(std::move(spec)),
        packed_(std::move(packed)),
        log_(folder, spec_.log_bytes_max),
        processes_(process_limits(host_processes())),
        limits_({.name = spec_.cgroup,
                 .cpus = spec_.cpus,
                 .memory = spec_.memory,
                 .processes = spec_.cgroup.empty() ? ProcessLimits() : processes_}),
        hold_(spec_.cgroup),
        filter_(spec_.cgroup) {
    hold_.make();
  }
  Shim(const Shim&) = delete;
  Shim& operator=(const Shim&) = delete;
  ~Shim() {
    // Its rank's main process has been waited for by now.
    if (teller_.joinable()) teller_.join();
    hold_.remove();
    forget(secrets_.files);
    if (!secrets_.folder.empty()) remove_secrets_folder(folder_);
  }

  RankExit run();

 private:
  enum class Phase { running, ending, killing };

  void start_copy();
  Result<> take_secrets();
  Result<> start();
  void tell_end_beside();
  void wait_for_event();
  void take_signals();
  void ask_to_end(Duration grace);
  void reap();
  // One read of the pipe: how many bytes came; 0 if there are none now or ever again.
  std::size_t pump();
  void drain();
  void go_on_with_copy();
  void finish_copy();
  void advance();
  void signal_all(int signal);
  int wait_ms() const;
  RankExit result();
  std::optional<RankExit> start_failure();

  std::string folder_;  // of its rank, by a descriptor
  RankSpec spec_;
  files::FileDescriptor packed_;
  RankSecrets secrets_;
  LogWriter log_;
  ProcessLimits processes_;
  RankLimits limits_;
  Hold hold_;
  DeviceFilter filter_;
  OutputCopy copy_;
  files::FileDescriptor signals_;
  files::FileDescriptor output_;
  files::FileDescriptor status_;
  pid_t main_ = -1;
  int exit_code_ = 0;
  std::int64_t memory_kills_ = -1;  // on this machine, before it
  bool by_signal_ = false;
  bool all_gone_ = false;
  bool asked_ = false;  // to end it
  std::thread teller_;
  Phase phase_ = Phase::running;
  Clock::time_point deadline_ = Clock::time_point::max();
};

RankExit Shim::run() {
  // Before anything is in memory that only the rank may have: who writes the copy has all of it.
  start_copy();
  if (auto taken = take_secrets(); !taken) return not_begun(taken.error());
  if (auto started = start(); !started) return not_begun(started.error());
  while (!all_gone_) {
    wait_for_event();
    advance();
  }
  drain();
  finish_copy();
  return result();
}

void Shim::start_copy() {
  if (spec_.output.empty()) return;
  copy_.start(spec_.output.front() == '/' ? spec_.output : spec_.workdir + "/" + spec_.output,
              spec_.isolation ? &spec_.isolation->account : nullptr);
  go_on_with_copy();
}

// Nobody who comes after this has the descriptor.
Result<> Shim::take_secrets() {
  const files::FileDescriptor packed = std::move(packed_);
  if (spec_.secrets == 0) return {};
  auto unpacked = unpack_secrets(packed.get());
  if (!unpacked) return std::move(unpacked).error();
  secrets_.files = *std::move(unpacked);
  return {};
}

Result<> Shim::start() {
  auto output = make_pipe();
  auto status = make_pipe();
  if (!output || !status) return (output ? std::move(status).error() : std::move(output).error());
  const sigset_t signals = shim_signals();
  signals_ = files::FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return failed_errno("cannot receive signals", errno);
  memory_kills_ = memory_kills();
  if (spec_.isolation && spec_.isolation->filters_devices) {
    if (auto made = filter_.make(hold_, devices_of_a_rank(spec_.isolation->gpus)); !made) return made;
  }
  if (spec_.secrets > 0 && !mounts_secrets(spec_)) {
    auto made =
        make_secrets_folder(folder_, secrets_.files, spec_.isolation ? &spec_.isolation->account : nullptr);
    if (!made) return std::move(made).error();
    secrets_.folder = *std::move(made);
  }
  const pid_t shim = getpid();
  const auto [pid, held] = hold_.fork_under();
  main_ = pid;
  if (main_ < 0) return failed_errno("cannot start a process", errno);
  if (main_ == 0)
    become_rank(std::move(spec_), std::move(secrets_), folder_, held ? hold_.folder() : "", limits_, filter_,
                shim, output->write_end.get(), status->write_end.get());
  forget(secrets_.files);
  output_ = std::move(output->read_end);
  status_ = std::move(status->read_end);
  tell_end_beside();
  return {};
}

// The thread that keeps the log may hang in its disk when the main process ends, for as long as the disk
// does. This one touches none, and leaves the process to be reaped. Where it cannot be started, or comes too
// late, reap() tells it.
void Shim::tell_end_beside() {
  try {
    teller_ = std::thread([pid = main_] {
      siginfo_t end{};
      while (waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT) != 0) {
        if (errno != EINTR) return;
      }
      tell_end(end.si_code == CLD_EXITED ? end.si_status : exit_code_signal_base + end.si_status);
    });
  } catch (const std::system_error&) {
    return;
  }
}

// A copy that has not taken all that was printed holds up who prints, for as long as its disk may take.
void Shim::wait_for_event() {
  const bool full = copy_.is_full();
  pollfd events[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                     {.fd = full ? -1 : output_.get(), .events = POLLIN, .revents = 0},
                     {.fd = full ? copy_.input() : -1, .events = POLLOUT, .revents = 0},
                     {.fd = copy_.words(), .events = POLLIN, .revents = 0}};
  if (poll(events, std::size(events), wait_ms()) < 0) return;
  if (events[0].revents != 0) take_signals();
  if (events[1].revents != 0) pump();
  go_on_with_copy();
}

void Shim::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGTERM && phase_ == Phase::running) ask_to_end(spec_.grace);
    if (info.ssi_signo == SIGUSR1) phase_ = Phase::killing;
    if (info.ssi_signo == SIGCHLD) reap();
    if (info.ssi_signo != SIGCHLD) asked_ = true;
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
    // Before any of it is written: the disk may not answer.
    tell_end(exit_code_);
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
  copy_.add(bytes);
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

void Shim::go_on_with_copy() {
  copy_.go_on();
  if (const std::string note = copy_.take_note(); !note.empty()) log_.append(note);
}

// The rank is over, and nobody is to wait for long for the disk of a copy.
void Shim::finish_copy() {
  const auto begun = Clock::now();
  while (copy_.is_being_written()) {
    if (!copy_.is_full()) copy_.close();
    const bool late = Clock::now() - begun >= (asked_ ? copy_patience_asked : copy_patience);
    if (late) {
      copy_.leave();
      break;
    }
    pollfd events[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                       {.fd = copy_.is_full() ? copy_.input() : -1, .events = POLLOUT, .revents = 0},
                       {.fd = copy_.words(), .events = POLLIN, .revents = 0}};
    poll(events, std::size(events), copy_look_ms);
    if (events[0].revents != 0) take_signals();
    go_on_with_copy();
  }
  go_on_with_copy();
}

void Shim::advance() {
  if (all_gone_) return;
  if (phase_ == Phase::ending && Clock::now() >= deadline_) phase_ = Phase::killing;
  if (phase_ != Phase::killing) return;
  // Those that have become another user first: a signal of this one may not reach them.
  hold_.kill();
  signal_all(SIGKILL);
}

// Of the rank: who writes its copy is none of it.
void Shim::signal_all(int signal) {
  for (const pid_t pid : descendants_of(getpid())) {
    if (pid != copy_.writer()) kill(pid, signal);
  }
}

int Shim::wait_ms() const {
  const auto now = Clock::now();
  auto until = copy_.deadline();
  if (phase_ == Phase::ending) until = std::min(until, deadline_);
  if (phase_ == Phase::killing) until = std::min(until, now + kill_interval);
  if (until == Clock::time_point::max()) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  return static_cast<int>(std::max<std::int64_t>(0, wait));
}

RankExit Shim::result() {
  if (auto failure = start_failure()) return *std::move(failure);
  RankExit exit{.exit_code = exit_code_, .detail = {}, .by_signal = by_signal_};
  if (exit_code_ != 0 && limits_.memory_limit_reached())
    exit.detail = "killed: memory limit of " + format_bytes(spec_.memory) + " reached";
  // Not for what it has itself: somebody else has taken the memory, or the job needs more than there is.
  exit.starved = by_signal_ && exit_code_ == exit_code_signal_base + SIGKILL && !asked_ &&
                 exit.detail.empty() && memory_kills_ >= 0 && memory_kills() > memory_kills_;
  if (exit.starved)
    exit.detail =
        "killed while the machine had no memory left; --memory-per-rank says how much a rank may have";
  if (exit_code_ != 0 && limits_.process_limit_reached())
    exit.detail += (exit.detail.empty() ? "" : "; ") + ("limit of " + std::to_string(processes_.rank)) +
                   " processes and threads reached";
  if (!copy_.cut().empty()) exit.detail += (exit.detail.empty() ? "" : "; ") + copy_.cut();
  return exit;
}

std::optional<RankExit> Shim::start_failure() {
  StartFailure failure;
  if (read(status_.get(), &failure, sizeof failure) != static_cast<ssize_t>(sizeof failure))
    return std::nullopt;
  switch (failure.step) {
    case StartStep::places:
      return not_begun(failed_errno("cannot give it a /tmp of its own", failure.error_number));
    case StartStep::devices:
      return not_begun(failed_errno("cannot keep devices from it", failure.error_number));
    case StartStep::secrets:
      return not_begun(failed_errno("cannot give it its secrets", failure.error_number));
    case StartStep::checkpoints:
      failure.why.back() = '\0';
      return RankExit{.exit_code = exit_code_not_runnable,
                      .detail = failure.why.data(),
                      .node_fault = failure.node_fault};
    case StartStep::account:
      return not_begun(failed_errno("cannot become the account " + spec_.isolation->account.name + " (uid " +
                                        std::to_string(spec_.isolation->account.uid) + ")",
                                    failure.error_number));
    case StartStep::workdir:
      return RankExit{
          .exit_code = exit_code_not_runnable,
          .detail =
              failed_errno("cannot enter the folder '" + spec_.workdir + "'", failure.error_number).text()};
    case StartStep::command:
      return cannot_run(spec_.command[0], failure.error_number);
  }
  return std::nullopt;
}

void prepare_process() {
  setsid();
  const sigset_t signals = shim_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log that may not grow any more (ulimit -f) is as a disk that is full
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  set_process_name(shim_name);
}

Result<> announce(const std::string& folder) {
  const auto status = read_process(getpid());
  if (!status) return failed("cannot read /proc");
  return write_shim(folder, {.pid = getpid(), .start_time = status->start_time});
}

// Nothing if the rank was given up before it began. `held` is the folder too, as it was when the shim began;
// `packed` is the descriptor of its secrets, -1 if none has come.
std::optional<RankExit> run_rank(const std::string& folder, const std::string& held, int packed) {
  if (auto announced = announce(folder); !announced) return not_begun(announced.error());
  if (is_given_up(folder)) return std::nullopt;
  if (auto reserved = reserve_exit(folder); !reserved) return not_begun(reserved.error());
  auto spec = read_spec(folder);
  if (!spec) return not_begun(spec.error());
  return Shim(held, *std::move(spec), files::FileDescriptor(packed)).run();
}

}  // namespace

// A rank can put a link to anywhere in place of its folder, so what is written after it has begun goes
// through a descriptor.
int run_shim(const std::string& folder) {
  prepare_process();
  // Before anything else gets that number.
  const int packed = fcntl(secrets_descriptor, F_GETFD) >= 0 ? secrets_descriptor : -1;
  const files::FileDescriptor open_folder(
      open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!open_folder.valid()) return exit_code_not_begun;
  const std::string held = "/proc/self/fd/" + std::to_string(open_folder.get());
  const auto exit = run_rank(folder, held, packed);
  if (!exit) return 0;
  if (!write_exit(held, *exit)) {
    // On a full disk the end of the rank is worth more than the beginning of its log.
    drop_oldest_segment(held);
    if (!write_exit(held, *exit) && exit->node_fault) return exit_code_not_begun;
  }
  return exit->exit_code & 0xFF;
}

}  // namespace tutti::rank
