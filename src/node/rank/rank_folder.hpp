// What the agent and the shim tell each other, through the files of one folder per rank: `spec`, written by
// the agent before the shim starts; `shim`, the shim's first act; `exit`, its last; and between them the log
// (log_segments.hpp). Files outlive both, so a new agent finds the ranks of the one before it. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "node/rank/isolation.hpp"

namespace tutti::rank {

constexpr std::size_t spec_bytes_max = std::size_t{4} << 20;
constexpr std::size_t detail_bytes_max = 4096;
constexpr std::size_t verdict_bytes_max = 2048;
constexpr std::int32_t cpus_max = 65'536;
constexpr Duration grace_max = 24h * 7;
constexpr Bytes log_bytes_smallest = kib(16);
constexpr Bytes log_bytes_largest = gib(1024);

struct RankSpec {
  std::vector<std::string> command;
  std::vector<std::string> env;             // K=V, the complete environment
  std::string workdir;                      // where the command starts
  std::string cgroup;                       // a name for this rank on this machine, such as "tutti-n1-7.0.3"
  std::int32_t cpus = 0;                    // 0: no limit
  Bytes memory;                             // 0: no limit
  Duration grace = 10s;                     // between SIGTERM and SIGKILL
  Bytes log_bytes_max = mib(64);            // older output is dropped
  std::string output;                       // a file that gets a copy of the log, "" for none
  std::string checkpoints;                  // made by the rank's own process before its command, "" for none
  bool has_saved = false;                   // an earlier attempt of its job had that folder: it must be there
  std::int64_t open_files = 0;              // that it may have; 0: as many as its shim
  std::string owner;                        // whose job it is, "" if that is not known
  std::optional<Isolation> isolation = {};  // nothing: it runs as its agent does
  std::int32_t secrets = 0;                 // that come beside it, and stand in no file of this folder

  friend bool operator==(const RankSpec&, const RankSpec&) = default;
};

struct RankExit {
  std::int32_t exit_code = 0;  // 128 + signal for a signal, as in a shell
  std::string detail;          // why it could not start or was killed, "" otherwise
  bool node_fault = false;     // nothing of it has run, for want of what this node lacks: it could elsewhere
  bool by_signal = false;      // that ended it
  bool starved = false;        // the kernel has killed it, perhaps, for want of memory of the machine
  bool no_program = false;     // its command is not here or may not be run: nothing of it has run

  friend bool operator==(const RankExit&, const RankExit&) = default;
};

struct ShimProcess {
  pid_t pid = 0;
  std::uint64_t start_time = 0;

  friend bool operator==(const ShimProcess&, const ShimProcess&) = default;
};

// Both refuse a specification that no shim could follow.
Result<> write_spec(const std::string& folder, const RankSpec& spec);
Result<RankSpec> read_spec(const std::string& folder);

// Keeps room for the end of the rank, before it starts: a rank that has run must not run again because the
// disk was full when it ended.
Result<> reserve_exit(const std::string& folder);
// Nothing while the rank has not ended.
Result<> write_exit(const std::string& folder, const RankExit& exit);
Result<std::optional<RankExit>> read_exit(const std::string& folder);
// When the end was written, or touched since, on the clock of this machine; zero if there is none.
Instant exit_written_at(const std::string& folder);

// A folder of the rank's own in its folder, for what it says, where it runs as somebody else than its agent
// and may not write there. It belongs to that account.
std::string said_folder(const std::string& folder);
bool has_said_folder(const std::string& folder);
// Makes it.
Result<> make_said_folder(const std::string& folder, const Account& account);

// Where the rank's collectives leave what they know about a fault, as a sentence; "" if they have left
// nothing. A rank with a folder of its own writes there, below said_folder(), and is read there.
std::string verdict_path(const std::string& folder);
std::string read_verdict(const std::string& folder);
// Where the rank may say how far it is, in a line (TUTTI_PROGRESS_FILE). As bounded as a verdict.
std::string progress_path(const std::string& folder);
std::string read_progress(const std::string& folder);

// The folder itself, whatever it is called, by its device and inode: a copy of it is another one.
std::string folder_place(const std::string& folder);
constexpr const char* no_place = "0:0";  // of one that is not there

// Nothing while the shim has not written it, and in a copy of its folder: that process is another one's.
Result<> write_shim(const std::string& folder, const ShimProcess& shim);
Result<std::optional<ShimProcess>> read_shim(const std::string& folder);

// For whoever comes after the agent that started the rank, and cannot know how far that got: the shim, or
// nothing, and then none will come any more, because a late one finds the rank given up and ends.
Result<std::optional<ShimProcess>> take_over(const std::string& folder);
bool is_given_up(const std::string& folder);

// The node is being shut down as planned: how the rank ends from now on is nobody's fault. Taken back for a
// rank that has lived on.
Result<> mark_stopped(const std::string& folder);
bool is_stopped(const std::string& folder);
void unmark_stopped(const std::string& folder);

// It is a folder, and not a link that its rank has put in its place.
bool is_own_folder(const std::string& folder);

// The process of this very start: one that has ended or that got the same pid later does not count. Both are
// sure of what they say: where no file can be opened to look, it is neither alive nor gone.
bool is_alive(const ShimProcess& shim);
bool is_gone(const ShimProcess& shim);

}  // namespace tutti::rank
