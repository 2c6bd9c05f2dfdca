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
constexpr std::string_view job_mark = ".job-";
constexpr std::string_view attempt_mark = ".attempt-";
constexpr std::string_view part_ending = ".part";
constexpr std::string_view removed_ending = ".removed";
constexpr std::size_t step_digits = 8;
constexpr std::size_t attempt_digits = 4;
constexpr std::string_view damaged_mark = ".damaged-";
constexpr std::string_view old_mark = ".old-";
constexpr std::string_view committed_ending = ".committed";
constexpr int set_aside_max = 10'000;  // of one name
constexpr std::size_t attempt_file_bytes_max = 512;

std::string step_name(std::int64_t step) { return std::string(step_prefix) + padded(step, step_digits); }
std::string part_name(std::int64_t step, const Fence& fence) {
  const std::string job = fence.job == 0 ? "" : std::string(job_mark) + std::to_string(fence.job);
  return "." + step_name(step) + job + std::string(attempt_mark) + padded(fence.attempt, attempt_digits) +
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

// Whether an unfinished checkpoint has such a name, and not one that this writer gives.
bool is_part_of_another(std::string_view name, const Fence& fence) {
  if (!name.starts_with('.') || !name.ends_with(part_ending)) return false;
  const auto end = name.find('.', 1);
  const auto step = end == std::string_view::npos ? std::nullopt : step_of(name.substr(1, end - 1));
  return step && name.find(attempt_mark) != std::string_view::npos && name != part_name(*step, fence);
}

Result<Lock> lock(const std::string& folder) { return Lock::acquire(folder + "/lock"); }

std::string claim_path(const std::string& folder) { return folder + "/attempt"; }

// Nothing if nobody has claimed the folder.
Result<std::optional<Fence>> read_fence(const std::string& folder) {
  const std::string path = claim_path(folder);
  const auto text = files::read_file(path, attempt_file_bytes_max);
  if (!text) return text.error();
  if (!*text) return std::optional<Fence>();
  auto fence = Fence::parse(std::string_view(**text).substr(0, (*text)->find('\n')));
  if (!fence)
    return failed("cannot read " + path + ": it is no number").remedy("remove it if no training runs");
  return fence;
}

Error fenced(const std::string& folder, const Fence& fence, const Fence& newest) {
  return invalid(fence.text() + " is fenced: " + newest.text() + " has claimed " + folder)
      .remedy(
          "submit it again, which makes it the newer one; if that is refused too, the cluster's store is an "
          "older copy that gives out lower numbers: --take-over then passes over the claim in " +
          claim_path(folder) + ", once its owner is gone");
}

// The folder that was claimed holds the claim. Whoever else has claimed it since is the one to write into it;
// where there is none, or one from before, another folder has come into its place.
Result<> check_claimed(const std::string& folder, const Fence& fence) {
  const auto newest = read_fence(folder);
  if (!newest) return newest.error();
  if (*newest && **newest == fence) return {};
  if (*newest && !is_newer(fence, **newest)) return fenced(folder, fence, **newest);
  return failed("it is not the folder that " + fence.text() + " has claimed: was it unmounted or moved away?")
      .within(folder)
      .remedy("put it back in its place; the claim is the file attempt in it");
}

// That folder alone: what is above it was there when it was claimed.
Result<> make_part(const std::string& part) {
  if (mkdir(part.c_str(), 0777) != 0 && errno != EEXIST)
    return failed_errno("cannot make the folder " + part, errno);
  return {};
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

Result<> hide_parts_of_others(const std::string& folder, const Fence& fence) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  for (const auto& name : *names) {
    if (!is_part_of_another(name, fence)) continue;
    if (auto hidden = hide(folder, name); !hidden) return hidden;
  }
  return {};
}

// The newest of those that were set aside.
Result<std::optional<std::int64_t>> step_set_aside(const std::string& folder) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  std::optional<std::int64_t> newest;
  for (const std::string& name : *names) {
    const auto mark = name.find(damaged_mark);
    if (mark == std::string::npos) continue;
    const auto step = step_of(std::string_view(name).substr(0, mark));
    if (step && (!newest || *step > *newest)) newest = step;
  }
  return newest;
}

// A name that nothing has yet: PATH, the mark, and the first number that is free.
Result<std::string> free_name(const std::string& path, std::string_view mark) {
  for (int number = 1; number <= set_aside_max; ++number) {
    std::string name = path + std::string(mark) + std::to_string(number);
    struct stat status {};
    if (lstat(name.c_str(), &status) != 0 && errno == ENOENT) return name;
  }
  return failed("too much of it was set aside already").within(path).remedy("remove some of it");
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

// The step is there already: fine if it is a checkpoint of it, from an attempt that came as far before, or
// from a try whose disk failed after the rename.
Result<> keep_existing(const std::string& folder, std::int64_t step, const std::string& part) {
  if (auto existing = load_manifest(folder, step); !existing) {
    return std::move(existing)
        .error()
        .within("step " + std::to_string(step) + " is there already")
        .remedy("remove " + checkpoint_path(folder, step));
  }
  // What of it cannot be removed now, the next claim does.
  static_cast<void>(files::remove_folder(part));
  return {};
}

Result<> publish(const std::string& folder, const std::string& part, const State& state,
                 std::span<const FileRecord> files) {
  auto complete = index_tensors(files);
  if (!complete) return std::move(complete).error().within("step " + std::to_string(state.step));
  if (auto there = check_files(part, files); !there) return there;
  if (auto saved = save_manifest(part, {state, {files.begin(), files.end()}}); !saved) return saved;
  return rename_file(part, checkpoint_path(folder, state.step));
}

std::string of_another_step(std::int64_t step) { return "its manifest is of step " + std::to_string(step); }

}  // namespace

Result<> claim(const std::string& folder, const Fence& fence, const std::string& submission,
               const std::optional<Fence>& over) {
  if (auto made = files::make_folders(folder); !made) return made;
  {
    const auto held = lock(folder);
    if (!held) return held.error();
    if (auto allowed = check_claim(folder, fence, over); !allowed) return allowed;
    const std::string text = fence.line() + "\n" + (submission.empty() ? "" : submission + "\n");
    if (auto noted = replace_durably(claim_path(folder), text); !noted) return noted;
    if (auto hidden = hide_parts_of_others(folder, fence); !hidden) return hidden;
  }
  // A rank of an older attempt can still have a file of its own open; what stays now, the next one deletes.
  static_cast<void>(delete_hidden(folder));
  return {};
}

Result<> check_claim(const std::string& folder, const Fence& fence, const std::optional<Fence>& over) {
  const auto newest = read_fence(folder);
  if (!newest) return newest.error();
  if (*newest && is_newer(**newest, fence) && !passes_over(over, **newest))
    return fenced(folder, fence, **newest);
  return {};
}

Result<std::optional<Fence>> claimed_by(const std::string& folder) { return read_fence(folder); }

Result<std::string> claimed_as(const std::string& folder) {
  const auto text = files::read_file(claim_path(folder), attempt_file_bytes_max);
  if (!text) return text.error();
  const std::string_view all = *text ? std::string_view(**text) : std::string_view();
  const auto end = all.find('\n');
  if (end == std::string_view::npos) return std::string();
  const std::string_view second = all.substr(end + 1);
  return std::string(second.substr(0, second.find('\n')));
}

void abandon(const std::string& folder, std::int64_t step, const Fence& fence) {
  static_cast<void>(files::remove_folder(folder + "/" + part_name(step, fence)));
}

Result<std::string> begin(const std::string& folder, std::int64_t step, const Fence& fence) {
  if (auto claimed = check_claimed(folder, fence); !claimed) return std::move(claimed).error();
  std::string part = folder + "/" + part_name(step, fence);
  if (auto made = make_part(part); !made) return std::move(made).error();
  return part;
}

Result<> commit(const std::string& folder, const Fence& fence, const State& state,
                std::span<const FileRecord> files) {
  const std::string part = folder + "/" + part_name(state.step, fence);
  const auto held = lock(folder);
  if (!held) return held.error();
  if (auto claimed = check_claimed(folder, fence); !claimed) return claimed;
  auto there = is_folder(checkpoint_path(folder, state.step)) ? keep_existing(folder, state.step, part)
                                                              : publish(folder, part, state, files);
  if (!there) return there;
  if (auto synced = files::sync_folder(folder); !synced) return synced;
  // Beside the folder, so that its loss is noticed.
  return replace_durably(folder + std::string(committed_ending), std::to_string(state.step) + "\n");
}

Result<std::optional<std::int64_t>> had_step(const std::string& folder) {
  const std::string path = folder + std::string(committed_ending);
  const auto text = files::read_file(path, attempt_file_bytes_max);
  if (!text) return text.error();
  if (!*text) return step_set_aside(folder);
  const auto step = parse_number(std::string_view(**text).substr(0, (*text)->find('\n')));
  if (!step) return failed("it is no number").within(path).remedy("remove it if the run may begin anew");
  return step;
}

Result<std::string> move_away(const std::string& folder) {
  auto away = free_name(folder, old_mark);
  if (!away) return away;
  if (is_folder(folder)) {
    if (auto moved = rename_file(folder, *away); !moved) return std::move(moved).error();
  }
  const std::string committed = folder + std::string(committed_ending);
  if (rename(committed.c_str(), (*away + std::string(committed_ending)).c_str()) != 0 && errno != ENOENT) {
    return failed_errno("cannot rename " + committed, errno);
  }
  return away;
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

Result<std::string> set_aside(const std::string& folder, std::int64_t step, const std::string& why) {
  const auto held = lock(folder);
  if (!held) return held.error();
  const std::string path = checkpoint_path(folder, step);
  auto aside = free_name(path, damaged_mark);
  if (!aside) return aside;
  if (auto moved = rename_file(path, *aside); !moved) return std::move(moved).error();
  // The name says the most of it: a disk that has no room for the reason is no reason to fail.
  static_cast<void>(replace_durably(*aside + "/" + damaged_note_name, why + "\n"));
  return aside;
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
    return damaged(of_another_step(manifest->state.step)).within(path);
  }
  return manifest;
}

}  // namespace tutti::checkpoint
