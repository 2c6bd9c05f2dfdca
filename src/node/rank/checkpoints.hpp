// The folder for the checkpoints of a job, ROOT/JOB, on a disk that all nodes share, and the marks beside it:
// `.begun/JOB` from the first attempt of the job to its end, and then `.ended/JOB`, whose age is the time
// since. The marks are tutti's and not the job's, which may do what it likes with its folder. Any thread; all
// of it waits for the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "node/rank/account.hpp"

namespace tutti::rank {

// An attempt is about to run: makes the folder, which has changed at time zero until something is saved in
// it, and the job is not over. `expected`: an earlier attempt had the folder. An error only if nothing of
// that is here: then this is another disk. `held`: the folder of the rank, as its shim holds it. Where that
// of its agent was removed no ROOT is made: it was removed too, if it was in the same home, which would be
// back.
Result<> begin_checkpoints(const std::string& folder, bool expected, const std::filesystem::path& held = {});

// That folder is for the account alone from now on, if it is this process's own. 0, or why not: EPERM if it
// is somebody else's, or no folder. One that is not there is fine.
int hand_over_checkpoints(const std::string& folder, const Account& account);

// What that error says.
Error missing_checkpoints(const std::string& folder);

// The job is over for good: an empty folder goes, of another one the age counts from now on.
Result<> end_checkpoints(const std::string& folder);

// Removes what is in the folders below ROOT of jobs that ended before that time, a bounded number of them.
// A job that has begun again since keeps its folder. The first error of those that stay for one: the others
// go all the same.
Result<> remove_old_checkpoints(const std::string& root, Instant ended_before);

// The highest id, up to `most`, of a job that has a folder below ROOT, of a bounded number of names; 0 if
// none has, nothing if there is no ROOT.
Result<std::optional<std::uint64_t>> last_saved_job(const std::string& root, std::uint64_t most);

}  // namespace tutti::rank
