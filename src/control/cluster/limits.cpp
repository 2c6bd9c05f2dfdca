#include "control/cluster/limits.hpp"

#include <algorithm>

#include "base/visible.hpp"
#include "control/cluster/model.hpp"

namespace tutti::cluster {
namespace {

bool is_digit_of_name(char letter) { return letter >= '0' && letter <= '9'; }
bool is_letter_of_name(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}
// Shown to other people, on their terminals.
Result<> check_visible(const std::string& text, std::string_view what) {
  if (is_visible_line(text)) return {};
  return invalid("'" + visible_line(text) + "' holds a control character")
      .within(what)
      .remedy("letters, digits, signs and spaces of any script are fine");
}

// What people read in lists.
Result<> check_text(const std::string& text, std::size_t bytes_max, std::string_view what) {
  if (text.size() > bytes_max)
    return invalid("has at most " + std::to_string(bytes_max) + " bytes, not " + std::to_string(text.size()))
        .within(what);
  return check_visible(text, what);
}

Result<> check_path(const std::string& path, std::string_view what) {
  if (path.size() > path_bytes_max)
    return invalid("a path has at most " + std::to_string(path_bytes_max) + " bytes").within(what);
  return check_visible(path, what);
}

template <class Number>
Result<> check_range(Number number, Number least, Number most, std::string_view what) {
  if (number >= least && number <= most) return {};
  return invalid(std::to_string(number) + " is not between " + std::to_string(least) + " and " +
                 std::to_string(most))
      .within(what);
}

Result<> check_time(Duration time, Duration most, std::string_view what) {
  if (time < Duration::zero()) return invalid("is negative").within(what);
  if (time > most)
    return invalid(format_duration(time) + " is more than " + format_duration(most)).within(what);
  return {};
}

Result<> check_words(const JobSpec& spec) {
  if (auto checked = check_text(spec.name, job_name_bytes_max, "name"); !checked) return checked;
  if (auto checked = check_text(spec.user, user_bytes_max, "user"); !checked) return checked;
  if (auto checked = check_text(spec.queue, queue_name_max, "queue"); !checked) return checked;
  if (auto checked = check_text(spec.shape.gpu_model, gpu_models_bytes_max, "gpu-model"); !checked)
    return checked;
  if (auto checked = check_path(spec.workdir, "workdir"); !checked) return checked;
  if (!spec.workdir.empty() && !spec.workdir.starts_with('/'))
    return invalid("'" + spec.workdir + "' is not absolute")
        .within("workdir")
        .remedy("ranks stand nowhere when they start: name the folder from / on");
  if (auto checked = check_path(spec.output, "output"); !checked) return checked;
  const bool hash = spec.sync.size() == manifest_hash_bytes &&
                    spec.sync.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!spec.sync.empty() && !hash)
    return invalid("is not the SHA-256 of a manifest, in 64 hexadecimal digits").within("sync");
  return {};
}

Result<> check_numbers(const JobSpec& spec) {
  if (auto checked = check_range(spec.priority, -priority_max, priority_max, "priority"); !checked)
    return checked;
  if (auto checked = check_range(spec.restarts, 0, restarts_max, "restarts"); !checked) return checked;
  if (auto checked = check_range(spec.restart_on_failure, 0, restarts_max, "restart-on-failure"); !checked)
    return checked;
  if (auto checked = check_range(spec.shape.cpus, 0, cpus_per_rank_max, "cpus-per-rank"); !checked)
    return checked;
  if (spec.shape.memory > memory_per_rank_max)
    return invalid(format_bytes(spec.shape.memory) + " is more than " + format_bytes(memory_per_rank_max))
        .within("memory-per-rank");
  if (auto checked = check_time(spec.time_limit, time_limit_max, "time"); !checked) return checked;
  if (auto checked = check_time(spec.grace, grace_max, "grace"); !checked) return checked;
  if (spec.array) {
    if (auto checked = check_range(spec.array->index, 0, array_index_max, "array"); !checked) return checked;
  }
  if (spec.after.size() > dependencies_max)
    return invalid("a job waits for at most " + std::to_string(dependencies_max) + " others").within("after");
  return {};
}

}  // namespace

std::size_t bytes_of(const std::vector<std::string>& words) {
  std::size_t bytes = 0;
  for (const auto& word : words) bytes += word.size() + 1;
  return bytes;
}

Result<> check_command(const std::vector<std::string>& command) {
  if (command.empty() || command.front().empty())
    return invalid("there is no command to run")
        .remedy("write it behind the flags, or as `command:` in the file");
  if (command.size() > command_words_max)
    return invalid("has more than " + std::to_string(command_words_max) + " words").within("command");
  for (const auto& word : command) {
    if (word.size() > command_word_bytes_max)
      return invalid("has a word of " + format_bytes(Bytes(static_cast<std::int64_t>(word.size()))) +
                     "; Linux starts no program with one of 128 KiB or more")
          .within("command")
          .remedy("ship it as a file, with sync");
    if (word.find('\0') != std::string::npos) return invalid("holds a NUL byte").within("command");
  }
  if (bytes_of(command) > command_bytes_max) return invalid("is larger than 1 MiB").within("command");
  return {};
}

Result<> check_env_entry(std::string_view entry) {
  const auto equals = entry.find('=');
  const std::string_view name = entry.substr(0, equals);
  const bool named = !name.empty() && !is_digit_of_name(name.front()) &&
                     std::all_of(name.begin(), name.end(), [](char letter) {
                       return is_letter_of_name(letter) || is_digit_of_name(letter) || letter == '_';
                     });
  if (equals == std::string_view::npos || !named)
    return invalid("'" + std::string(entry.substr(0, 64)) + "' is not of the form K=V")
        .remedy("K holds letters, digits and '_', and does not begin with a digit");
  if (entry.find('\0') != std::string_view::npos) return invalid(std::string(name) + " holds a NUL byte");
  return {};
}

Result<> check_env(const std::vector<std::string>& entries) {
  if (entries.size() > env_entries_max)
    return invalid("has more than " + std::to_string(env_entries_max) + " entries").within("env");
  if (bytes_of(entries) > env_bytes_max) return invalid("is larger than 128 KiB").within("env");
  for (const auto& entry : entries) {
    if (auto checked = check_env_entry(entry); !checked) return std::move(checked).error().within("env");
  }
  return {};
}

Result<> check_submit_key(std::string_view key) {
  const bool fine =
      key.size() <= submit_key_bytes_max && std::all_of(key.begin(), key.end(), [](char letter) {
        return is_letter_of_name(letter) || is_digit_of_name(letter) || letter == '_' || letter == '-';
      });
  if (fine) return {};
  return invalid("is not at most " + std::to_string(submit_key_bytes_max) + " letters, digits, '_' and '-'")
      .within("key")
      .remedy("make a random one for each submit, and send it again only with the same submit");
}

Result<> check_limits(const JobSpec& spec) {
  if (auto checked = check_command(spec.command); !checked) return checked;
  if (auto checked = check_env(spec.env); !checked) return checked;
  if (auto checked = check_secret_names(spec.secrets); !checked) return checked;
  if (auto checked = check_words(spec); !checked) return checked;
  return check_numbers(spec);
}

}  // namespace tutti::cluster
