#include "node/rank/rank_folder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/tree.hpp"
#include "base/text.hpp"
#include "node/rank/process.hpp"
#include "node/rank/secrets.hpp"

namespace tutti::rank {
namespace {

// The specification's first bytes; the digit is the version of the format.
constexpr std::string_view spec_mark = "tutti rank 6\n";
// Of ranks that earlier versions have started, without what came with each of the later ones.
constexpr std::array<std::string_view, 4> earlier_spec_marks{"tutti rank 5\n", "tutti rank 4\n",
                                                             "tutti rank 3\n", "tutti rank 2\n"};
static_assert(spec_mark.size() == earlier_spec_marks[0].size());
static_assert(spec_mark.size() == earlier_spec_marks[1].size());
static_assert(spec_mark.size() == earlier_spec_marks[2].size());
static_assert(spec_mark.size() == earlier_spec_marks[3].size());
constexpr const char* verdict_name = "verdict";
constexpr const char* progress_name = "progress";
constexpr const char* said_name = "said";
constexpr std::size_t words_max = 65'536;
constexpr std::size_t cgroup_name_bytes_max = 200;
constexpr std::size_t line_bytes_max = 128;
// Behind the exit code.
constexpr std::string_view signal_word = " signal";
constexpr std::string_view node_fault_word = " node";
constexpr std::string_view no_program_word = " program";
constexpr std::string_view starved_word = " memory";
constexpr off_t exit_bytes_max = 8192;
static_assert(detail_bytes_max + line_bytes_max <= exit_bytes_max);

std::string path_of(const std::string& folder, std::string_view name) {
  return folder + "/" + std::string(name);
}

// ---- checks

bool is_text(const std::string& text) { return text.find('\0') == std::string::npos; }

bool is_text(const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(), [](const std::string& word) { return is_text(word); });
}

// It becomes the name of a folder.
bool is_cgroup_name(std::string_view name) {
  const auto allowed = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '.' || letter == '-' || letter == '_';
  };
  return !name.empty() && name.size() <= cgroup_name_bytes_max && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

bool is_variable(const std::string& entry) {
  return entry.find('=') != std::string::npos && entry.front() != '=';
}

Result<> validate(const RankSpec& spec) {
  if (spec.command.empty() || spec.command.front().empty()) return invalid("the rank has no command");
  if (spec.command.size() > words_max) return invalid("the rank's command has too many words");
  if (spec.env.size() > words_max) return invalid("the rank's environment has too many variables");
  if (!is_text(spec.command) || !is_text(spec.env) || !is_text(spec.workdir) || !is_text(spec.output) ||
      !is_text(spec.checkpoints) || !is_text(spec.owner))
    return invalid("the rank's specification holds a NUL byte");
  if (!std::all_of(spec.env.begin(), spec.env.end(), is_variable))
    return invalid("the rank's environment holds an entry that is not NAME=VALUE");
  if (spec.workdir.empty()) return invalid("the rank has no working folder");
  if (!is_cgroup_name(spec.cgroup)) return invalid("'" + spec.cgroup + "' cannot name a cgroup");
  if (spec.cpus < 0 || spec.cpus > cpus_max) return invalid("the rank's number of CPUs is out of range");
  if (spec.memory < Bytes(0)) return invalid("the rank's memory is negative");
  if (spec.secrets < 0 || std::cmp_greater(spec.secrets, rank_secrets_max))
    return invalid("the rank's number of secrets is out of range");
  if (spec.open_files < 0) return invalid("the rank's number of open files is negative");
  if (spec.grace < 0s || spec.grace > grace_max) return invalid("the rank's grace period is out of range");
  if (spec.log_bytes_max < log_bytes_smallest || spec.log_bytes_max > log_bytes_largest)
    return invalid("the size of the rank's log is out of range");
  return spec.isolation ? check_account(spec.isolation->account) : Result<>();
}

// ---- the format of `spec`: the mark, then the fields in their order; numbers have eight bytes in the
// machine's order (the file never leaves it), a text is its length and its bytes, a list its length and its
// texts.

class SpecWriter {
 public:
  void number(std::int64_t value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    content_.append(bytes, sizeof bytes);
  }
  void text(const std::string& value) {
    number(static_cast<std::int64_t>(value.size()));
    content_ += value;
  }
  void words(const std::vector<std::string>& values) {
    number(static_cast<std::int64_t>(values.size()));
    for (const auto& value : values) text(value);
  }
  const std::string& content() const { return content_; }

 private:
  std::string content_{spec_mark};
};

// Reads zeros and empty texts once something was wrong; `sound()` tells at the end.
class SpecReader {
 public:
  explicit SpecReader(std::string_view content)
      : versions_back_(content.starts_with(spec_mark)               ? 0
                       : content.starts_with(earlier_spec_marks[0]) ? 1
                       : content.starts_with(earlier_spec_marks[1]) ? 2
                       : content.starts_with(earlier_spec_marks[2]) ? 3
                       : content.starts_with(earlier_spec_marks[3]) ? 4
                                                                    : -1),
        sound_(versions_back_ >= 0) {
    if (sound_) rest_ = content.substr(spec_mark.size());
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const std::string_view bytes = take(sizeof value);
    if (sound_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(length(rest_.size()))); }
  std::vector<std::string> words() {
    const std::size_t count = length(words_max);
    std::vector<std::string> values;
    while (sound_ && values.size() < count) values.push_back(text());
    return values;
  }
  // How many versions the format is older than this one.
  int versions_back() const { return versions_back_; }
  bool sound() const { return sound_ && rest_.empty(); }
  bool goes_on() const { return sound_; }

 private:
  std::size_t length(std::size_t length_max) {
    const std::int64_t value = number();
    if (value < 0 || static_cast<std::uint64_t>(value) > length_max) sound_ = false;
    return sound_ ? static_cast<std::size_t>(value) : 0;
  }
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) sound_ = false;
    if (!sound_) return {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  int versions_back_;
  bool sound_;
  std::string_view rest_;
};

void write_isolation(SpecWriter& writer, const Isolation& isolation) {
  const Account& account = isolation.account;
  writer.text(account.name);
  writer.number(account.uid);
  writer.number(account.gid);
  writer.number(static_cast<std::int64_t>(account.groups.size()));
  for (const gid_t group : account.groups) writer.number(group);
  writer.text(account.home);
  writer.text(account.shell);
  writer.text(isolation.places ? isolation.places->folder : "");
  writer.text(isolation.places ? isolation.places->memory : "");
  writer.number(isolation.filters_devices ? 1 : 0);
  writer.words(isolation.gpus);
}

Isolation read_isolation(SpecReader& reader) {
  Isolation isolation;
  Account& account = isolation.account;
  account.name = reader.text();
  account.uid = static_cast<uid_t>(reader.number());
  account.gid = static_cast<gid_t>(reader.number());
  const std::int64_t groups = reader.number();
  for (std::int64_t at = 0; reader.goes_on() && at < groups; ++at)
    account.groups.push_back(static_cast<gid_t>(reader.number()));
  account.home = reader.text();
  account.shell = reader.text();
  PrivatePlaces places;
  places.folder = reader.text();
  places.memory = reader.text();
  if (!places.folder.empty()) isolation.places = std::move(places);
  isolation.filters_devices = reader.number() != 0;
  isolation.gpus = reader.words();
  return isolation;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<> write_spec(const std::string& folder, const RankSpec& spec) {
  if (auto sound = validate(spec); !sound) return sound;
  SpecWriter writer;
  writer.words(spec.command);
  writer.words(spec.env);
  writer.text(spec.workdir);
  writer.text(spec.cgroup);
  writer.number(spec.cpus);
  writer.number(spec.memory.count());
  writer.number(spec.grace.count());
  writer.number(spec.log_bytes_max.count());
  writer.text(spec.output);
  writer.text(spec.checkpoints);
  writer.number(spec.has_saved ? 1 : 0);
  writer.number(spec.open_files);
  writer.text(spec.owner);
  writer.number(spec.isolation ? 1 : 0);
  if (spec.isolation) write_isolation(writer, *spec.isolation);
  writer.number(spec.secrets);
  if (writer.content().size() > spec_bytes_max)
    return invalid("the rank's command and environment are larger than 4 MiB")
        .remedy("pass large data as a file");
  return files::replace_file(path_of(folder, "spec"), writer.content());
}

Result<RankSpec> read_spec(const std::string& folder) {
  const std::string path = path_of(folder, "spec");
  auto content = files::read_plain_file(path, spec_bytes_max);
  if (!content) return std::move(content).error();
  if (!*content) return failed("there is no " + path);
  SpecReader reader(**content);
  RankSpec spec;
  spec.command = reader.words();
  spec.env = reader.words();
  spec.workdir = reader.text();
  spec.cgroup = reader.text();
  const std::int64_t cpus = reader.number();
  spec.memory = Bytes(reader.number());
  spec.grace = Duration(reader.number());
  spec.log_bytes_max = Bytes(reader.number());
  spec.output = reader.text();
  spec.checkpoints = reader.text();
  if (reader.versions_back() < 4) {
    spec.has_saved = reader.number() != 0;
    spec.open_files = reader.number();
  }
  if (reader.versions_back() < 3) spec.owner = reader.text();
  if (reader.versions_back() < 2 && reader.number() != 0) spec.isolation = read_isolation(reader);
  const std::int64_t secrets = reader.versions_back() < 1 ? reader.number() : 0;
  if (!reader.sound() || cpus < 0 || cpus > cpus_max || secrets < 0 ||
      std::cmp_greater(secrets, rank_secrets_max))
    return failed("it is damaged").within(path);
  spec.cpus = static_cast<std::int32_t>(cpus);
  spec.secrets = static_cast<std::int32_t>(secrets);
  if (auto sound = validate(spec); !sound) return std::move(sound).error().within(path);
  return spec;
}

namespace {

// Behind the end of the file where that can be had: then it need not be cut when less is written.
int keep_room(int file) {
  if (fallocate(file, FALLOC_FL_KEEP_SIZE, 0, exit_bytes_max) == 0) return 0;
  return errno == EOPNOTSUPP ? posix_fallocate(file, 0, exit_bytes_max) : errno;
}

}  // namespace

Result<> reserve_exit(const std::string& folder) {
  const std::string path = path_of(folder, "exit.room");
  unlink(path.c_str());
  const files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const int why = file.valid() ? keep_room(file.get()) : errno;
  // A disk that cannot reserve room is no reason not to start.
  if (why == 0 || why == EOPNOTSUPP || why == EINVAL) return {};
  unlink(path.c_str());
  return failed_errno("cannot write " + path, why).remedy("make room on the disk of the agent's folder");
}

namespace {

// Into the room that was kept for it: on a full disk this is what still works.
bool write_in_place(const std::string& folder, const std::string& content) {
  const std::string path = path_of(folder, "exit.room");
  const files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return files::write_at(file.get(), 0, as_bytes(content), path) &&
         (std::cmp_less_equal(status.st_size, content.size()) ||
          ftruncate(file.get(), static_cast<off_t>(content.size())) == 0) &&
         rename(path.c_str(), path_of(folder, "exit").c_str()) == 0;
}

}  // namespace

Result<> write_exit(const std::string& folder, const RankExit& exit) {
  const std::string content =
      std::to_string(exit.exit_code) + std::string(exit.by_signal ? signal_word : "") +
      std::string(exit.node_fault ? node_fault_word : "") +
      std::string(exit.no_program ? no_program_word : "") + std::string(exit.starved ? starved_word : "") +
      "\n" + exit.detail.substr(0, detail_bytes_max);
  if (write_in_place(folder, content)) return {};
  return files::replace_file(path_of(folder, "exit"), content);
}

namespace {

bool take_suffix(std::string_view& text, std::string_view suffix) {
  const bool there = text.ends_with(suffix);
  if (there) text.remove_suffix(suffix.size());
  return there;
}

}  // namespace

Result<std::optional<RankExit>> read_exit(const std::string& folder) {
  const std::string path = path_of(folder, "exit");
  auto content = files::read_plain_file(path, detail_bytes_max + line_bytes_max);
  if (!content) return std::move(content).error();
  if (!*content) return std::optional<RankExit>();
  const std::string_view text = **content;
  const std::size_t line_end = std::min(text.find('\n'), text.size());
  RankExit exit;
  std::string_view code = text.substr(0, line_end);
  exit.starved = take_suffix(code, starved_word);
  exit.no_program = take_suffix(code, no_program_word);
  exit.node_fault = take_suffix(code, node_fault_word);
  exit.by_signal = take_suffix(code, signal_word);
  if (line_end == text.size() || !read_number(code, exit.exit_code) || exit.exit_code < 0 ||
      exit.exit_code > 255)
    return failed("it is damaged").within(path);
  exit.detail = text.substr(line_end + 1);
  return std::optional(std::move(exit));
}

Instant exit_written_at(const std::string& folder) {
  struct stat status {};
  if (lstat(path_of(folder, "exit").c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  // Not when its content was written, which is a time that the rank may set.
  return Instant(std::chrono::seconds(status.st_ctim.tv_sec) +
                 std::chrono::nanoseconds(status.st_ctim.tv_nsec));
}

std::string said_folder(const std::string& folder) { return path_of(folder, said_name); }

// The folder that it is made in is closed to its account, which cannot put anything else in its place.
Result<> make_said_folder(const std::string& folder, const Account& account) {
  const std::string path = said_folder(folder);
  if (auto made = files::make_folder(path, 0700); !made) return made;
  if (lchown(path.c_str(), account.uid, account.gid) != 0)
    return failed_errno("cannot hand over " + path, errno);
  return {};
}

std::string verdict_path(const std::string& folder) { return path_of(folder, verdict_name); }

std::string progress_path(const std::string& folder) { return path_of(folder, progress_name); }

namespace {

// What a rank has written for people, if it is short enough.
std::string read_sentence(const std::string& path) {
  auto content = files::read_plain_file(path, verdict_bytes_max);
  return content && *content ? valid_utf8(**content) : "";
}

// Its account may have mounted something over it, which is not looked at: that may not answer.
files::FileDescriptor open_said(const std::string& folder, int flags) {
  const files::FileDescriptor above(open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return files::open_below(above, said_name, flags);
}

// In the folder that is the rank's own: what is read there for it is what its account could read. A name that
// it has given to the file of somebody else is not, and whose a file is does not change while it is open.
std::string read_own_sentence(const std::string& folder, const std::string& name) {
  const files::FileDescriptor said = open_said(folder, files::folder_flags);
  const files::FileDescriptor file =
      files::open_below(said, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  struct stat account {};
  struct stat status {};
  if (!file.valid() || fstat(said.get(), &account) != 0 || fstat(file.get(), &status) != 0) return "";
  if (!S_ISREG(status.st_mode) || status.st_uid != account.st_uid || status.st_nlink != 1) return "";
  std::array<std::byte, verdict_bytes_max + 1> buffer{};
  const auto count = files::read_some(file.get(), buffer, name);
  if (!count || *count > verdict_bytes_max) return "";
  return valid_utf8({reinterpret_cast<const char*>(buffer.data()), *count});
}

}  // namespace

bool has_said_folder(const std::string& folder) {
  return open_said(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC).valid() || errno == EXDEV;
}

std::string folder_place(const std::string& folder) {
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0) return no_place;
  return std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
}

std::string read_verdict(const std::string& folder) {
  return has_said_folder(folder) ? read_own_sentence(folder, verdict_name)
                                 : read_sentence(verdict_path(folder));
}
std::string read_progress(const std::string& folder) {
  return has_said_folder(folder) ? read_own_sentence(folder, progress_name)
                                 : read_sentence(progress_path(folder));
}

Result<> write_shim(const std::string& folder, const ShimProcess& shim) {
  return files::replace_file(
      path_of(folder, "shim"),
      std::to_string(shim.pid) + " " + std::to_string(shim.start_time) + " " + folder_place(folder) + "\n");
}

Result<std::optional<ShimProcess>> read_shim(const std::string& folder) {
  const std::string path = path_of(folder, "shim");
  auto content = files::read_plain_file(path, line_bytes_max);
  if (!content) return std::move(content).error();
  if (!*content) return std::optional<ShimProcess>();
  const auto fields = split(trim(**content), ' ');
  ShimProcess shim;
  // Earlier versions noted no place.
  const bool placed = fields.size() == 3 && fields[2].find(':') != std::string_view::npos;
  if ((fields.size() != 2 && !placed) || !read_number(fields[0], shim.pid) ||
      !read_number(fields[1], shim.start_time) || shim.pid <= 0)
    return failed("it is damaged").within(path);
  if (placed && fields[2] != folder_place(folder)) return std::optional<ShimProcess>();
  return std::optional(shim);
}

// The shim writes its file first and then looks for the mark; here it is the other way round. So one of the
// two sees the other, whoever was faster.
Result<std::optional<ShimProcess>> take_over(const std::string& folder) {
  auto shim = read_shim(folder);
  if (!shim || *shim) return shim;
  if (auto marked = files::replace_file(path_of(folder, "given_up"), ""); !marked)
    return std::move(marked).error();
  return read_shim(folder);
}

bool is_given_up(const std::string& folder) { return access(path_of(folder, "given_up").c_str(), F_OK) == 0; }

Result<> mark_stopped(const std::string& folder) {
  return files::replace_file(path_of(folder, "stopped"), "");
}

bool is_stopped(const std::string& folder) { return access(path_of(folder, "stopped").c_str(), F_OK) == 0; }

void unmark_stopped(const std::string& folder) { unlink(path_of(folder, "stopped").c_str()); }

bool is_own_folder(const std::string& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

namespace {

bool is_it_and_runs(const ProcessStatus& status, const ShimProcess& shim) {
  return status.start_time == shim.start_time && !status.ended();
}

}  // namespace

bool is_alive(const ShimProcess& shim) {
  const auto status = read_process(shim.pid);
  return status && is_it_and_runs(*status, shim);
}

bool is_gone(const ShimProcess& shim) {
  if (shim.pid <= 0 || (kill(shim.pid, 0) != 0 && errno == ESRCH)) return true;
  const auto status = read_process(shim.pid);
  return status && !is_it_and_runs(*status, shim);
}

}  // namespace tutti::rank
