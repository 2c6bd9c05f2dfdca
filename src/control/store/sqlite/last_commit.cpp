#include "control/store/sqlite/last_commit.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/text.hpp"

namespace tutti::store {
namespace {

constexpr std::string_view mark = "tutti last commit 1";
constexpr std::string_view end_mark = "end";
// All of the file, in one block: it is overwritten in place, by one call.
constexpr std::size_t file_bytes = 1024;
constexpr int sync_every_commits = 100;

}  // namespace

Result<LastCommit> LastCommit::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return failed_errno("cannot be opened", errno).within(path);
  return LastCommit(descriptor);
}

LastCommit::LastCommit(LastCommit&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), unsynced_(other.unsynced_) {}

LastCommit::~LastCommit() {
  if (descriptor_ < 0) return;
  ::fdatasync(descriptor_);
  ::close(descriptor_);
}

std::optional<Committed> LastCommit::read() const {
  std::array<char, file_bytes> buffer;
  const ssize_t length = ::pread(descriptor_, buffer.data(), buffer.size(), 0);
  const auto lines =
      split(std::string_view(buffer.data(), length > 0 ? static_cast<std::size_t>(length) : 0), '\n');
  if (lines.size() < 4 || lines[0] != mark || lines[3] != end_mark) return std::nullopt;
  const auto revision = parse_id_number(lines[1]);
  const auto kept = from_hex(lines[2]);
  if (!revision || !kept) return std::nullopt;
  return Committed{*revision, {reinterpret_cast<const char*>(kept->data()), kept->size()}};
}

void LastCommit::note(const Committed& committed) {
  std::string text = std::string(mark) + "\n" + std::to_string(committed.revision) + "\n" +
                     to_hex(as_bytes(committed.kept)) + "\n" + std::string(end_mark) + "\n";
  if (text.size() > file_bytes) return;
  text.resize(file_bytes, '\n');
  const bool written =
      ::pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written || ++unsynced_ < sync_every_commits) return;
  unsynced_ = 0;
  ::fdatasync(descriptor_);
}

}  // namespace tutti::store
