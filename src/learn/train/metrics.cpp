#include "learn/train/metrics.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "base/units.hpp"

namespace tutti::train {
namespace {

constexpr std::size_t read_at_once = 1 << 20;
constexpr std::size_t line_bytes_max = 16 << 20;

// Lines of others are none of these, and stay.
struct StepLine {
  std::int64_t step = 0;
  std::int64_t skipped = 0;
};
std::optional<StepLine> step_line(std::string_view line) {
  const auto value = json::parse(line);
  const json::Value* const step = value ? value->find("step") : nullptr;
  if (step == nullptr || !step->whole()) return std::nullopt;
  const json::Value* const skipped = value->find("skipped");
  return StepLine{*step->whole(), skipped != nullptr ? skipped->whole().value_or(0) : 0};
}

// Copies what is not computed again, a piece at a time.
class KeptLines {
 public:
  KeptLines(std::int64_t step, int to, std::string name) : step_(step), to_(to), name_(std::move(name)) {}

  Result<> copy(int from, const std::string& name) {
    std::vector<std::byte> piece(read_at_once);
    for (;;) {
      const auto got = files::read_some(from, piece, name);
      if (!got) return got.error();
      if (*got == 0) return finish();
      rest_.append(reinterpret_cast<const char*>(piece.data()), *got);
      if (auto written = take_lines(); !written) return written;
      if (rest_.size() > line_bytes_max)
        return failed("it has a line of more than " + std::to_string(line_bytes_max >> 20) + " MiB")
            .within(name);
    }
  }
  // As the last line of a step that stayed has it.
  std::int64_t skipped() const { return skipped_; }

 private:
  Result<> take_lines() {
    std::string kept;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const auto found = step_line(std::string_view(rest_).substr(begin, end - begin));
      if (stays(found)) kept.append(rest_, begin, end + 1 - begin);
    }
    rest_.erase(0, begin);
    return write(kept);
  }
  // Of a last line that a crash has cut off nothing can be told, unless it lacks its end alone.
  Result<> finish() {
    const auto found = step_line(rest_);
    return found && stays(found) ? write(rest_ + '\n') : Result<>();
  }
  bool stays(const std::optional<StepLine>& line) {
    if (!line) return true;
    if (line->step > step_) return false;
    skipped_ = line->skipped;
    return true;
  }
  Result<> write(const std::string& lines) const {
    return files::write_all(to_, std::as_bytes(std::span(lines)), name_);
  }

  const std::int64_t step_;
  const int to_;
  const std::string name_;
  std::string rest_;
  std::int64_t skipped_ = 0;
};

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
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
// old one open, and what it still writes goes nowhere. The old one is all that tells of the steps so far: it
// goes when the new one is on the disk, and stays where it cannot be read.
Result<MetricsFile> MetricsFile::open(const std::string& path, std::int64_t step) {
  const auto old = files::open_file(path);
  if (!old) return Error(old.error()).remedy("make it readable, or move it away: nothing of it was changed");
  const std::string next = path + ".new";
  unlink(next.c_str());
  files::FileDescriptor file(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0644));
  if (!file.valid()) return failed_errno(next, errno);
  KeptLines kept(step, file.get(), next);
  auto done = *old ? kept.copy((*old)->file.get(), path) : Result<>();
  if (done) done = files::sync_file(file.get(), next);
  if (done && rename(next.c_str(), path.c_str()) != 0) done = failed_errno(path, errno);
  if (!done) {
    unlink(next.c_str());
    return std::move(done).error();
  }
  if (auto synced = files::sync_folder(folder_of(path)); !synced) return std::move(synced).error();
  return MetricsFile(std::move(file), path, kept.skipped());
}

Result<> MetricsFile::append(const std::string& line) {
  struct stat status {};
  if (fstat(file_.get(), &status) == 0 && status.st_nlink == 0)
    return failed("it was removed or replaced since it was opened").within(path_);
  const off_t end = lseek(file_.get(), 0, SEEK_END);
  auto written = files::write_all(file_.get(), std::as_bytes(std::span(line)), path_);
  // Half a line would be glued to the next.
  if (!written && end >= 0) static_cast<void>(ftruncate(file_.get(), end) == 0);
  return written;
}

Result<MetricsWriter> MetricsWriter::start(Write write) {
  auto problem = std::make_shared<Problem>();
  auto lines = files::LineQueue::start(
      waiting_bytes_max,
      [problem, write = std::move(write)](const std::string& line) {
        if (auto written = write(line); !written) problem->note(std::move(written).error());
        return true;
      },
      [](std::uint64_t) { return true; });
  if (!lines) return std::move(lines).error();
  return MetricsWriter(std::move(problem), std::move(*lines));
}

void MetricsWriter::append(const StepMetrics& metrics) {
  if (lines_.add(metrics.json())) return;
  problem_->note(
      failed("the disk takes no metrics: " + format_bytes(Bytes(waiting_bytes_max)) + " of them wait"));
}

std::optional<Error> MetricsWriter::take_problem() {
  const std::lock_guard lock(problem_->mutex);
  return std::exchange(problem_->first, std::nullopt);
}

void MetricsWriter::Problem::note(Error error) {
  const std::lock_guard lock(mutex);
  if (!std::exchange(noted, true)) first = std::move(error);
}

}  // namespace tutti::train
