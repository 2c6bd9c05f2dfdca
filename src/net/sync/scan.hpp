// Reads a user's folder into a manifest: what a job gets to see of it. .tuttiignore at its top says what
// stays at home (ignore.hpp); .git always does. Runs on the caller's thread and reads every file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "net/sync/manifest.hpp"

namespace tutti::sync {

struct ScanOptions {
  Limits limits;
  // Told of each file before it is read, with its path inside the folder: to show how far the scan is.
  std::function<void(const std::string& path)> on_file;
};

struct ScanResult {
  Manifest manifest;
  std::vector<std::string> warnings;  // what was left out although no rule says so; bounded
  Bytes bytes;                        // all files together
};

// Sockets, pipes, devices and links that lead out of the folder are left out with a warning. A file that
// changes or vanishes meanwhile is an error: its content would be of no moment that ever was. A folder above
// the limits is refused before any file is read.
Result<ScanResult> scan(const std::string& folder, const ScanOptions& options = {});

}  // namespace tutti::sync
