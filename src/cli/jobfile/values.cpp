#include "cli/jobfile/values.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.hpp"

namespace tutti::jobfile {
namespace {

Error not_a(std::string_view text, std::string_view what) {
  return invalid("'" + std::string(text.substr(0, 64)) + "' is not " + std::string(what));
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_letter(char letter) { return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'); }
bool is_word_letter(char letter) {
  return is_letter(letter) || is_digit(letter) || letter == '.' || letter == '_' || letter == '-';
}
bool is_name_letter(char letter) { return is_word_letter(letter) || letter == ' '; }

// At most nine digits, so that no sum of a few of them passes 64 bits.
std::optional<std::int64_t> digits(std::string_view text) {
  if (text.empty() || text.size() > 9 || !std::all_of(text.begin(), text.end(), is_digit))
    return std::nullopt;
  std::int64_t number = 0;
  for (const char digit : text) number = number * 10 + (digit - '0');
  return number;
}

Error bad_time(std::string_view text) {
  return not_a(text, "a time limit")
      .remedy("write 90s, 30m, 2h or 1d12h, or MM, MM:SS, HH:MM:SS, D-HH:MM:SS");
}

// The clock of Slurm's forms: how many seconds each field stands for depends on how many there are.
Result<Duration> parse_clock(std::string_view text, std::string_view clock, bool behind_days) {
  const auto fields = split(clock, ':');
  if (fields.size() > 3) return bad_time(text);
  const bool from_hours = behind_days || fields.size() == 3;
  std::int64_t unit_s = from_hours ? 3600 : 60;
  std::int64_t total_s = 0;
  for (std::size_t at = 0; at < fields.size(); ++at) {
    const auto number = digits(fields[at]);
    if (!number) return bad_time(text);
    const std::int64_t most = at > 0 ? 59 : behind_days ? 23 : 999'999;
    if (*number > most)
      return not_a(text, "a time limit")
          .remedy("'" + std::string(fields[at]) + "' is more than " + std::to_string(most));
    total_s += *number * unit_s;
    unit_s /= 60;
  }
  return Duration(std::chrono::seconds(total_s));
}

Result<Duration> parse_slurm_time(std::string_view text) {
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return parse_clock(text, text, false);
  const auto days = digits(text.substr(0, dash));
  if (!days || *days > time_limit_max / std::chrono::hours(24)) return bad_time(text);
  auto clock = parse_clock(text, text.substr(dash + 1), true);
  if (!clock) return clock;
  return Duration(std::chrono::hours(24) * *days) + *clock;
}

Result<Duration> bounded(Result<Duration> duration, Duration most) {
  if (duration && *duration > most)
    return invalid(format_duration(*duration) + " is more than " + format_duration(most));
  return duration;
}

Error too_many_rank_counts() {
  return invalid("a gang names at most " + std::to_string(sched::rank_counts_max) + " numbers of ranks")
      .remedy("write those that matter: 512,256,128");
}

// FEWEST:MOST
Result<std::vector<std::int32_t>> parse_rank_range(std::string_view text, std::size_t colon) {
  const auto fewest = parse_count(text.substr(0, colon), {1, cluster::ranks_max});
  if (!fewest) return fewest.error();
  const auto most = parse_count(text.substr(colon + 1), {1, cluster::ranks_max});
  if (!most) return most.error();
  if (*fewest > *most) return not_a(text, "a range of ranks").remedy("write the smaller number first: 4:16");
  if (*most - *fewest >= static_cast<std::int64_t>(sched::rank_counts_max)) return too_many_rank_counts();
  std::vector<std::int32_t> counts;
  for (std::int64_t count = *most; count >= *fewest; --count)
    counts.push_back(static_cast<std::int32_t>(count));
  return counts;
}

Error bad_array(std::string_view text) {
  return not_a(text, "an array").remedy("write 0-99, 0-99%8 (eight at once), 0-10:2 or 1,3,5");
}

Error array_too_large() {
  return invalid("an array has at most " + std::to_string(cluster::array_elements_max) + " elements");
}

// FIRST, FIRST-LAST or FIRST-LAST:STEP, added to `indices`.
Result<> add_elements(std::string_view text, std::string_view piece, std::vector<std::int32_t>& indices) {
  const auto colon = piece.find(':');
  const auto dash = piece.find('-');
  const bool is_range = dash != std::string_view::npos;
  if (!is_range && colon != std::string_view::npos) return bad_array(text);
  const auto first = digits(piece.substr(0, dash));
  const auto last = is_range ? digits(piece.substr(dash + 1, colon - dash - 1)) : first;
  const auto step =
      colon == std::string_view::npos ? std::optional<std::int64_t>(1) : digits(piece.substr(colon + 1));
  if (!first || !last || !step || *step == 0 || *last < *first) return bad_array(text);
  if (*last > array_index_max)
    return invalid(std::to_string(*last) + " is more than " + std::to_string(array_index_max));
  const auto count = static_cast<std::size_t>((*last - *first) / *step + 1);
  if (indices.size() + count > static_cast<std::size_t>(cluster::array_elements_max))
    return array_too_large();
  for (std::int64_t index = *first; index <= *last; index += *step)
    indices.push_back(static_cast<std::int32_t>(index));
  return {};
}

Result<std::string> parse_letters(std::string_view text, bool (*allowed)(char), std::string_view which) {
  if (text.empty()) return invalid("a name is missing");
  if (text.size() > name_bytes_max)
    return invalid("a name has at most " + std::to_string(name_bytes_max) + " bytes");
  if (!std::all_of(text.begin(), text.end(), allowed))
    return not_a(text, "a name").remedy("names hold " + std::string(which));
  return std::string(text);
}

}  // namespace

Result<std::int64_t> parse_count(std::string_view text, config::Range range) {
  const auto number = digits(text);
  if (!number) return not_a(text, "a whole number");
  if (*number < range.min)
    return invalid(std::to_string(*number) + " is less than " + std::to_string(range.min));
  if (*number > range.max)
    return invalid(std::to_string(*number) + " is more than " + std::to_string(range.max));
  return *number;
}

Result<std::vector<std::int32_t>> parse_rank_counts(std::string_view text) {
  if (const auto colon = text.find(':'); colon != std::string_view::npos)
    return parse_rank_range(text, colon);
  std::vector<std::int32_t> counts;
  for (const std::string_view piece : split(text, ',')) {
    const auto count = parse_count(piece, {1, cluster::ranks_max});
    if (!count) return count.error();
    if (counts.size() == sched::rank_counts_max) return too_many_rank_counts();
    if (!counts.empty() && *count >= counts.back())
      return invalid(std::string(piece) + " comes after " + std::to_string(counts.back()))
          .remedy("write the largest number of ranks first: 16,8,4");
    counts.push_back(static_cast<std::int32_t>(*count));
  }
  return counts;
}

Result<std::int32_t> parse_gpu_share(std::string_view text) {
  const auto point = text.find('.');
  std::string fraction(point == std::string_view::npos ? "0" : text.substr(point + 1));
  const auto whole = digits(text.substr(0, point));
  if (!whole || !digits(fraction))
    return not_a(text, "a number of GPUs").remedy("write a whole number, or a part of one GPU such as 0.25");
  while (fraction.size() > 3 && fraction.back() == '0') fraction.pop_back();
  if (fraction.size() > 3)
    return not_a(text, "a number of GPUs")
        .remedy("a GPU is shared in thousandths: three digits behind the point");
  fraction.append(3 - fraction.size(), '0');
  const std::int64_t thousandths = *digits(fraction);
  if (*whole > gpus_per_rank_max)
    return invalid(std::to_string(*whole) + " is more than " + std::to_string(gpus_per_rank_max));
  if (*whole > 0 && thousandths > 0)
    return not_a(text, "a number of GPUs").remedy("more than one GPU per rank must be whole GPUs");
  return static_cast<std::int32_t>(*whole * sched::whole_share + thousandths);
}

Result<Duration> parse_time_limit(std::string_view text) {
  const bool slurm = text.find_first_not_of("0123456789:-") == std::string_view::npos;
  auto parsed = slurm ? parse_slurm_time(text) : parse_duration(text);
  if (!parsed && !slurm) return bad_time(text);
  return bounded(std::move(parsed), time_limit_max);
}

Result<Duration> parse_grace(std::string_view text) { return bounded(parse_duration(text), grace_max); }

Result<Bytes> parse_memory(std::string_view text) {
  auto parsed = parse_bytes(text);
  if (parsed && *parsed > memory_max)
    return invalid(format_bytes(*parsed) + " is more than " + format_bytes(memory_max));
  if (parsed && *parsed > Bytes(0) && *parsed < memory_min)
    return invalid(format_bytes(*parsed) + " is less than " + format_bytes(memory_min))
        .remedy("write the unit, such as 512M or 16G");
  return parsed;
}

Result<ArrayRange> parse_array(std::string_view text) {
  ArrayRange range;
  const auto percent = text.find('%');
  if (percent != std::string_view::npos) {
    const auto limit = digits(text.substr(percent + 1));
    if (!limit || *limit == 0) return bad_array(text);
    range.limit = static_cast<std::int32_t>(*limit);
  }
  for (const std::string_view piece : split(text.substr(0, percent), ',')) {
    if (auto added = add_elements(text, piece, range.indices); !added) return std::move(added).error();
  }
  std::sort(range.indices.begin(), range.indices.end());
  const auto twice = std::adjacent_find(range.indices.begin(), range.indices.end());
  if (twice != range.indices.end())
    return invalid("the element " + std::to_string(*twice) + " stands here twice");
  return range;
}

Result<cluster::JobId> parse_job(std::string_view text) {
  const auto number = parse_id_number(text);
  if (!number || *number == 0) return not_a(text, "the number of a job");
  return cluster::JobId(*number);
}

Result<std::string> parse_name(std::string_view text) {
  return parse_letters(text, is_name_letter, "letters, digits, '.', '_', '-' and blanks");
}

Result<std::string> parse_word(std::string_view text) {
  return parse_letters(text, is_word_letter, "letters, digits, '.', '_' and '-'");
}

Result<std::string> parse_models(std::string_view text) {
  std::string models;
  for (const std::string_view part : split(text, ',')) {
    auto name = parse_name(part);
    if (!name) return std::move(name).error().remedy("such as H100, or A100,H100 for any of them");
    models += (models.empty() ? "" : "|") + *name;
  }
  return models;
}

Result<std::string> parse_queue(std::string_view text) {
  for (const std::string_view part : split(text, '/')) {
    if (auto word = parse_word(part); !word) return std::move(word).error().remedy("such as research/vision");
  }
  return std::string(text);
}

Result<std::string> parse_path(std::string_view text) {
  if (text.empty()) return invalid("a path is missing");
  if (text.size() > path_bytes_max)
    return invalid("a path has at most " + std::to_string(path_bytes_max) + " bytes");
  if (text.find('\0') != std::string_view::npos) return invalid("a path holds no NUL bytes");
  return std::string(text);
}

Result<> check_env(std::string_view entry) { return cluster::check_env_entry(entry); }

std::string as_name(std::string_view text) {
  std::string name(text.substr(0, name_bytes_max));
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return !is_name_letter(letter); }, '_');
  return name.empty() ? "job" : name;
}

}  // namespace tutti::jobfile
