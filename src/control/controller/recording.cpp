#include "control/controller/recording.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/log/log.hpp"
#include "control/trace/row.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t waiting_bytes_max = std::size_t{4} << 20;

// A line, or none of it.
bool write_whole(int file, const std::string& name, const std::string& line) {
  const off_t before = ::lseek(file, 0, SEEK_END);
  const ssize_t written = ::write(file, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return true;
  if (written >= 0) {
    if (::ftruncate(file, before) != 0) log::warning("half a line is left in {}", name);
    errno = ENOSPC;
  }
  return false;
}

// What the thread that writes has; it may be stuck in it for longer than the recording lives.
class TraceFile {
 public:
  TraceFile(files::FileDescriptor file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  // That it cannot be written is said once, and how many are missing when it can be again.
  void put(const std::string& line) {
    const bool written = write_whole(file_.get(), name_, line);
    if (!written && missing_ == 0) log::error("cannot record: {}: {}", name_, std::strerror(errno));
    if (written && missing_ > 0)
      log::warning("records again: {}; {} jobs are missing in it, `tutti record` tells what is remembered",
                   name_, missing_);
    missing_ = written ? 0 : missing_ + 1;
  }

  const std::string& name() const { return name_; }

 private:
  files::FileDescriptor file_;
  std::string name_;
  std::uint64_t missing_ = 0;
};

// All attempts together, as if with all the devices that it wanted.
std::string line_of(const cluster::Job& job) {
  const double devices =
      static_cast<double>(job.spec.shape.ranks) * job.spec.shape.gpu_share / sched::whole_share;
  const std::string& model = job.spec.shape.gpu_model;
  return trace::line_of(
      {.id = job.id.text(),
       .submit_s = in_seconds(job.submitted_at.time_since_epoch()),
       .gpus = devices,
       .duration_s = job.served > 0 ? job.served / devices : in_seconds(job.finished_at - job.started_at),
       // What it asked for, as a replay asks for it again; a trace has room for one.
       .gpu_type = model.find('|') == std::string::npos ? model : "",
       .user = job.spec.user,
       .status = std::string(name_of(job.state)),
       .partition = job.spec.queue});
}

}  // namespace

Result<Recording> Recording::open(const std::string& file) {
  files::FileDescriptor opened(
      ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644));
  if (!opened.valid()) return failed_errno("cannot be opened", errno).within("--record " + file);
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return invalid("is not a file").within("--record " + file);
  if (status.st_size == 0 && !write_whole(opened.get(), file, trace::header_line()))
    return failed_errno("cannot be written", errno).within("--record " + file);
  return onto(std::move(opened), file);
}

Result<Recording> Recording::onto(files::FileDescriptor file, const std::string& name) {
  const auto trace = std::make_shared<TraceFile>(std::move(file), name);
  auto lines = files::LineQueue::start(
      waiting_bytes_max,
      [trace](const std::string& line) {
        trace->put(line);
        return true;
      },
      [trace](std::uint64_t jobs) {
        log::error(
            "{} jobs are missing in {}, which did not take them; `tutti record` tells what is remembered",
            jobs, trace->name());
        return true;
      });
  if (!lines) return std::move(lines).error().within("--record " + name);
  return Recording(std::move(*lines));
}

// A line of a trace is not worth the core, which ends with what it throws.
void Recording::ended(const cluster::Job& job) const {
  if (job.started_at == Instant()) return;
  try {
    lines_.add(line_of(job));
  } catch (const std::bad_alloc&) {
    lines_.miss();
  }
}

}  // namespace tutti::controller
