#include "learn/checkpoint/folder.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "base/files/files.hpp"
#include "learn/checkpoint/files.hpp"
#include "learn/checkpoint/tensors.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view attempt_mark = ".attempt-";
constexpr std::string_view part_ending = ".part";
constexpr std::string_view removed_ending = ".removed";
constexpr std::size_t step_digits = 8;
constexpr std::size_t attempt_digits = 4;
constexpr std::size_t attempt_file_bytes_max = 64;

std::string step_name(std::int64_t step) { return std::string(step_prefix) + padded(step, step_digits); }
std::string part_name(std::int64_t step, std::int64_t attempt) {
  return "." + step_name(step) + std::string(attempt_mark) + padded(attempt, attempt_digits) +
         std::string(part_ending);
}

std::optional<std::int64_t> parse_number(std::string_view digits) {
  std::int64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || number < 0)
    return std::nullopt;
  return number;
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(step_prefix)) return std::nullopt;
  const auto step = parse_number(name.substr(step_prefix.size()));
  return step && step_name(*step) == name ? step : std::nullopt;
}

// Of the name of an unfinished checkpoint.
std::optional<std::int64_t> attempt_of_part(std::string_view name) {
  const auto mark = name.rfind(attempt_mark);
  if (!name.starts_with('.') || !name.ends_with(part_ending) || mark == std::string_view::npos)
    return std::nullopt;
  const auto begin = mark + attempt_mark.size();
  return parse_number(name.substr(begin, name.size() - part_ending.size() - begin));
}

Result<Lock> lock(const std::string& folder) { return Lock::acquire(folder + "/lock"); }

// Nothing if no attempt has claimed the folder.
Result<std::optional<std::int64_t>> read_attempt(const std::string& folder) {
  const std::string path = folder + "/attempt";
  const auto text = files::read_file(path, attempt_file_bytes_max);
  if (!text) return text.error();
  if (!*text) return std::optional<std::int64_t>();
  const auto number = parse_number(std::string_view(**text).substr(0, (*text)->find('\n')));
  if (!number)
    return failed("cannot read " + path + ": it is no number").remedy("remove it if no training runs");
  return number;
}

Result<> check_not_fenced(const std::string& folder, std::int64_t attempt) {
  const auto newest = read_attempt(folder);
  if (!newest) return newest.error();
  if (!*newest || **newest <= attempt) return {};
  return failed("attempt " + std::to_string(attempt) + " is fenced: attempt " + std::to_string(**newest) +
                " has claimed " + folder);
}

// Renames what is to go, so that nobody takes it for a checkpoint any more. The caller holds the lock.
Result<> hide(const std::string& folder, const std::string& name) {
  const std::string hidden =
      folder + "/" + (name.starts_with('.') ? "" : ".") + name + std::string(removed_ending);
  // One of the same name can be left from a removal that was cut short.
  if (auto removed = files::remove_folder(hidden); !removed) return removed;
  return rename_file(folder + "/" + name, hidden);
}

// Deletes what was hidden, now or by a process that ended before it was done.
Result<> delete_hidden(const std::string& folder) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  Result<> done;
  for (const auto& name : *names) {
    if (!name.starts_with('.') || !name.ends_with(removed_ending)) continue;
    if (auto removed = files::remove_folder(folder + "/" + name); !removed) done = std::move(removed);
  }
  return done;
}

Result<> hide_older_parts(const std::string& folder, std::int64_t attempt) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  for (const auto& name : *names) {
    const auto owner = attempt_of_part(name);
    if (!owner || *owner >= attempt) continue;
    if (auto hidden = hide(folder, name); !hidden) return hidden;
  }
  return {};
}

Result<> check_files(const std::string& part, std::span<const FileRecord> files) {
  for (const FileRecord& file : files) {
    struct stat status {};
    const std::string path = part + "/" + file.name;
    if (stat(path.c_str(), &status) != 0) return failed_errno("cannot find " + path, errno);
    if (static_cast<std::uint64_t>(status.st_size) != file.bytes) {
      return failed(path + " has " + std::to_string(status.st_size) + " bytes, and its rank wrote " +
                    std::to_string(file.bytes));
    }
  }
  return {};
}

// The step is there already: fine if it is a checkpoint of it, from an attempt that came as far before.
Result<> keep_existing(const std::string& folder, std::int64_t step, const std::string& part) {
  if (auto existing = load_manifest(folder, step); !existing) {
    return std::move(existing)
        .error()
        .within("step " + std::to_string(step) + " is there already")
        .remedy("remove " + checkpoint_path(folder, step));
  }
  return files::remove_folder(part);
}

Result<> publish(const std::string& folder, const std::string& part, const State& state,
                 std::span<const FileRecord> files) {
  const Manifest manifest{state, {files.begin(), files.end()}};
  if (auto written = replace_durably(part + "/" + manifest_name, encode(manifest)); !written) return written;
  if (auto renamed = rename_file(part, checkpoint_path(folder, state.step)); !renamed) return renamed;
  return files::sync_folder(folder);
}

std::string of_another_step(std::int64_t step) { return "its manifest is of step " + std::to_string(step); }

}  // namespace

Result<> claim(const std::string& folder, std::int64_t attempt) {
  if (auto made = files::make_folders(folder); !made) return made;
  {
    const auto held = lock(folder);
    if (!held) return held.error();
    if (auto allowed = check_not_fenced(folder, attempt); !allowed) return allowed;
    if (auto noted = replace_durably(folder + "/attempt", std::to_string(attempt) + "\n"); !noted)
      return noted;
    if (auto hidden = hide_older_parts(folder, attempt); !hidden) return hidden;
  }
  // A rank of an older attempt can still have a file of its own open; what stays now, the next one deletes.
  static_cast<void>(delete_hidden(folder));
  return {};
}

Result<std::string> begin(const std::string& folder, std::int64_t step, std::int64_t attempt) {
  if (auto allowed = check_not_fenced(folder, attempt); !allowed) return std::move(allowed).error();
  std::string part = folder + "/" + part_name(step, attempt);
  if (auto made = files::make_folders(part); !made) return std::move(made).error();
  return part;
}

Result<> commit(const std::string& folder, const State& state, std::span<const FileRecord> files) {
  const std::string part = folder + "/" + part_name(state.step, state.attempt);
  const auto held = lock(folder);
  if (!held) return held.error();
  if (auto allowed = check_not_fenced(folder, state.attempt); !allowed) return allowed;
  if (is_folder(checkpoint_path(folder, state.step))) return keep_existing(folder, state.step, part);
  auto complete = index_tensors(files);
  if (!complete) return std::move(complete).error().within("step " + std::to_string(state.step));
  if (auto there = check_files(part, files); !there) return there;
  return publish(folder, part, state, files);
}

Result<> prune(const std::string& folder, std::size_t keep) {
  {
    const auto held = lock(folder);
    if (!held) return held.error();
    const auto all = list(folder);
    if (!all) return all.error();
    std::size_t kept = 0;
    for (auto entry = all->rbegin(); entry != all->rend(); ++entry) {
      if (kept >= std::max<std::size_t>(keep, 1)) {
        if (auto hidden = hide(folder, step_name(entry->step)); !hidden) return hidden;
      } else if (entry->problem.empty()) {
        ++kept;
      }
    }
  }
  return delete_hidden(folder);
}

Result<> discard(const std::string& folder, std::int64_t step) {
  {
    const auto held = lock(folder);
    if (!held) return held.error();
    if (auto hidden = hide(folder, step_name(step)); !hidden) return hidden;
  }
  return delete_hidden(folder);
}

Listed describe(const std::string& checkpoint) {
  Listed entry{.path = checkpoint};
  struct stat status {};
  if (stat((checkpoint + "/" + manifest_name).c_str(), &status) == 0) {
    entry.written_at = Instant(std::chrono::seconds(status.st_mtim.tv_sec) +
                               std::chrono::nanoseconds(status.st_mtim.tv_nsec));
  }
  const auto manifest = load_manifest(checkpoint);
  if (!manifest) {
    entry.problem = manifest.error().text();
    return entry;
  }
  entry.step = manifest->state.step;
  for (const FileRecord& file : manifest->files) entry.bytes += file.bytes;
  entry.files = manifest->files.size();
  entry.attempt = manifest->state.attempt;
  entry.mesh = manifest->state.mesh;
  entry.loss = manifest->state.loss;
  return entry;
}

Result<std::vector<Listed>> list(const std::string& folder) {
  const auto steps = steps_in(folder);
  if (!steps) return steps.error();
  std::vector<Listed> all;
  for (const std::int64_t step : *steps) {
    Listed entry = describe(checkpoint_path(folder, step));
    if (entry.problem.empty() && entry.step != step)
      entry.problem = entry.path + " : " + of_another_step(entry.step);
    entry.step = step;
    // A removal renames first: what is still here was here all the time.
    if (entry.problem.empty() || is_folder(entry.path)) all.push_back(std::move(entry));
  }
  return all;
}

Result<std::vector<std::int64_t>> steps_in(const std::string& folder) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  std::vector<std::int64_t> steps;
  for (const auto& name : *names) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return folder + "/" + step_name(step);
}

Result<Manifest> load_manifest(const std::string& folder, std::int64_t step) {
  const std::string path = checkpoint_path(folder, step);
  auto manifest = load_manifest(path);
  if (manifest && manifest->state.step != step) {
    return failed(of_another_step(manifest->state.step)).within(path);
  }
  return manifest;
}

}  // namespace tutti::checkpoint
