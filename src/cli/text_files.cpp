#include "cli/text_files.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "base/units.hpp"
#include "learn/tokenizer/unicode.hpp"

namespace tutti::cli {
namespace {

constexpr std::size_t text_files_max = 10'000'000;
constexpr Bytes text_file_bytes_max = gib(4) - Bytes(1);  // it is read at once

class Walk {
 public:
  Result<> visit(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return failed_errno("cannot read " + files::shown(path), errno);
    if (S_ISDIR(status.st_mode)) return enter(path);
    if (!S_ISREG(status.st_mode)) return invalid(files::shown(path) + " is neither a file nor a folder");
    return keep(path, status);
  }

  std::vector<TextFile> take_found() { return std::move(found_); }

 private:
  Result<> enter(const std::string& folder) {
    auto names = files::list_folder(folder);
    if (!names) return std::move(names).error();
    if (!*names) return failed_errno("cannot list " + files::shown(folder), ENOENT);
    for (const auto& name : **names) {
      if (name.starts_with('.')) continue;
      if (auto visited = visit_inside(folder + "/" + name); !visited) return visited;
    }
    return {};
  }

  // A link may lead to a file; one to a folder could lead around in circles.
  Result<> visit_inside(const std::string& path) {
    struct stat itself {};
    if (::lstat(path.c_str(), &itself) != 0) return failed_errno("cannot read " + files::shown(path), errno);
    if (S_ISDIR(itself.st_mode)) return enter(path);
    struct stat target {};
    if (::stat(path.c_str(), &target) != 0 || !S_ISREG(target.st_mode)) return {};
    return keep(path, target);
  }

  Result<> keep(const std::string& path, const struct stat& status) {
    if (status.st_size > text_file_bytes_max.count())
      return invalid(files::shown(path) + " has " + format_bytes(Bytes(status.st_size)) +
                     ", and a text has at most " + format_bytes(text_file_bytes_max))
          .remedy("split it into several files");
    if (found_.size() == text_files_max)
      return invalid("there are more than " + std::to_string(text_files_max) + " files");
    found_.push_back({path, static_cast<std::uint64_t>(status.st_size)});
    return {};
  }

  std::vector<TextFile> found_;
};

}  // namespace

Result<std::vector<TextFile>> find_text_files(const std::vector<std::string>& paths) {
  Walk walk;
  for (const auto& path : paths) {
    if (auto visited = walk.visit(path); !visited) return std::move(visited).error();
  }
  return walk.take_found();
}

Result<std::optional<std::string>> read_text_file(const TextFile& file) {
  auto text = files::read_existing_file(file.path, static_cast<std::size_t>(text_file_bytes_max.count()));
  if (!text) return std::move(text).error();
  if (!tokenizer::is_utf8(*text)) return std::optional<std::string>();
  return std::optional(std::move(*text));
}

}  // namespace tutti::cli
