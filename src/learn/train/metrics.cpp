#include "learn/train/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <span>

#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::train {
namespace {

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

Result<MetricsFile> MetricsFile::open(const std::string& path, std::int64_t step) {
  files::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0644));
  if (!file.valid()) return failed_errno(path, errno);
  const Kept kept = kept_lines(path, step);
  if (ftruncate(file.get(), kept.end) != 0) return failed_errno(path, errno);
  return MetricsFile(std::move(file), path, kept.skipped);
}

Result<> MetricsFile::append(const StepMetrics& metrics) {
  const off_t end = lseek(file_.get(), 0, SEEK_END);
  const std::string line = metrics.json();
  auto written = files::write_all(file_.get(), std::as_bytes(std::span(line)), path_);
  // Half a line would be glued to the next.
  if (!written && end >= 0) static_cast<void>(ftruncate(file_.get(), end) == 0);
  return written;
}

}  // namespace tutti::train
