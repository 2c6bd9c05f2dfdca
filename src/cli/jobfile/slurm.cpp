#include "cli/jobfile/slurm.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "cli/jobfile/slurm_words.hpp"

namespace tutti::jobfile {
namespace {

using cluster::ranks_max;
using Counts = SlurmReader::Counts;

constexpr config::Range count_range{1, ranks_max};

template <class Value, class Target>
Result<> put(Result<Value> value, Target& target) {
  if (!value) return std::move(value).error();
  target = std::move(*value);
  return {};
}

Result<> set_nodes(Counts& counts, Draft&, std::string_view value) {
  if (value.find('-') != std::string_view::npos)
    return invalid("'" + std::string(value.substr(0, 64)) + "' is a range")
        .remedy("write one number of nodes");
  return put(parse_count(value, count_range), counts.nodes);
}
Result<> set_tasks(Counts& counts, Draft&, std::string_view value) {
  return put(parse_count(value, count_range), counts.tasks);
}
Result<> set_tasks_per_node(Counts& counts, Draft&, std::string_view value) {
  return put(parse_count(value, count_range), counts.tasks_per_node);
}

// COUNT, MODEL:COUNT or MODEL, which is one of them.
Result<> set_gpus(std::optional<SlurmReader::Gpus>& target, Counts& counts, Draft& draft,
                  std::string_view value) {
  const auto colon = value.find(':');
  const bool counted =
      !value.empty() && value.front() >= '0' && value.front() <= '9' && colon == std::string_view::npos;
  const std::string_view model = counted ? std::string_view() : value.substr(0, colon);
  const std::string_view number = counted                           ? value
                                  : colon == std::string_view::npos ? "1"
                                                                    : value.substr(colon + 1);
  if (!counted) {
    if (auto set = put(parse_word(model), draft.gpu_model); !set) return set;
  }
  auto count = parse_count(number, {0, ranks_max * gpus_per_rank_max});
  if (!count) return std::move(count).error();
  target = SlurmReader::Gpus{*count, counts.place};
  return {};
}
Result<> set_gpus_total(Counts& counts, Draft& draft, std::string_view value) {
  return set_gpus(counts.gpus, counts, draft, value);
}
Result<> set_gpus_per_node(Counts& counts, Draft& draft, std::string_view value) {
  return set_gpus(counts.gpus_per_node, counts, draft, value);
}
Result<> set_gpus_per_task(Counts& counts, Draft& draft, std::string_view value) {
  return set_gpus(counts.gpus_per_task, counts, draft, value);
}
Result<> set_gres(Counts& counts, Draft& draft, std::string_view value) {
  if (value == "gpu") return set_gpus_per_node(counts, draft, "1");
  if (value.starts_with("gpu:")) return set_gpus_per_node(counts, draft, value.substr(4));
  return invalid("'" + std::string(value.substr(0, 64)) + "' is not a kind of resource that tutti knows")
      .remedy("write gpu:8 or gpu:h100:8");
}

// Slurm counts memory in MiB where no unit is given, writes units small or large, and means the same by G and
// GB.
Result<> set_memory(Counts& counts, Draft&, std::string_view value) {
  std::string_view bare = value;
  if (bare.size() > 2 && (bare.back() == 'B' || bare.back() == 'b')) bare.remove_suffix(1);
  const auto unit = bare.empty() ? std::string_view::npos : std::string_view("KMGTkmgt").find(bare.back());
  if (unit != std::string_view::npos) bare.remove_suffix(1);
  if (bare.empty() || bare.find_first_not_of("0123456789.") != std::string_view::npos)
    return invalid("'" + std::string(value.substr(0, 64)) + "' is not a size")
        .remedy("write 64G, or a number of MiB");
  return put(parse_memory(std::string(bare) + (unit == std::string_view::npos ? 'M' : "KMGT"[unit % 4])),
             counts.memory_per_node);
}
Result<> set_cpus(Counts&, Draft& draft, std::string_view value) {
  return put(parse_count(value, {1, cpus_per_rank_max}), draft.cpus_per_rank);
}
Result<> set_time(Counts&, Draft& draft, std::string_view value) {
  return put(parse_time_limit(value), draft.time_limit);
}
Result<> set_name(Counts&, Draft& draft, std::string_view value) {
  return put(parse_name(value), draft.name);
}
Result<> set_output(Counts&, Draft& draft, std::string_view value) {
  return put(parse_path(value), draft.output);
}
Result<> set_array(Counts&, Draft& draft, std::string_view value) {
  return put(parse_array(value), draft.array);
}
Result<> set_queue(Counts&, Draft& draft, std::string_view value) {
  return put(parse_queue(value), draft.queue);
}

// afterok:1:2,afterany:3
Result<> set_dependency(Counts&, Draft& draft, std::string_view value) {
  for (const std::string_view part : split(value, ',')) {
    const auto words = split(part, ':');
    const bool success = words.front() == "afterok";
    if ((!success && words.front() != "afterany") || words.size() < 2)
      return invalid("'" + std::string(part.substr(0, 64)) + "' is not a dependency that tutti knows")
          .remedy("write afterok:JOB or afterany:JOB, several of them with commas");
    for (std::size_t at = 1; at < words.size(); ++at) {
      if (auto job = parse_job(words[at]); !job) return std::move(job).error();
      (success ? draft.after_success : draft.after).emplace_back(words[at]);
    }
  }
  return {};
}

struct Option {
  std::string_view name;
  char letter;                                         // '\0': none
  Result<> (*set)(Counts&, Draft&, std::string_view);  // null: ignored with a warning
};

constexpr std::array<Option, 21> options{{{"nodes", 'N', set_nodes},
                                          {"ntasks", 'n', set_tasks},
                                          {"ntasks-per-node", '\0', set_tasks_per_node},
                                          {"gres", '\0', set_gres},
                                          {"gpus", 'G', set_gpus_total},
                                          {"gpus-per-node", '\0', set_gpus_per_node},
                                          {"gpus-per-task", '\0', set_gpus_per_task},
                                          {"cpus-per-task", 'c', set_cpus},
                                          {"mem", '\0', set_memory},
                                          {"time", 't', set_time},
                                          {"job-name", 'J', set_name},
                                          {"output", 'o', set_output},
                                          {"array", 'a', set_array},
                                          {"dependency", 'd', set_dependency},
                                          {"partition", 'p', set_queue},
                                          {"export", '\0', nullptr},
                                          {"mail-type", '\0', nullptr},
                                          {"mail-user", '\0', nullptr},
                                          {"account", 'A', nullptr},
                                          {"qos", 'q', nullptr},
                                          {"error", 'e', nullptr}}};

const Option* find_option(std::string_view word) {
  const bool is_long = word.starts_with("--");
  const auto found = std::find_if(options.begin(), options.end(), [&](const Option& option) {
    return is_long ? option.name == word.substr(2)
                   : word.size() == 2 && option.letter != '\0' && option.letter == word[1];
  });
  return found == options.end() ? nullptr : &*found;
}

Error unknown_option(const std::string& word) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const Option& option : options) names.push_back("--" + std::string(option.name));
  const std::string ours = slurm_flag_hint(word);
  return invalid("unknown option")
      .remedy(ours.empty() ? "" : "write a line #TUTTI " + ours)
      .remedy(did_you_mean(word, names))
      .remedy("remove the line, or write a #TUTTI line");
}

// --name=value, -Nvalue, or a name whose value is the next word.
struct Split {
  std::string option;
  std::optional<std::string> value;
};

Split split_option(const std::string& word) {
  if (word.starts_with("--")) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) return {word, std::nullopt};
    return {word.substr(0, equals), word.substr(equals + 1)};
  }
  if (word.size() <= 2) return {word, std::nullopt};
  return {word.substr(0, 2), word.substr(word[2] == '=' ? 3 : 2)};
}

}  // namespace

SlurmReader::SlurmReader(std::string script, Draft& draft, std::vector<std::string>& warnings)
    : script_(std::move(script)), draft_(draft), warnings_(warnings) {}

Result<> SlurmReader::read(int line, std::span<const std::string> words) {
  const std::string line_place = script_ + ":" + std::to_string(line);
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at].size() < 2 || words[at].front() != '-')
      return invalid("unexpected word '" + words[at].substr(0, 64) + "'").within(line_place);
    Split word = split_option(words[at]);
    counts_.place = line_place + ": " + word.option.substr(0, 64);
    const Option* option = find_option(word.option);
    if (option == nullptr) return unknown_option(word.option).within(counts_.place);
    if (!word.value && at + 1 < words.size()) word.value = words[++at];
    if (!word.value) return invalid("a value is missing").within(counts_.place);
    if (option->set == nullptr) {
      const std::string ours = slurm_flag_hint(word.option);
      warnings_.push_back(counts_.place + " : ignored; " +
                          (ours.empty() ? "tutti has nothing like it" : "write a line #TUTTI " + ours));
    } else if (auto set = option->set(counts_, draft_, *word.value); !set) {
      return std::move(set).error().within(counts_.place);
    }
  }
  return {};
}

// A node that Slurm would choose freely is taken to be one node.
SlurmReader::Layout SlurmReader::layout() const {
  const std::int64_t nodes = std::max<std::int64_t>(counts_.nodes, 1);
  Layout layout;
  layout.ranks_per_node = counts_.tasks_per_node;
  if (layout.ranks_per_node == 0) {
    layout.ranks_per_node = std::max<std::int64_t>((counts_.tasks + nodes - 1) / nodes, 1);
    layout.even = counts_.tasks == 0 || counts_.tasks % nodes == 0;
  }
  layout.ranks = counts_.tasks > 0 ? counts_.tasks : nodes * layout.ranks_per_node;
  return layout;
}

Result<std::optional<std::int64_t>> SlurmReader::gpus_per_rank(const Layout& layout) const {
  std::optional<std::int64_t> share;
  const auto divide = [&share](const std::optional<Gpus>& gpus, std::int64_t ranks, bool even,
                               const std::string& among) -> Result<> {
    if (!gpus) return {};
    const std::string count = std::to_string(gpus->count) + " GPUs";
    if (!even || gpus->count % ranks != 0)
      return invalid(count + " do not divide evenly among " + among)
          .within(gpus->place)
          .remedy("ask for a multiple, or say it by rank: #TUTTI --gpus-per-rank G");
    if (gpus->count / ranks > gpus_per_rank_max)
      return invalid(count + " are more than " + std::to_string(gpus_per_rank_max) + " a rank")
          .within(gpus->place);
    if (share && *share != gpus->count / ranks)
      return invalid(count + " do not agree with the other lines about GPUs").within(gpus->place);
    share = gpus->count / ranks;
    return {};
  };
  auto divided = divide(counts_.gpus_per_task, 1, true, "");
  if (divided)
    divided = divide(counts_.gpus_per_node, layout.ranks_per_node, layout.even, "the ranks of a node");
  if (divided) divided = divide(counts_.gpus, layout.ranks, true, std::to_string(layout.ranks) + " ranks");
  if (!divided) return std::move(divided).error();
  return share;
}

Result<> SlurmReader::finish() {
  const Layout laid_out = layout();
  auto gpus = gpus_per_rank(laid_out);
  if (!gpus) return std::move(gpus).error();
  draft_.nodes = counts_.nodes;
  if (counts_.tasks > 0) draft_.rank_counts = {static_cast<std::int32_t>(counts_.tasks)};
  draft_.ranks_per_node = counts_.tasks_per_node;
  // GPUs that were asked for a node come from one node, also where nobody said how many nodes.
  if (counts_.gpus_per_node && counts_.tasks_per_node == 0) draft_.ranks_per_node = laid_out.ranks_per_node;
  if (*gpus) draft_.gpu_share = static_cast<std::int32_t>(**gpus * sched::whole_share);
  draft_.memory_per_rank = Bytes(counts_.memory_per_node.count() / laid_out.ranks_per_node);
  return {};
}

}  // namespace tutti::jobfile
