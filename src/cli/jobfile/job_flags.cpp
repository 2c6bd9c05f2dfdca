#include "cli/jobfile/job_flags.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace tutti::jobfile {
namespace {

using cluster::ranks_max;

// A setter that parses and stores.
template <class T, class Value>
config::Flags::Setter store(T& target, Result<Value> (*parse)(std::string_view)) {
  return [&target, parse](std::string_view text) -> Result<> {
    auto value = parse(text);
    if (!value) return std::move(value).error();
    target = std::move(*value);
    return {};
  };
}

std::int32_t narrow(std::int64_t number) { return static_cast<std::int32_t>(number); }

// What the counts say together; gpus, ranks, ranks-per-node and nodes fill in one another.
Result<std::int64_t> count_ranks(const Draft& draft) {
  if (draft.gpus > 0 && !draft.rank_counts.empty())
    return invalid("is short for ranks of one GPU each: leave out ranks").within("gpus");
  if (draft.gpus > 0 && draft.gpu_share)
    return invalid("is short for ranks of one GPU each: leave out gpus-per-rank").within("gpus");
  const std::int64_t nodes = std::max<std::int64_t>(draft.nodes, 1);
  const std::int64_t places = nodes * std::max<std::int64_t>(draft.ranks_per_node, 1);
  const std::int64_t given = draft.rank_counts.empty() ? draft.gpus : draft.rank_counts.front();
  const std::int64_t ranks = given > 0 ? given : places;
  if (ranks > ranks_max)
    return invalid("a job has at most " + std::to_string(ranks_max) + " ranks, not " + std::to_string(ranks))
        .within("ranks");
  if (ranks < draft.nodes)
    return invalid(std::to_string(draft.nodes) + " are more than the " + std::to_string(ranks) + " ranks")
        .within("nodes");
  if (draft.nodes > 0 && draft.ranks_per_node > 0 && ranks > places)
    return invalid(std::to_string(ranks) + " do not fit: " + std::to_string(draft.nodes) + " nodes with " +
                   std::to_string(draft.ranks_per_node) + " each hold " + std::to_string(places))
        .within("ranks");
  return ranks;
}

Result<sched::Shape> make_shape(const Draft& draft) {
  auto ranks = count_ranks(draft);
  if (!ranks) return std::move(ranks).error();
  sched::Shape shape;
  shape.ranks = narrow(*ranks);
  if (draft.rank_counts.size() > 1) shape.rank_counts = draft.rank_counts;
  shape.nodes = narrow(draft.nodes);
  const bool nodes_alone = draft.nodes > 0 && draft.ranks_per_node == 0 && *ranks == draft.nodes;
  shape.ranks_per_node = nodes_alone ? 1 : narrow(draft.ranks_per_node);
  shape.gpu_share = draft.gpus > 0 ? sched::whole_share : draft.gpu_share.value_or(0);
  shape.cpus = narrow(draft.cpus_per_rank);
  shape.memory = draft.memory_per_rank;
  shape.gpu_model = draft.gpu_model;
  shape.gpu_memory = draft.gpu_memory;
  shape.within = draft.within;
  const bool asks_for_device = !shape.gpu_model.empty() || shape.gpu_memory > Bytes(0);
  if (asks_for_device && shape.gpu_share == 0)
    return invalid("says which GPUs, and the job asks for none")
        .within(shape.gpu_model.empty() ? "gpu-memory" : "gpu-model")
        .remedy("add gpus-per-rank or gpus");
  return shape;
}

// Without those that a later one replaces: programs would see the first.
Result<std::vector<std::string>> make_env(const std::vector<std::string>& entries) {
  if (auto checked = cluster::check_env(entries); !checked) return std::move(checked).error();
  std::vector<std::string> kept;
  std::set<std::string> names;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (names.insert(entry->substr(0, entry->find('='))).second) kept.push_back(*entry);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

Result<> add_dependencies(const std::vector<std::string>& jobs, bool success,
                          std::vector<cluster::Dependency>& all) {
  for (const auto& text : jobs) {
    auto job = parse_job(text);
    if (!job) return std::move(job).error().within(success ? "after-success" : "after");
    all.push_back({*job, success});
  }
  return {};
}

Result<std::vector<cluster::Dependency>> make_dependencies(const Draft& draft) {
  if (draft.after.size() + draft.after_success.size() > dependencies_max)
    return invalid("a job waits for at most " + std::to_string(dependencies_max) + " others").within("after");
  std::vector<cluster::Dependency> all;
  if (auto added = add_dependencies(draft.after, false, all); !added) return std::move(added).error();
  if (auto added = add_dependencies(draft.after_success, true, all); !added) return std::move(added).error();
  return all;
}

// As the controller names one that has none: of a command in one word the first, and no variable that is set.
std::string default_name(const std::string& command) {
  const std::string program = command.substr(0, command.find_first_of(" \t\n;|&"));
  if (program.empty() || program.find('=') != std::string::npos) return "job";
  return as_name(program.substr(program.rfind('/') + 1));
}

Result<std::vector<cluster::JobSpec>> spread(const cluster::JobSpec& spec, const ArrayRange& array) {
  if (array.indices.empty()) return std::vector{spec};
  std::vector<cluster::JobSpec> specs(array.indices.size(), spec);
  for (std::size_t at = 0; at < specs.size(); ++at)
    specs[at].array = cluster::ArrayPart{
        {}, array.indices[at], narrow(static_cast<std::int64_t>(specs.size())), array.limit};
  return specs;
}

}  // namespace

void Draft::declare(config::Flags& flags) {
  flags.add("name", "NAME", store(name, parse_name), "what to call the job; otherwise its command's name");
  flags.add("ranks", "N", store(rank_counts, parse_rank_counts),
            "how many ranks the gang has; 4:16 or 16,8,4: the most of these that fit");
  flags.add("ranks-per-node", ranks_per_node, "at most so many on one node", {1, ranks_max});
  flags.add("nodes", nodes, "on exactly so many nodes; alone: one rank on each", {1, ranks_max});
  flags.add("gpus-per-rank", "G", store(gpu_share, parse_gpu_share),
            "whole GPUs, or a part of one such as 0.25");
  flags.add("gpus", gpus, "short for so many ranks of one GPU each", {1, ranks_max});
  flags.add("cpus-per-rank", cpus_per_rank, "processor cores for each rank", {1, cpus_per_rank_max});
  flags.add("memory-per-rank", "SIZE", store(memory_per_rank, parse_memory),
            "memory for each rank, such as 16G");
  flags.add("gpu-model", "MODEL", store(gpu_model, parse_models),
            "only GPUs of this model, or of one of several: A100,H100");
  flags.add("gpu-memory", "SIZE", store(gpu_memory, parse_memory), "only GPUs with at least so much memory");
  flags.add("within", "PART", store(within, sched::parse_level),
            "all ranks in one part of the fabric: nvlink, rack, pod or site");
  flags.add("queue", "QUEUE", store(queue, parse_queue), "the queue whose share the job uses");
  flags.add("priority", priority, "higher ones start first, and lower ones make way for them",
            {-cluster::priority_max, cluster::priority_max});
  flags.add("time", "TIME", store(time_limit, parse_time_limit),
            "ends the job after 2h, 30m or 1-12:00:00; a number alone: minutes");
  flags.add(
      "env", env,
      "K=V in the environment of every rank, or on the command line K alone, as it is here; may be repeated");
  flags.add("secret", secrets,
            "name of a secret that every rank finds as a file in the folder TUTTI_SECRETS; may be repeated");
  flags.add(
      "sync", "DIR", store(sync_folder, parse_path),
      "ships this folder to the nodes; ranks start in it, and what they write there is removed with it");
  flags.add("restarts", restarts, "how often to start again after the loss of a node",
            {0, cluster::restarts_max});
  flags.add("restart-on-failure", restart_on_failure, "how often to start again after the program failed",
            {0, cluster::restarts_max});
  flags.add("yields", yields,
            "saves its work when asked to end: may be put aside for work that has had less, and is resumed");
  flags.add("grace", "TIME", store(grace, parse_grace), "how long ranks may take to end when asked to");
  flags.add("array", "RANGE", store(array, parse_array),
            "one job for each of 0-99, 0-10:2 or 1,3,5; %8: eight at once");
  flags.add("after", after, "starts when this job has ended; may be repeated");
  flags.add("after-success", after_success, "starts when this job has succeeded; may be repeated");
  flags.add("output", "FILE", store(output, parse_path),
            "writes the logs of all ranks into this file as well");
  flags.add("workdir", "DIR", store(workdir, parse_path), "the folder in which ranks start");
}

Result<std::vector<cluster::JobSpec>> Draft::finish() const {
  if (auto checked = cluster::check_command(command); !checked) return std::move(checked).error();
  auto shape = make_shape(*this);
  if (!shape) return std::move(shape).error();
  auto environment = make_env(env);
  if (!environment) return std::move(environment).error();
  auto dependencies = make_dependencies(*this);
  if (!dependencies) return std::move(dependencies).error();
  cluster::JobSpec spec;
  spec.name = name.empty() ? default_name(command.front()) : name;
  spec.command = command;
  spec.env = std::move(*environment);
  spec.workdir = workdir;
  spec.output = output;
  spec.shape = std::move(*shape);
  spec.queue = queue;
  spec.priority = narrow(priority);
  spec.time_limit = time_limit;
  spec.grace = grace;
  spec.restarts = narrow(restarts);
  spec.restart_on_failure = narrow(restart_on_failure);
  spec.slurm_variables = slurm_variables;
  spec.yields = yields;
  spec.after = std::move(*dependencies);
  spec.secrets = secrets;
  if (auto checked = cluster::check_limits(spec); !checked) return std::move(checked).error();
  return spread(spec, array);
}

}  // namespace tutti::jobfile
