#include "control/cluster/machine.hpp"

namespace tutti::cluster {

Job* Machine::find(JobId id) {
  const auto found = state_.jobs.find(id);
  return found == state_.jobs.end() ? nullptr : &found->second;
}

Service* Machine::find_service(const ServiceName& name) {
  const auto found = state_.services.find(name);
  return found == state_.services.end() ? nullptr : &found->second;
}

Node* Machine::find(const NodeName& name) {
  const auto found = state_.nodes.find(name);
  return found == state_.nodes.end() ? nullptr : &found->second;
}

void Machine::touch(const Job& job) {
  effects_.jobs.insert(job.id);
  effects_.shown.insert(job.id);
  derive(state_, job, now_);
}

void Machine::touch(const Service& service) {
  effects_.services.insert(service.name);
  state_.fleets.due.insert(service.name);
  ++state_.fleets.changes;
}

void Machine::touch(const Node& node) {
  effects_.nodes.insert(node.name);
  state_.index.changed(node);
}

Effects step(State& state, Instant now, const Event& event) {
  Effects effects;
  Machine machine(state, now, effects);
  std::visit([&](const auto& happened) { machine.on(happened); }, event);
  if (!effects.jobs.empty() || !effects.nodes.empty() || !effects.queues.empty() ||
      !effects.join_tokens.empty() || !effects.members.empty() || effects.fabric || effects.cluster ||
      !effects.persons.empty() || !effects.tokens.empty() || !effects.tokens_used.empty() ||
      !effects.secrets.empty() || !effects.services.empty())
    ++state.revision;
  return effects;
}

bool is_stored(const Effects& effects) {
  return !effects.jobs.empty() || !effects.nodes.empty() || !effects.queues.empty() ||
         !effects.past_use.empty() || !effects.persons.empty() || !effects.tokens.empty() ||
         !effects.tokens_used.empty() || !effects.join_tokens.empty() || !effects.members.empty() ||
         !effects.secrets.empty() || !effects.services.empty() || !effects.audit.empty() || effects.fabric ||
         effects.cluster;
}

}  // namespace tutti::cluster
