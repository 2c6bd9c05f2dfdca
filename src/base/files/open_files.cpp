#include "base/files/open_files.hpp"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/files/descriptor.hpp"

namespace tutti::files {
namespace {

constexpr std::size_t kept_files = 256;  // stores, logs, shipped files
// Where a system sets no limit its kernel still does: far beyond what is needed here.
constexpr rlim_t unlimited_files = rlim_t{1} << 30;

std::size_t count_of(rlim_t limit) { return static_cast<std::size_t>(std::min(limit, unlimited_files)); }

}  // namespace

OpenFiles raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  const std::size_t before = count_of(limit.rlim_cur);
  rlimit wanted = limit;
  wanted.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &wanted) == 0) limit = wanted;
  return {.before = before, .most = count_of(limit.rlim_cur)};
}

std::size_t files_to_give(std::size_t most) { return most - std::min(most / 2, kept_files); }

bool can_open(std::size_t files) {
  std::vector<FileDescriptor> opened;
  while (opened.size() < files) {
    FileDescriptor next(::eventfd(0, EFD_CLOEXEC));
    if (!next.valid()) return false;
    opened.push_back(std::move(next));
  }
  return true;
}

void set_open_files(std::size_t soft_limit) {
  rlimit limit{};
  if (soft_limit == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(soft_limit, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace tutti::files
