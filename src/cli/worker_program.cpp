#include "cli/worker_program.hpp"

#include <filesystem>

namespace tutti::cli {

std::string worker_program() {
  namespace fs = std::filesystem;
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "tutti-worker";
  std::error_code ignored;
  return fs::exists(beside, ignored) ? beside.string() : "tutti-worker";
}

}  // namespace tutti::cli
