#include "learn/checkpoint/owner.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::size_t owner_bytes_max = 4096;

std::string owner_path(const std::string& run) { return run + "/owner"; }

// The file opened anew: that is when a shared file system asks its server.
Result<std::optional<SeenOwner>> read_owner(const std::string& path) {
  const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file.valid() && (errno == ENOENT || errno == ESTALE)) return std::optional<SeenOwner>();
  if (!file.valid()) return failed_errno("cannot read " + path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return failed_errno("cannot read " + path, errno);
  if (!S_ISREG(status.st_mode)) return failed("it is no file").within(path).remedy("remove it");
  std::string text(owner_bytes_max, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  if (got < 0) return failed_errno("cannot read " + path, errno);
  text.resize(static_cast<std::size_t>(got));
  const std::int64_t beat_ns =
      std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + std::int64_t{status.st_mtim.tv_nsec};
  auto owner = Owner::parse(text);
  // One that is being written, or that a crash has left half: it has no name, and is judged by its beat.
  SeenOwner seen{owner ? std::move(*owner) : Owner(), beat_ns};
  return std::optional(std::move(seen));
}

}  // namespace

std::string Owner::text() const {
  const std::string on = node.empty() ? "" : "on node " + node;
  if (fence.job != 0) {
    return "job " + std::to_string(fence.job) + " (attempt " + std::to_string(fence.attempt) +
           (on.empty() ? "" : ", ") + on + ")";
  }
  return token.empty() ? "somebody" : "process " + std::to_string(pid) + (on.empty() ? "" : " ") + on;
}

std::string Owner::since_text() const {
  const auto seconds = static_cast<std::time_t>(since_s);
  std::tm parts{};
  std::array<char, 64> text{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

std::string Owner::json() const {
  const json::Object fields{{"cluster", fence.cluster},
                            {"job", fence.job},
                            {"attempt", fence.attempt},
                            {"node", node},
                            {"pid", pid},
                            {"since_s", since_s},
                            {"token", token}};
  return json::write(fields) + "\n";
}

Result<Owner> Owner::parse(std::string_view text) {
  const auto value = json::parse(text);
  const json::Object* const fields = value ? value->object() : nullptr;
  if (fields == nullptr) return invalid("an owner is a JSON object");
  const auto word = [&](const char* key) {
    const json::Value* const found = fields->find(key);
    return found != nullptr && found->text() != nullptr ? *found->text() : std::string();
  };
  const auto count = [&](const char* key) {
    const json::Value* const found = fields->find(key);
    return found != nullptr ? found->whole().value_or(0) : 0;
  };
  return Owner{.fence = {count("attempt"), count("job"), word("cluster")},
               .node = word("node"),
               .pid = count("pid"),
               .since_s = count("since_s"),
               .token = word("token")};
}

Result<std::optional<SeenOwner>> owner_of(const std::string& run) { return read_owner(owner_path(run)); }

Result<std::optional<files::FileDescriptor>> become_owner(const std::string& run, const Owner& owner) {
  const std::string path = owner_path(run);
  files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid() && errno == EEXIST) return std::optional<files::FileDescriptor>();
  if (!file.valid()) return failed_errno("cannot write " + path, errno);
  const std::string text = owner.json();
  auto written = files::write_all(file.get(), std::as_bytes(std::span(text)), path);
  if (written) written = files::sync_file(file.get(), path);
  if (!written) {
    unlink(path.c_str());
    return std::move(written).error();
  }
  return std::optional(std::move(file));
}

Result<bool> remove_owner(const std::string& run, const Owner& owner) {
  const std::string path = owner_path(run);
  const std::string away = path + ".left-" + (owner.token.empty() ? "nobody" : owner.token);
  // Only one of several that do this gets the file; it then looks whose it was.
  if (rename(path.c_str(), away.c_str()) != 0) {
    if (errno == ENOENT) return false;
    return failed_errno("cannot rename " + path, errno);
  }
  const auto taken = read_owner(away);
  if (!taken) return taken.error();
  const bool his = *taken && (*taken)->owner.token == owner.token;
  // Somebody else's: it goes back, unless a third has come meanwhile.
  if (!his && link(away.c_str(), path.c_str()) != 0 && errno != EEXIST)
    return failed_errno("cannot put " + path + " back", errno);
  unlink(away.c_str());
  return his;
}

Result<> beat(const files::FileDescriptor& file) {
  if (futimens(file.get(), nullptr) != 0) return failed_errno("cannot beat", errno);
  return {};
}

std::optional<Duration> OwnerWatch::still_for(const SeenOwner& seen, Duration now) {
  if (!first_ || first_->owner.token != seen.owner.token) {
    first_ = seen;
    last_look_ = now;
    still_ = {};
  }
  if (first_->beat_ns != seen.beat_ns) return std::nullopt;
  still_ += std::min(now - last_look_, 2 * look_every_);
  last_look_ = now;
  return still_;
}

}  // namespace tutti::checkpoint
