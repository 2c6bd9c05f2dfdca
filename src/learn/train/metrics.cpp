#include "learn/train/metrics.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <span>
#include <vector>

#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::train {
namespace {

constexpr std::int64_t copied_at_once = 1 << 20;

// The lines up to a step: where they end in the file, and how many steps they count as skipped.
struct Kept {
  std::int64_t end = 0;
  std::int64_t skipped = 0;
};
Kept kept_lines(const std::string& path, std::int64_t step) {
  std::ifstream in(path);
  std::string line;
  Kept kept;
  while (std::getline(in, line) && !in.eof()) {
    const auto value = json::parse(line);
    const json::Value* const at = value ? value->find("step") : nullptr;
    if (at == nullptr || !at->whole() || *at->whole() > step) break;
    kept.end += static_cast<std::int64_t>(line.size()) + 1;
    const json::Value* const skipped = value->find("skipped");
    kept.skipped = skipped != nullptr ? skipped->whole().value_or(0) : 0;
  }
  return kept;
}

Result<> copy_lines(const std::string& from, std::int64_t bytes, int to, const std::string& name) {
  std::ifstream in(from);
  std::vector<char> piece(copied_at_once);
  while (bytes > 0) {
    in.read(piece.data(), static_cast<std::streamsize>(std::min<std::int64_t>(bytes, copied_at_once)));
    const auto got = in.gcount();
    if (got <= 0) return failed("it cannot be read").within(from);
    const std::span lines(piece.data(), static_cast<std::size_t>(got));
    if (auto written = files::write_all(to, std::as_bytes(lines), name); !written) return written;
    bytes -= got;
  }
  return {};
}

}  // namespace

std::string StepMetrics::json() const {
  // In the order in which a person reads them, not in that of the keys.
  const std::pair<const char*, json::Value> fields[] = {
      {"step", step},           {"loss", loss},        {"tokens", tokens},   {"tokens_per_s", tokens_per_s},
      {"grad_norm", grad_norm}, {"lr", learning_rate}, {"step_ms", step_ms}, {"data", data},
      {"skipped", skipped}};
  std::string line;
  for (const auto& [key, value] : fields)
    line += (line.empty() ? "{" : ",") + json::write(key) + ":" + json::write(value);
  return line + "}\n";
}

// A new file takes the place of the old one: an attempt that was replaced and does not know it yet has the
// old one open, and what it still writes goes nowhere.
Result<MetricsFile> MetricsFile::open(const std::string& path, std::int64_t step) {
  const Kept kept = kept_lines(path, step);
  const std::string next = path + ".new";
  unlink(next.c_str());
  files::FileDescriptor file(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0644));
  if (!file.valid()) return failed_errno(next, errno);
  auto done = copy_lines(path, kept.end, file.get(), next);
  if (done && rename(next.c_str(), path.c_str()) != 0) done = failed_errno(path, errno);
  if (!done) {
    unlink(next.c_str());
    return std::move(done).error();
  }
  return MetricsFile(std::move(file), path, kept.skipped);
}

Result<> MetricsFile::append(const StepMetrics& metrics) {
  struct stat status {};
  if (fstat(file_.get(), &status) == 0 && status.st_nlink == 0)
    return failed("it was removed or replaced since it was opened").within(path_);
  const off_t end = lseek(file_.get(), 0, SEEK_END);
  const std::string line = metrics.json();
  auto written = files::write_all(file_.get(), std::as_bytes(std::span(line)), path_);
  // Half a line would be glued to the next.
  if (!written && end >= 0) static_cast<void>(ftruncate(file_.get(), end) == 0);
  return written;
}

}  // namespace tutti::train
