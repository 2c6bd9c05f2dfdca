#include "cli/home.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/files/files.hpp"
#include "control/controller/random_text.hpp"
#include "control/controller/store_file.hpp"

namespace tutti::cli {
namespace {

constexpr const char* mark_name = "tutti-home";
constexpr const char* mark_text =
    "The local cluster of `tutti up` lives in this folder. `tutti down --clean` removes it.\n";
constexpr std::string_view id_label = "id: ";
constexpr std::string_view place_label = "\nat: ";
constexpr std::size_t id_bytes = 16;
constexpr std::size_t mark_bytes_max = 16'384;
// The lock of HomeLock stays: whoever waits for it has it open.
constexpr const char* lock_name = "lock";

Result<bool> is_there(const std::string& path) {
  std::error_code why;
  const auto type = std::filesystem::status(path, why).type();
  if (type == std::filesystem::file_type::none) return failed("cannot read " + path + ": " + why.message());
  return type != std::filesystem::file_type::not_found;
}

// A disk that fails may still open what it cannot read.
Result<> look_into(const std::string& path) {
  const auto file = files::open_file(path);
  if (!file) return file.error();
  if (!*file) return {};
  std::byte first{};
  const auto count = files::read_some((*file)->file.get(), {&first, 1}, path);
  if (!count) return count.error();
  return {};
}

Result<bool> has_mark(const std::string& home) {
  auto mark = is_there(home + "/" + mark_name);
  if (!mark || *mark) return mark;
  // Earlier versions left no mark, and always these two; a controller started by hand has no notes of
  // processes.
  auto store = is_there(controller::store_file(home + "/controller"));
  if (!store || !*store) return store;
  return is_there(home + "/processes");
}

// Both are empty where there is no mark, and in those of earlier versions.
struct Mark {
  std::string id;
  std::string place;
};

Result<Mark> read_mark(const std::string& home) {
  const auto content = files::read_file(home + "/" + mark_name, mark_bytes_max);
  if (!content) return content.error();
  std::string_view text = *content ? std::string_view(**content) : std::string_view();
  if (!text.starts_with(mark_text)) return Mark();
  text.remove_prefix(std::string_view(mark_text).size());
  const std::size_t place = text.find(place_label);
  if (!text.starts_with(id_label) || place == std::string_view::npos || !text.ends_with('\n')) return Mark();
  text.remove_suffix(1);
  return Mark{std::string(text.substr(id_label.size(), place - id_label.size())),
              std::string(text.substr(place + place_label.size()))};
}

}  // namespace

Result<HomeKind> kind_of_home(const std::string& home) {
  auto names = files::list_folder(home);
  if (!names) return std::move(names).error();
  if (!*names) return HomeKind::empty;
  const auto marked = has_mark(home);
  if (!marked) return marked.error();
  if (*marked) return HomeKind::own;
  const bool is_empty = std::all_of((*names)->begin(), (*names)->end(), [](const auto& name) {
    return name == lock_name || name == mark_name + std::string(".new");  // a crash may have left that one
  });
  return is_empty ? HomeKind::empty : HomeKind::foreign;
}

bool was_locked(const std::string& home) { return is_there(home + "/" + lock_name).value_or(false); }

Result<> check_readable(const std::string& home) {
  if (auto fine = look_into(home + "/" + lock_name); !fine) return fine;
  if (const auto nodes = files::list_folder(home + "/nodes"); !nodes) return nodes.error();
  const auto notes = files::list_folder(home + "/processes");
  if (!notes) return notes.error();
  if (!*notes) return {};
  for (const auto& note : **notes) {
    if (auto fine = look_into(home + "/processes/" + note); !fine) return fine;
  }
  return {};
}

Result<> mark_home(const std::string& home) {
  auto mark = read_mark(home);
  if (!mark) return std::move(mark).error();
  if (mark->id.empty()) {
    auto id = controller::random_hex(id_bytes);
    if (!id) return std::move(id).error();
    mark->id = std::move(*id);
  }
  std::error_code unknown;
  const std::string place = std::filesystem::canonical(home, unknown).string();
  std::string text = mark_text;
  text += id_label;
  text += mark->id;
  text += place_label;
  text += (unknown ? home : place) + "\n";
  return files::replace_file(home + "/" + mark_name, text, {.durable = true});
}

Result<> check_no_copy(const std::string& home) {
  const auto mark = read_mark(home);
  if (!mark) return mark.error();
  std::error_code unknown;
  if (mark->id.empty() || std::filesystem::equivalent(home, mark->place, unknown)) return {};
  const auto first = read_mark(mark->place);
  if (!first || first->id != mark->id) return {};
  return failed(home + " is a copy of " + mark->place +
                ", which is still there: both would be the same cluster, with the same nodes and jobs")
      .remedy("go on with TUTTI_HOME=" + mark->place +
              ", move that away if this one is to take its place, or " +
              "begin another one in an empty folder");
}

std::vector<std::string> clean_home(const std::string& home) {
  std::vector<std::string> left;
  for (const char* part : {"controller", "nodes", "logs", "processes", "checkpoints", mark_name}) {
    if (!left.empty() && part == mark_name) break;  // the next `down --clean` tries again
    if (auto removed = files::remove_folder(home + "/" + part); !removed)
      left.push_back(removed.error().text());
  }
  return left;
}

}  // namespace tutti::cli
