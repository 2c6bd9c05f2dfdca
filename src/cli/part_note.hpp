// What is noted of a part of the local cluster: which process it is, how it was started, and where. A pid
// means nothing on another host, after a restart of the machine, in another pid namespace or in a copy of the
// folder: the process that has it there is somebody else's. Used by the main thread only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::cli {

struct PartNote {
  rank::ShimProcess process;
  std::string place;               // where that pid counts; "" in a note of an earlier version
  std::string host;                // for people
  std::vector<std::string> words;  // its command line
};

// The boot of the machine, the pid namespace and the folder itself, whatever it is called.
std::string place_of_home(const std::string& home);

// Nothing if there is none, or none that can be read.
std::optional<PartNote> read_note(const std::string& file);
// Place and host are those of now.
Result<> write_note(const std::string& file, const std::string& home, const rank::ShimProcess& process,
                    const std::vector<std::string>& words);

}  // namespace tutti::cli
