#include "control/controller/recording.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log/log.hpp"
#include "control/trace/row.hpp"

namespace tutti::controller {
namespace {}  // namespace

Result<Recording> Recording::open(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
  if (descriptor < 0) return failed_errno("cannot be opened", errno).within("--record " + file);
  Recording recording(file, descriptor);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    return invalid("is not a file").within("--record " + file);
  if (status.st_size == 0 && !recording.write(trace::header_line()))
    return failed_errno("cannot be written", errno).within("--record " + file);
  return recording;
}

Recording::Recording(Recording&& other) noexcept
    : file_(std::move(other.file_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

Recording::~Recording() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Recording::ended(const cluster::Job& job) {
  if (job.started_at == Instant()) return;
  // All attempts together, as if with all the devices that it wanted.
  const double devices =
      static_cast<double>(job.spec.shape.ranks) * job.spec.shape.gpu_share / sched::whole_share;
  const std::string& model = job.spec.shape.gpu_model;
  const std::string line = trace::line_of(
      {.id = job.id.text(),
       .submit_s = in_seconds(job.submitted_at.time_since_epoch()),
       .gpus = devices,
       .duration_s = job.served > 0 ? job.served / devices : in_seconds(job.finished_at - job.started_at),
       // What it asked for, as a replay asks for it again; a trace has room for one.
       .gpu_type = model.find('|') == std::string::npos ? model : "",
       .user = job.spec.user,
       .status = std::string(name_of(job.state)),
       .partition = job.spec.queue});
  const bool written = write(line);
  if (!written && !failing_) log::error("cannot record: {}: {}", file_, std::strerror(errno));
  if (written && failing_) log::warning("records again: {}", file_);
  failing_ = !written;
}

// A whole line or none of it.
bool Recording::write(const std::string& text) {
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  const ssize_t written = ::write(descriptor_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return true;
  if (written >= 0) {
    if (::ftruncate(descriptor_, before) != 0) log::warning("half a line is left in {}", file_);
    errno = ENOSPC;
  }
  return false;
}

}  // namespace tutti::controller
