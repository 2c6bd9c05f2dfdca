// Objects with every field set, for the tests of wire.
#pragma once

#include "control/cluster/model.hpp"

namespace tutti::wire {

inline cluster::JobSpec full_spec() {
  cluster::JobSpec spec;
  spec.name = "train";
  spec.command = {"python3", "train.py"};
  spec.env = {"A=1", "B="};
  spec.workdir = "/data";
  spec.sync = std::string(64, 'a');
  spec.output = "out-%j";
  spec.user = "ada";
  spec.shape = {.ranks = 6,
                .rank_counts = {6, 5, 4},
                .ranks_per_node = 2,
                .nodes = 3,
                .gpu_share = 1000,
                .cpus = 3,
                .memory = gib(2),
                .gpu_model = "H100",
                .gpu_memory = gib(40),
                .within = sched::Level::rack};
  spec.priority = -3;
  spec.time_limit = 90min;
  spec.grace = 20s;
  spec.restarts = 7;
  spec.restart_on_failure = 2;
  spec.slurm_variables = true;
  spec.yields = true;
  spec.array = cluster::ArrayPart{cluster::JobId(40), 2, 5, 3};
  spec.secrets = {"TOKEN", "KEY"};
  spec.after = {{cluster::JobId(7), true}, {cluster::JobId(8), false}};
  return spec;
}

inline cluster::Job full_job() {
  cluster::Job job;
  job.id = cluster::JobId(42);
  job.spec = full_spec();
  job.state = cluster::JobState::running;
  job.attempt = 2;
  job.losses = 1;
  job.failures = 1;
  job.submitted_at = Instant(1'700'000'000s);
  job.started_at = Instant(1'700'000'001s);
  job.exit_code = 3;
  job.reason = "because";
  job.last_end = "before";
  job.holds = true;
  job.places = {{"a", {{0, 1000}}}, {"a", {{1, 1000}}}, {"b", {{0, 1000}}}, {"b", {{1, 1000}}}};
  job.ranks = {{cluster::RankState::started},
               {cluster::RankState::exited, 9, "x", true},
               {cluster::RankState::exited, 126, "full", false, {}, true, false, cluster::Told::yes},
               {}};
  job.ranks[2].no_program = true;
  job.ended_at = Instant(1'700'000'008s);
  job.running_at = Instant(1'700'000'002s);
  job.told_at = Instant(1'700'000'007s);
  job.witness = 1;
  job.witness_since = Instant(1'700'000'003s);
  job.master_port = 20'001;
  job.ending = cluster::EndCause::node_lost;
  job.attempt_told = 8;
  job.bad_ends = 4;
  job.deadly_attempts = 3;
  job.nodes_lost = 5;
  job.attempt_losses = 2;
  job.not_before = Instant(1'700'000'009s);
  job.submit_key = "key-7";
  return job;
}

inline cluster::Fabric three_links() {
  const Instant at(1'700'000'000s);
  return {{{"a", "b"}, {"a", "b", 10us, Bytes(4'100'000'000), at}},
          {{"a", "c"}, {"a", "c", 12'500ns, Bytes(10'000'000'000), at}},
          {{"b", "c"}, {"b", "c", 10us, Bytes(10'000'000'000), at}}};
}

}  // namespace tutti::wire
