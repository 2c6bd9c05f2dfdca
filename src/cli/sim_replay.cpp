#include "cli/sim_replay.hpp"

#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/progress_bar.hpp"
#include "lab/replay/replay.hpp"
#include "lab/replay/saturate.hpp"
#include "lab/replay/scale.hpp"

namespace tutti::cli {
namespace {

constexpr std::uint64_t seeds_max = 10'000;

Error missing(const std::string& flag, const std::string& what) {
  return invalid("--" + flag + " is needed: " + what).within("sim").remedy("`tutti sim --help` tells more");
}

void tell(const replay::Replayed& out) {
  std::printf("%zu jobs on %lld GPUs, policy %s\n", out.jobs.size(), static_cast<long long>(out.gpus),
              out.policy.c_str());
  std::printf("  job completion time: average %.0f s, median %.0f s, 99th percentile %.0f s\n",
              out.jct_mean_s(), out.jct_median_s(), out.jct_p99_s());
  std::printf("  makespan %.0f s, %.0f s in the queue on average, %.1f%% of the GPUs in use\n",
              out.makespan_s(), out.queue_mean_s(), 100 * out.utilisation());
  std::printf("  %zu preemptions, %zu node failures, %.1f GPU-hours lost\n", out.preemptions,
              out.node_failures, out.lost_gpu_hours);
}

}  // namespace

Result<> write_report(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(file.c_str(), "wb"), &std::fclose);
  if (out == nullptr) return failed_errno("cannot be written", errno).within(file);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), out.get()) == text.size() && std::fflush(out.get()) == 0;
  if (!written) return failed_errno("cannot be written", errno).within(file);
  return {};
}

void ReplayCommands::declare(config::Flags& flags) {
  flags.add("cluster", cluster_,
            "run: the machines, as YAML (nodes: 8, gpus: 8, model: V100) or a CSV list of nodes");
  flags.add("trace", trace_,
            "run: the jobs, a CSV, plain or gzip'd: job_id,submit_s,gpus,duration_s,gpu_type,user,…");
  flags.add("partition", partition_, "run: only the jobs of this partition");
  flags.add("policy", policy_, "run, saturate: tutti (the default), fifo, srtf, best-fit or fgd");
  flags.add("failures", failures_, "run: nodes that fail, a CSV: at_s,node,down_s");
  flags.add("checkpoint-every", checkpoint_every_,
            "run: what a failed node's jobs lose at most (default: 30m)");
  flags.add("restart-cost", restart_cost_,
            "run: time a job needs to come back to its checkpoint (default: 0s)");
  flags.add("html", html_, "run: write a page with plots to this file");
  flags.add("nodes", nodes_, "saturate: the machines, a CSV list of nodes");
  flags.add("pods", pods_, "saturate: the tasks, a CSV: cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec");
  flags.add("gpus", gpus_, "scale: devices of the cluster, eight a node (default: 220000)", {8, 800'000});
  flags.add("jobs", jobs_, "scale: gangs in the queue (default: 100000)", {1, 1'000'000});
}

Result<int> ReplayCommands::run() {
  if (cluster_.empty()) return missing("cluster", "the machines of the simulation");
  if (trace_.empty()) return missing("trace", "the jobs of the simulation");
  auto fleet = replay::read_fleet(cluster_);
  if (!fleet) return std::move(fleet).error().within("sim");
  auto trace = replay::read_trace(trace_, partition_);
  if (!trace) return std::move(trace).error().within("sim");
  auto policy = sched::find_policy(policy_);
  if (!policy) return std::move(policy).error().within("sim");
  replay::ReplayOptions options;
  options.policy = *policy;
  options.restart_cost = restart_cost_;
  options.checkpoint_every = std::max<Duration>(checkpoint_every_, 1s);
  if (!failures_.empty()) {
    auto failures = replay::read_failures(failures_);
    if (!failures) return std::move(failures).error().within("sim");
    options.failures = std::move(*failures);
  }
  auto out = [&] {
    ProgressBar bar("replaying");
    options.progress = [&](std::size_t done, std::size_t all) { bar.show_count(done, all); };
    return replay::replay(*fleet, *trace, options);
  }();
  if (!out) return std::move(out).error().within("sim");
  if (!html_.empty()) {
    if (auto written = write_report(html_, replay::to_html(*out)); !written)
      return std::move(written).error();
  }
  if (!json.empty()) {
    if (auto written = write_report(json, replay::to_json(*out)); !written) return std::move(written).error();
  }
  if (json != "-") tell(*out);
  return exit_success;
}

Result<int> ReplayCommands::saturate() {
  if (nodes_.empty()) return missing("nodes", "the machines of the simulation");
  if (pods_.empty()) return missing("pods", "the tasks of the simulation");
  if (seed_last - seed_first >= seeds_max) return invalid("at most 10000 seeds").within("sim");
  auto fleet = replay::read_fleet(nodes_);
  if (!fleet) return std::move(fleet).error().within("sim");
  auto tasks = replay::read_tasks(pods_);
  if (!tasks) return std::move(tasks).error().within("sim");
  auto policy = sched::find_policy(policy_);
  if (!policy) return std::move(policy).error().within("sim");
  std::vector<std::uint64_t> seeds;
  // By their number: after the largest seed there is the first comes again.
  for (std::uint64_t more = 0; more <= seed_last - seed_first; ++more) seeds.push_back(seed_first + more);
  replay::Saturated out;
  {
    ProgressBar bar("saturating");
    bar.show_count(0, seeds.size());
    out = replay::saturate(*fleet, *tasks, **policy, seeds,
                           [&](std::size_t done) { bar.show_count(done, seeds.size()); });
  }
  if (!json.empty()) {
    const nlohmann::json told{{"policy", out.policy},
                              {"gpu_allocation_percent", out.mean()},
                              {"seeds", out.seeds},
                              {"per_seed", out.gpu_allocation_percent}};
    if (auto written = write_report(json, told.dump(2) + "\n"); !written) return std::move(written).error();
  }
  if (json != "-")
    std::printf("policy %s: %.2f%% of the GPUs are given out, mean of %zu seeds\n", out.policy.c_str(),
                out.mean(), out.seeds.size());
  return exit_success;
}

Result<int> ReplayCommands::scale() {
  auto out = replay::scale({.gpus = gpus_, .jobs = jobs_, .seed = seed_first});
  if (!out) return std::move(out).error().within("sim");
  if (!json.empty()) {
    const nlohmann::json told{{"nodes", out->nodes},
                              {"jobs", jobs_},
                              {"mean_gpus", out->mean_gpus},
                              {"placements", out->placements},
                              {"placements_per_s", out->placements_per_s},
                              {"pass_ms", out->pass_ms},
                              {"resident_mib", out->resident_mib}};
    if (auto written = write_report(json, told.dump(2) + "\n"); !written) return std::move(written).error();
  }
  if (json != "-")
    std::printf(
        "%lld nodes, %lld gangs of %.0f GPUs on average: %.0f placements/s; a pass over a queue in which "
        "nothing fits takes %.0f ms; %.0f MiB resident\n",
        static_cast<long long>(out->nodes), static_cast<long long>(jobs_), out->mean_gpus,
        out->placements_per_s, out->pass_ms, out->resident_mib);
  return exit_success;
}

}  // namespace tutti::cli
