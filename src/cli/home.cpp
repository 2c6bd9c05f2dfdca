#include "cli/home.hpp"

#include <algorithm>
#include <filesystem>

#include "base/files/files.hpp"
#include "control/controller/store_file.hpp"

namespace tutti::cli {
namespace {

constexpr const char* mark_name = "tutti-home";
constexpr const char* mark_text =
    "The local cluster of `tutti up` lives in this folder. `tutti down --clean` removes it.\n";
// The lock of HomeLock stays: whoever waits for it has it open.
constexpr const char* lock_name = "lock";

bool is_there(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::exists(path, unknown);
}

}  // namespace

Result<HomeKind> kind_of_home(const std::string& home) {
  auto names = files::list_folder(home);
  if (!names) return std::move(names).error();
  if (!*names) return HomeKind::empty;
  // Earlier versions left no mark, and always these two; a controller started by hand has no notes of
  // processes.
  if (is_there(home + "/" + mark_name) ||
      (is_there(controller::store_file(home + "/controller")) && is_there(home + "/processes")))
    return HomeKind::own;
  const bool is_empty = std::all_of((*names)->begin(), (*names)->end(), [](const auto& name) {
    return name == lock_name || name == mark_name + std::string(".new");  // a crash may have left that one
  });
  return is_empty ? HomeKind::empty : HomeKind::foreign;
}

bool was_locked(const std::string& home) { return is_there(home + "/" + lock_name); }

Result<> mark_home(const std::string& home) {
  return files::replace_file(home + "/" + mark_name, mark_text, {.durable = true});
}

std::vector<std::string> clean_home(const std::string& home) {
  std::vector<std::string> left;
  for (const char* part : {"controller", "nodes", "logs", "processes", "checkpoints", mark_name}) {
    if (!left.empty() && part == mark_name) break;  // the next `down --clean` tries again
    if (auto removed = files::remove_folder(home + "/" + part); !removed)
      left.push_back(removed.error().text());
  }
  return left;
}

}  // namespace tutti::cli
