// A process that has failed, or is done, ends by a deadline, whatever it then waits for: a disk that does not
// answer, a device, a peer. Any thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::train {

// From the first failure of a rank, or from its end, to its exit.
constexpr Duration exit_deadline = std::chrono::seconds(60);

// What a rank that ends with this error exits with: what is wrong with the request asks for no restart, and
// what the disk did not do now for a later one.
int exit_code_of(const Error& error);

// Ends the process after so long with the error's exit code, if it has not ended by itself. The first call
// counts.
void leave_after(Duration deadline, const Error& error);
// The same with this code, and these words of why it was waited for.
void leave_after(Duration deadline, int exit_code, const std::string& words);

}  // namespace tutti::train
