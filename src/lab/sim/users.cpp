#include "lab/sim/users.hpp"

#include <algorithm>

#include "control/cluster/limits.hpp"
#include "lab/sim/program.hpp"

namespace tutti::sim {

void Users::ask(const std::string& what, cluster::Event event, bool submits) {
  world_.note("user: " + what);
  controller_.happen(std::move(event), [this, submits](const Result<std::vector<cluster::JobId>>& answer) {
    if (!answer || !submits) return;
    world_.checks.acknowledged(*answer);
    jobs_.insert(jobs_.end(), answer->begin(), answer->end());
  });
}

namespace {

// Of a queue: all who submit there may use it.
const cluster::SecretId shared_secret{cluster::SecretId::Of::queue, cluster::default_queue, "SHARED"};
// Now and then it is there, or another one, or none; and some jobs ask for it.
constexpr std::uint64_t secret_every = 16;
constexpr std::uint64_t asks_every = 5;
constexpr std::size_t sealing_bytes = 28;

}  // namespace

void Users::act() {
  if (++acts_ % secret_every == 1) keep_secret(acts_ / secret_every % 3 != 2);
  const double what = world_.prng.unit();
  if (what < 0.70) return submit();
  if (what < 0.85) return cancel();
  if (what < 0.92) return drain();
  resume(nodes_[world_.prng.below(nodes_.size())]);
}

// ---- jobs

sched::Shape Users::some_shape() {
  Prng& prng = world_.prng;
  const auto nodes = static_cast<std::int32_t>(nodes_.size());
  sched::Shape shape;
  switch (prng.below(5)) {
    case 0:  // whole devices, up to all there are
      shape.gpu_share = 1000;
      shape.ranks = static_cast<std::int32_t>(prng.between(1, prng.chance(0.2) ? gpus_ : 4));
      break;
    case 1:  // a share of one
      shape.gpu_share = prng.chance(0.5) ? 250 : 500;
      shape.ranks = static_cast<std::int32_t>(prng.between(1, std::int64_t{2} * nodes));
      break;
    case 2:  // so many ranks on so many nodes
      shape.gpu_share = 1000;
      shape.nodes = static_cast<std::int32_t>(prng.between(1, nodes));
      shape.ranks_per_node = static_cast<std::int32_t>(prng.between(1, node_gpus_min));
      shape.ranks = shape.nodes * shape.ranks_per_node;
      break;
    case 3:  // several devices a rank
      shape.gpu_share = 2000;
      shape.ranks = static_cast<std::int32_t>(prng.between(1, nodes));
      break;
    default:  // none
      shape.cpus = static_cast<std::int32_t>(prng.between(0, 4));
      shape.ranks = static_cast<std::int32_t>(prng.between(1, std::int64_t{2} * nodes));
      break;
  }
  if (shape.nodes == 0 && prng.chance(0.2)) add_elasticity(shape);
  return shape;
}

void Users::add_elasticity(sched::Shape& shape) {
  for (std::int32_t ranks = shape.ranks; ranks > 0; ranks /= 2) shape.rank_counts.push_back(ranks);
}

cluster::JobSpec Users::some_spec() {
  Prng& prng = world_.prng;
  cluster::JobSpec spec;
  spec.name = "job";
  spec.command = some_program(prng);
  spec.shape = some_shape();
  spec.priority = static_cast<std::int32_t>(prng.between(-1, 1));
  spec.restarts = static_cast<std::int32_t>(prng.between(0, 4));
  spec.restart_on_failure = static_cast<std::int32_t>(prng.below(3));
  if (is_poison(spec.command)) spec.restarts = cluster::restarts_max;
  spec.grace = world_.between(10ms, 5s);
  if (prng.chance(0.3)) spec.time_limit = world_.between(1s, 20s);
  if (acts_ % asks_every == 0) spec.secrets = {shared_secret.name};
  if (prng.chance(0.2)) spec.sync = "manifest";
  if (!jobs_.empty() && prng.chance(0.2))
    spec.after.push_back({jobs_[prng.below(jobs_.size())], prng.chance(0.5)});
  return spec;
}

void Users::submit() {
  const cluster::JobSpec spec = some_spec();
  cluster::Submit submit{{spec}};
  if (world_.prng.chance(0.15)) {
    const auto count = static_cast<std::int32_t>(world_.prng.between(2, 5));
    const auto limit = static_cast<std::int32_t>(world_.prng.below(3));
    submit.specs.assign(static_cast<std::size_t>(count), spec);
    for (std::int32_t index = 0; index < count; ++index)
      submit.specs[static_cast<std::size_t>(index)].array = cluster::ArrayPart{{}, index, count, limit};
  }
  const std::string what = "submit " + std::to_string(submit.specs.size()) + " of " +
                           std::to_string(spec.shape.ranks) + " ranks that " + spec.command.front();
  ask(what, std::move(submit), true);
}

void Users::cancel() {
  if (jobs_.empty()) return;
  const cluster::JobId job = jobs_[world_.prng.below(jobs_.size())];
  ask("cancel " + job.text(),
      cluster::Cancel{job, "somebody", world_.prng.chance(0.2), job.number() % 4 == 0}, false);
}

void Users::keep_secret(bool there) {
  if (!there) return ask("remove the secret", cluster::RemoveSecret{shared_secret}, false);
  const auto bytes = static_cast<std::int32_t>(1 + acts_ % 100);
  ask("set the secret",
      cluster::SetSecret{.id = shared_secret,
                         .key = "key",
                         .sealed = std::string(static_cast<std::size_t>(bytes) + sealing_bytes, 's'),
                         .bytes = bytes},
      false);
}

// ---- nodes

void Users::drain() {
  const std::string& node = nodes_[world_.prng.below(nodes_.size())];
  const bool now = world_.prng.chance(0.5);
  ask("drain " + node + (now ? " now" : ""), cluster::Drain{node, now}, false);
}

void Users::resume(const std::string& node) { ask("resume " + node, cluster::Resume{node}, false); }

void Users::clean_up() {
  if (!controller_.well()) return;
  if (!controller_.state().secrets.contains(shared_secret)) keep_secret(true);
  for (const auto& [name, node] : controller_.state().nodes) {
    if (node.draining) resume(name);
  }
  for (const cluster::JobId id : controller_.state().active) {
    const cluster::Job& job = controller_.state().jobs.at(id);
    const bool being_cancelled =
        job.ending == cluster::EndCause::cancelled || job.ending == cluster::EndCause::killed;
    // Somebody looks at what is held, and sees that it was the job, or that it was not.
    const bool held = !job.held.empty();
    if (held && !is_poison(job.spec.command)) ask("release " + id.text(), cluster::Release{id}, false);
    if ((hangs(job.spec.command) || (held && is_poison(job.spec.command))) && !being_cancelled)
      ask("cancel " + id.text(), cluster::Cancel{id, "somebody", false}, false);
  }
}

}  // namespace tutti::sim
