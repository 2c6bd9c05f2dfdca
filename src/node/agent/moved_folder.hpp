// An agent's folder that was moved away, unmounted or removed under its ranks: they run on, and an agent that
// began anew in its place would know nothing of them and hand out their devices a second time. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::agent {

// An error if ranks run that an agent with this folder has started, while their own folders are in another
// one by now that no agent answers for, or were removed with the agent's. Makes nothing: the folder need not
// be there.
Result<> check_no_ranks_elsewhere(const std::string& folder);

// For people: that ranks run on this machine which an agent with another folder has started, and that no
// agent answers for them now, of each folder. It may have been this one, under the name that the machine had
// before. Waits for the disks of those folders.
std::vector<std::string> ranks_without_agent(const std::string& folder);

}  // namespace tutti::agent
