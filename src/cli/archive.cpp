#include "cli/archive.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/clock/clock.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "cli/progress_bar.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr std::size_t archive_page_jobs = 1000;
constexpr std::size_t archive_batch_jobs = 500;  // between two commits
constexpr off_t tail_block_bytes = 65'536;
constexpr std::size_t tail_bytes_max = 64 << 20;

// What is behind the last end of a line.
Result<std::string> last_piece(int file, off_t size, const std::string& path) {
  std::string piece;
  for (off_t end = size; end > 0;) {
    std::string block(static_cast<std::size_t>(std::min<off_t>(end, tail_block_bytes)), '\0');
    const off_t begin = end - static_cast<off_t>(block.size());
    if (::pread(file, block.data(), block.size(), begin) != static_cast<ssize_t>(block.size()))
      return failed_errno("cannot read " + files::shown(path), errno);
    const auto line_end = block.rfind('\n');
    piece.insert(0, line_end == std::string::npos ? block : block.substr(line_end + 1));
    if (line_end != std::string::npos) break;
    if (piece.size() > tail_bytes_max)
      return invalid(files::shown(path) + " ends in a line that no archive has").remedy("name another file");
    end = begin;
  }
  return piece;
}

// A command that was cut off in the middle of a line has removed no job of it. What it left is cut off, so
// that the next record does not become a part of it; a last line that is whole lacks its end only.
Result<> end_last_line(int file, const std::string& path) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  if (size < 0) return failed_errno("cannot read " + files::shown(path), errno);
  const auto piece = last_piece(file, size, path);
  if (!piece) return piece.error();
  if (piece->empty()) return {};
  if (json::accept(*piece)) return files::write_all(file, as_bytes("\n"), files::shown(path));
  if (piece->front() != '{' && piece->front() != '\0')  // a power cut leaves zeros, too
    return invalid(files::shown(path) + " ends in a line that is no job's").remedy("name another file");
  if (::ftruncate(file, size - static_cast<off_t>(piece->size())) != 0)
    return failed_errno("cannot cut " + files::shown(path), errno);
  print_note(files::shown(path) + " ended in the middle of a line: those " + std::to_string(piece->size()) +
             " bytes are cut off; the job that they told of was not removed with them");
  return {};
}

Result<files::FileDescriptor> open_archive(const std::string& path) {
  files::FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0)
    return failed_errno("cannot write " + files::shown(path), errno);
  if (!S_ISREG(status.st_mode)) return invalid(files::shown(path) + " is no file");
  // What could not be written is cut off again: nobody else may write meanwhile.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return failed("somebody else writes to " + files::shown(path)).remedy("wait, or name another file");
  if (auto ended = end_last_line(file.get(), path); !ended) return std::move(ended).error();
  // A new file is there after a power cut only with its name.
  const auto folder = std::filesystem::path(path).parent_path();
  if (auto kept = files::sync_folder(folder.empty() ? "." : folder.string()); !kept)
    return std::move(kept).error();
  return file;
}

// Oldest first. Times in the API are written so that they sort as they follow each other.
Result<std::vector<std::string>> due_jobs(Cluster& cluster, const std::string& ended_before,
                                          ProgressBar& bar) {
  std::vector<std::pair<std::string, std::string>> due;  // with the array that it belongs to, "" for none
  std::set<std::string> open_arrays;  // those that go on: their elements stay until all have ended
  bool newest = true;                 // it stays, because ids are counted on from it
  for (std::string before;;) {
    auto page = cluster.get("jobs?all=1&limit=" + std::to_string(archive_page_jobs) +
                            (before.empty() ? "" : "&before=" + before));
    if (!page) return std::move(page).error();
    for (const auto& job : page->at("jobs")) {
      const bool ended = job.contains("finished_at");
      if (!ended) open_arrays.insert(job.value("array_id", ""));
      if (ended && job.value("finished_at", "") < ended_before && !newest)
        due.emplace_back(job.value("id", ""), job.value("array_id", ""));
      newest = false;
    }
    if (!due.empty()) bar.show_count(0, due.size());
    before = page->value("next", "");
    if (before.empty()) break;
  }
  std::vector<std::string> ids;
  for (auto job = due.rbegin(); job != due.rend(); ++job) {
    if (job->second.empty() || !open_arrays.contains(job->second)) ids.push_back(job->first);
  }
  return ids;
}

// The ids of those that could be written: one may have been removed since it was listed.
Result<std::vector<std::string>> write_batch(Cluster& cluster, std::span<const std::string> ids, int file,
                                             const std::string& path) {
  std::string lines;
  std::vector<std::string> written;
  for (const std::string& id : ids) {
    auto job = cluster.get("jobs/" + url_encode(id));
    if (!job && job.error().code() == ErrorCode::invalid) continue;
    if (!job) return std::move(job).error();
    lines += job->dump() + "\n";
    written.push_back(id);
  }
  const off_t end = ::lseek(file, 0, SEEK_END);
  auto done = files::write_all(file, as_bytes(lines), files::shown(path));
  if (done) done = files::sync_file(file, files::shown(path));
  if (done) return written;
  // Jobs that stay in the cluster do not stand in the file, and no line ends in its middle.
  if (end < 0 || ::ftruncate(file, end) != 0)
    return std::move(done).error().remedy(
        "its last lines may be incomplete: those jobs are still in the cluster");
  return std::move(done).error().remedy("the jobs that are not in it are still in the cluster");
}

}  // namespace

Result<std::size_t> archive_jobs(Cluster& cluster, const ArchiveOptions& options) {
  ProgressBar bar("archiving");
  const auto ids = due_jobs(cluster, format_instant(now_on_the_wall() - options.older_than), bar);
  if (!ids) return ids.error();
  auto file = open_archive(options.file);
  if (!file) return std::move(file).error();
  std::size_t archived = 0;
  for (std::size_t begin = 0; begin < ids->size(); begin += archive_batch_jobs) {
    const auto batch = std::span(*ids).subspan(begin, std::min(archive_batch_jobs, ids->size() - begin));
    const auto written = write_batch(cluster, batch, file->get(), options.file);
    if (!written) return written.error();
    if (written->empty()) continue;
    if (auto removed = cluster.post("jobs/remove", json{{"ids", *written}}.dump()); !removed)
      return std::move(removed).error();
    archived += written->size();
    bar.show_count(begin + batch.size(), ids->size());
  }
  return archived;
}

}  // namespace tutti::cli
