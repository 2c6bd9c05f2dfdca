// The folder for the checkpoints of a job, ROOT/JOB, on a disk that all nodes share, and the marks beside it:
// `.begun/JOB` from the first attempt of the job to its end, and then `.ended/JOB`, whose age is the time
// since. The marks are tutti's and not the job's, which may do what it likes with its folder. Any thread; all
// of it waits for the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "node/rank/account.hpp"

namespace tutti::rank {

// Where the account itself is to make the folder: nowhere, unless root is nobody on that disk.
struct BegunCheckpoints {
  files::FileDescriptor above;
};

// An attempt is about to run: makes the folder, which has changed at time zero until something is saved in
// it, and the job is not over. `expected`: an earlier attempt had the folder. `held`: the folder of the rank,
// as its shim holds it. Where that of its agent was removed no ROOT is made: it was removed too, if it was in
// the same home, which would be back. `account`: who is to have the folder alone. An error says why nothing
// may run: nothing of what is expected is here, and this is another disk; ROOT is not the agent's
// (checkpoint_root.hpp); or (invalid) the folder is somebody else's than the account's, here as elsewhere.
Result<BegunCheckpoints> begin_checkpoints(const std::string& folder, bool expected,
                                           const std::filesystem::path& held = {},
                                           const Account* account = nullptr);
// Then, when this process is the account: makes it where root could not. The same errors.
Result<> make_own_checkpoints(const BegunCheckpoints& begun, const std::string& folder,
                              const Account& account);

// The job is over for good: an empty folder goes, of another one the age counts from now on.
Result<> end_checkpoints(const std::string& folder);

// Removes what is in the folders below ROOT of jobs that ended before that time, a bounded number of them: it
// goes on behind `tried_last`, and leaves there which was tried last. A job that has begun again since keeps
// its folder. The first error of those that stay for one: the others go all the same.
Result<> remove_old_checkpoints(const std::string& root, Instant ended_before, std::string& tried_last);

// The highest id, up to `most`, of a job that has a folder below ROOT, of a bounded number of names; 0 if
// none has, nothing if there is no ROOT.
Result<std::optional<std::uint64_t>> last_saved_job(const std::string& root, std::uint64_t most);

}  // namespace tutti::rank
