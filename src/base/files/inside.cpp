#include "base/files/inside.hpp"

#include <algorithm>
#include <filesystem>

namespace tutti::files {
namespace {

// As far as the path is there, without links; without a slash at its end.
std::filesystem::path resolved(const std::string& path) {
  std::error_code failure;
  auto absolute = std::filesystem::absolute(path, failure);
  auto found = std::filesystem::weakly_canonical(absolute, failure);
  if (failure) found = absolute.lexically_normal();
  return found.has_filename() ? found : found.parent_path();
}

}  // namespace

bool is_inside(const std::string& path, const std::string& folder) {
  const auto inner = resolved(path);
  const auto outer = resolved(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace tutti::files
