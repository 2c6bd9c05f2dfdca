#include "cli/local.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "cli/part_note.hpp"
#include "cli/terminal.hpp"
#include "control/controller/controller.hpp"
#include "net/http/client.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::cli {
namespace {

constexpr Duration ready_time_max = 30s;
// For all parts of a cluster together: to end when asked, and to be gone when killed.
constexpr Duration end_time_max = 5s;
constexpr Duration kill_time_max = 5s;
constexpr Duration stray_look_again_after = 5ms;
constexpr std::uintmax_t last_words_bytes_max = 16'384;
// Whoever starts a cluster of his own is the user of its ranks.
constexpr std::array ranks_as_agent{"--isolation", "none"};
constexpr std::string_view error_mark = "tutti: ";  // of what main() prints

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// None where it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  const auto names = files::list_folder(folder);
  return names && *names ? **names : std::vector<std::string>();
}

// Waits until the process is gone. It may be somebody else's child.
bool wait_for_end(const rank::ShimProcess& process, std::chrono::steady_clock::time_point give_up_at) {
  if (!rank::is_alive(process)) return true;
  auto pidfd = rank::open_pidfd(process.pid);
  if (!pidfd) return true;
  pollfd waited{pidfd->get(), POLLIN, 0};
  const auto left = give_up_at - std::chrono::steady_clock::now();
  const int patience_ms = static_cast<int>(std::max<std::int64_t>(0, left / 1ms));
  return ::poll(&waited, 1, patience_ms) > 0 || !rank::is_alive(process);
}

Result<std::string> read_line(int descriptor, Duration patience) {
  std::string line;
  pollfd waited{descriptor, POLLIN, 0};
  while (line.find('\n') == std::string::npos) {
    std::array<char, 256> buffer;
    if (::poll(&waited, 1, static_cast<int>(patience / 1ms)) <= 0)
      return failed("it did not get ready in time");
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got <= 0) return failed("it ended at once");
    line.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return line.substr(0, line.find('\n'));
}

// What a program that has ended said at last: its error and below it the remedies, or its last line.
std::vector<std::string> last_words(const std::string& log, std::uintmax_t begin) {
  std::ifstream stream(log, std::ios::ate);
  const auto size = static_cast<std::uintmax_t>(std::max<std::streamoff>(0, stream.tellg()));
  stream.seekg(static_cast<std::streamoff>(std::max(begin, size - std::min(size, last_words_bytes_max))));
  std::vector<std::string> words;
  bool is_error = false;
  for (std::string line; std::getline(stream, line);) {
    if (trim(line).empty()) continue;
    const bool begins = line.starts_with(error_mark);
    if (begins || !is_error) words.clear();
    is_error = is_error || begins;
    words.emplace_back(begins ? line.substr(error_mark.size()) : std::string(trim(line)));
  }
  return words;
}

// Starts a detached process in a session of its own, its output in a log file. It begins when a byte comes
// through the gate: a process that nobody has noted down would outlive `tutti down`, so it ends if the
// command does before that.
pid_t spawn(const std::vector<std::string>& words, const std::string& log, int ready_fd,
            const std::array<int, 2>& gate) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setsid();
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  if (ready_fd >= 0) ::fcntl(ready_fd, F_SETFD, 0);
  ::close(gate[1]);  // else the pipe would stay open without the command
  if (char go = 0; ::read(gate[0], &go, 1) != 1) ::_exit(0);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

// An address of this machine at which nobody listens.
bool is_free_here(const std::string& address) {
  const auto target = net::parse_target(address);
  if (!target || target->host != "127.0.0.1") return false;
  const files::FileDescriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in wanted{};
  wanted.sin_family = AF_INET;
  wanted.sin_port = htons(target->port);
  wanted.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted) == 0 &&
         ::listen(probe.get(), 1) == 0;
}

using NamedProcess = std::pair<std::string, rank::ShimProcess>;

Result<> end_processes(const std::vector<NamedProcess>& living) {
  // A stopped one would not notice.
  for (const int signal : {SIGTERM, SIGCONT})
    for (const auto& [part, process] : living) ::kill(process.pid, signal);
  const auto kill_at = std::chrono::steady_clock::now() + end_time_max;
  for (const auto& [part, process] : living)
    if (!wait_for_end(process, kill_at)) ::kill(process.pid, SIGKILL);
  const auto give_up_at = std::chrono::steady_clock::now() + kill_time_max;
  for (const auto& [part, process] : living) {
    if (!wait_for_end(process, give_up_at))
      return failed("process " + std::to_string(process.pid) + " does not end, though it was killed")
          .within(part)
          .remedy(
              "it may be somebody else's, or wait for a disk or a device that does not answer: `tutti down` "
              "goes on when it has ended");
  }
  return {};
}

}  // namespace

bool LocalCluster::running() const { return living("controller").has_value(); }

std::string LocalCluster::address() const {
  std::ifstream stream(home_ + "/address");
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<std::string> LocalCluster::nodes() const {
  std::set<std::string> names;
  for (const auto& name : names_in(home_ + "/processes")) {
    if (name.starts_with("node-")) names.insert(name.substr(5));
  }
  // Its ranks outlive an agent of which nothing is noted any more.
  for (const auto& name : names_in(home_ + "/nodes")) names.insert(name);
  return {names.begin(), names.end()};
}

std::vector<LocalNode> LocalCluster::all_nodes() const {
  std::vector<LocalNode> all;
  for (const auto& name : nodes()) all.push_back(node(name));
  return all;
}

std::vector<std::string> LocalCluster::untold_nodes() const {
  std::vector<std::string> names = nodes();
  std::erase_if(names, [this](const std::string& name) { return !has_untold_ranks(node(name)); });
  return names;
}

Result<> LocalCluster::start(const std::string& part, const std::vector<std::string>& words, int ready_fd) {
  std::error_code failure;
  std::filesystem::create_directories(home_ + "/processes", failure);
  std::filesystem::create_directories(home_ + "/logs", failure);
  if (failure) return failed(failure.message()).within("cannot make " + home_);
  std::array<int, 2> gate{};
  if (::pipe2(gate.data(), O_CLOEXEC) != 0) return failed_errno("cannot make a pipe", errno).within(part);
  const files::FileDescriptor outside(gate[0]);
  const files::FileDescriptor inside(gate[1]);
  const std::string log = home_ + "/logs/" + part + ".log";
  // Else it would write to whatever terminal this command has.
  if (const files::FileDescriptor open_log(
          ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
      !open_log.valid())
    return failed_errno("cannot write the log of " + part, errno).within(log);
  const auto log_bytes = std::filesystem::file_size(log, failure);
  log_begins_[part] = failure ? 0 : log_bytes;
  const pid_t pid = spawn(words, log, ready_fd, gate);
  if (pid < 0) return failed_errno("cannot start", errno).within(part);
  const auto process = rank::read_process(pid);
  if (auto noted = write_note(note(part), home_, {pid, process ? process->start_time : 0}, words); !noted)
    return noted;
  return files::write_all(inside.get(), as_bytes("g"), part);
}

std::vector<std::string> LocalCluster::living_nodes() const {
  std::vector<std::string> names = nodes();
  std::erase_if(names, [this](const std::string& name) { return !living("node-" + name); });
  return names;
}

std::optional<pid_t> LocalCluster::agent_of(const std::string& name) const {
  const auto agent = living("node-" + name);
  return agent ? std::optional(agent->pid) : std::nullopt;
}

Error LocalCluster::ended(const std::string& part, const std::string& how) const {
  const std::string log = home_ + "/logs/" + part + ".log";
  const auto noted = read_note(note(part));
  const auto begin = log_begins_.find(part);
  const auto words = last_words(log, begin == log_begins_.end() ? 0 : begin->second);
  const std::string who = noted && !noted->words.empty() ? " (" + noted->words.front() + ", pid " +
                                                               std::to_string(noted->process.pid) + ")"
                                                         : "";
  std::string advice;
  for (std::size_t at = 1; at < words.size(); ++at) advice += words[at] + "; ";
  return failed(how + who + (words.empty() ? "" : ": " + words.front()))
      .within(part)
      .remedy(advice + "its log is " + log);
}

Result<> LocalCluster::start_controller(const std::string& listen, bool accept_older_store) {
  if (auto made = controller::init_folder(home_ + "/controller"); !made) return made;
  std::array<int, 2> ready{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) return failed_errno("cannot make a pipe", errno);
  files::FileDescriptor reader(ready[0]);
  files::FileDescriptor writer(ready[1]);
  std::vector<std::string> words{own_program(), "controller", "--data",     home_ + "/controller",
                                 "--listen",    listen,       "--ready-fd", std::to_string(writer.get()),
                                 "--log-level", "info"};
  if (accept_older_store) words.emplace_back("--accept-older-store");
  auto started = start("controller", words, writer.get());
  if (!started) return started;
  writer.reset();
  auto address = read_line(reader.get(), ready_time_max);
  if (!address) return ended("controller", address.error().message());
  return files::replace_file(home_ + "/address", *address + "\n");
}

std::string LocalCluster::gateway_address() const {
  std::ifstream stream(gateway_file());
  std::string line;
  std::getline(stream, line);
  return line;
}

Result<> LocalCluster::start_gateway() {
  std::array<int, 2> ready{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) return failed_errno("cannot make a pipe", errno);
  gateway_ready_ = files::FileDescriptor(ready[0]);
  files::FileDescriptor writer(ready[1]);
  const std::string before = gateway_address();
  return start("gateway",
               {own_program(), "gateway", "--home", home_, "--listen",
                is_free_here(before) ? before : "127.0.0.1:0", "--ready-fd", std::to_string(writer.get())},
               writer.get());
}

Result<> LocalCluster::wait_for_gateway() {
  auto address = read_line(gateway_ready_.get(), ready_time_max);
  gateway_ready_.reset();
  if (!address) return ended("gateway", address.error().message());
  return files::replace_file(gateway_file(), *address + "\n");
}

std::vector<std::string> LocalCluster::agent_words(const std::string& name) const {
  return {own_program(),
          "agent",
          "--controller",
          address(),
          "--join-token-file",
          home_ + "/controller/join.token",
          "--name",
          name,
          "--data",
          node(name).folder,
          "--checkpoints",
          home_ + "/checkpoints",
          "--log-level",
          "info"};
}

Result<> LocalCluster::start_node(const std::string& name, const std::vector<std::string>& flags) {
  std::vector<std::string> words = agent_words(name);
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), ranks_as_agent.begin(), ranks_as_agent.end());
  return start("node-" + name, words, -1);
}

// The controller may have another port by now, and the folder another name.
Result<> LocalCluster::restart_node(const std::string& name) {
  const auto known = read_note(note("node-" + name));
  if (!known) return invalid("there is no local node '" + name + "'").remedy("`tutti nodes` lists them");
  if (auto fine = check_holders(); !fine) return fine;
  if (living("node-" + name)) return invalid("node '" + name + "' runs already");
  if (!running()) return failed("no controller runs in " + home_).remedy("`tutti up` starts the cluster");
  std::vector<std::string> words = agent_words(name);
  const auto own = static_cast<std::ptrdiff_t>(std::min(words.size(), known->words.size()));
  words.insert(words.end(), known->words.begin() + own, known->words.end());
  // One that an earlier version has started was not asked.
  if (std::find(words.begin(), words.end(), ranks_as_agent.front()) == words.end())
    words.insert(words.end(), ranks_as_agent.begin(), ranks_as_agent.end());
  return start("node-" + name, words, -1);
}

Result<> LocalCluster::kill_node(const std::string& name) {
  const std::string part = "node-" + name;
  const auto known = read_note(note(part));
  if (!known) return invalid("there is no local node '" + name + "'").remedy("`tutti nodes` lists them");
  if (auto fine = check_holder(part); !fine) return fine;
  if (!known->place.empty() && known->place != place_of_home(home_))
    return failed("node '" + name + "' was started elsewhere (on " + known->host +
                  "), or in a folder of which this is a copy: here it does not run")
        .remedy("`tutti up` starts the cluster in " + home_);
  const auto process = living(part);
  const auto give_up_at = std::chrono::steady_clock::now() + kill_time_max;
  if (process) {
    ::kill(process->pid, SIGKILL);
    wait_for_end(*process, give_up_at);
  }
  return kill_ranks({node(name)}, node(name).folder, give_up_at);
}

Result<> LocalCluster::end_parts(const std::vector<std::string>& parts) const {
  std::vector<NamedProcess> living;
  for (const auto& part : parts) {
    if (const auto process = this->living(part)) living.emplace_back(part, *process);
  }
  return end_processes(living);
}

// Whoever would start others, or judge the end of a rank, goes first. A shim that is asked ends its rank, and
// leaves no cgroup behind.
Result<> LocalCluster::end_strays(const std::vector<Stray>& strays) const {
  std::vector<NamedProcess> parts;
  std::vector<rank::ShimProcess> shims;
  for (const auto& [part, process] : strays) {
    if (part == "shim") {
      shims.push_back(process);
    } else {
      parts.emplace_back(part, process);
    }
  }
  if (auto ended = end_processes(parts); !ended) return ended;
  for (const auto& name : nodes()) mark_ranks_stopped(node(name));
  for (const auto& shim : shims) mark_rank_stopped(shim);
  for (const auto& shim : shims) {
    if (auto asked = rank::end_shim(shim, true); !asked) return asked;
  }
  const auto kill_at = std::chrono::steady_clock::now() + end_time_max;
  const auto give_up_at = kill_at + kill_time_max;
  for (const auto& shim : shims) {
    if (wait_for_end(shim, kill_at)) continue;
    while (!rank::kill_leftovers(rank::Hold(""), shim) && std::chrono::steady_clock::now() < give_up_at)
      std::this_thread::sleep_for(stray_look_again_after);
    rank::kill_shim(shim);
    if (!wait_for_end(shim, give_up_at))
      return failed("process " + std::to_string(shim.pid) + " does not end, though it was killed")
          .within("shim")
          .remedy("it may wait for a disk or a device that does not answer");
  }
  return {};
}

// Whoever would tell of a rank's end, or judge it, goes first; and all ranks are marked before the first of
// them ends, because the others of its gang fail when they miss it. What is noted of a part goes last, so
// that one who was interrupted can begin again.
Result<> LocalCluster::stop() {
  const std::vector<LocalNode> all = all_nodes();
  std::vector<std::string> parts{"controller", "gateway"};
  for (const auto& one : all) parts.push_back("node-" + one.name);
  if (auto ended = end_parts(parts); !ended) return ended;
  for (const auto& one : all) mark_ranks_stopped(one);
  const auto give_up_at = std::chrono::steady_clock::now() + kill_time_max;
  if (auto killed = kill_ranks(all, home_ + "/nodes", give_up_at); !killed) return killed;
  std::vector<std::string> noted{home_ + "/address"};
  noted.reserve(parts.size() + 1);
  for (const auto& part : parts) noted.push_back(note(part));
  std::error_code failure;
  for (const auto& file : noted) {
    if (std::error_code why; !std::filesystem::remove(file, why) && why) failure = why;
  }
  if (failure)
    print_note("all its processes have ended, but that could not be written down in " + home_ + ": " +
               failure.message() + "; the next `tutti up` may count what ran as lost");
  return {};
}

}  // namespace tutti::cli
