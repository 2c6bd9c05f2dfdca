#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {

std::string explain_json(const sched::Explanation& explanation, const std::string& id,
                         const std::string& state) {
  proto::ExplainView view;
  view.set_id(id);
  view.set_state(state);
  view.set_why(explanation.why);
  view.set_starts_now(explanation.starts_now);
  view.set_queue(explanation.queue);
  view.set_ahead(static_cast<std::int32_t>(explanation.ahead));
  for (const auto ahead : explanation.ahead_ids) view.add_ahead_ids(ahead.text());
  if (explanation.expected_start) view.set_expected_start(format_instant(*explanation.expected_start));
  view.set_unknown(explanation.unknown);
  for (const auto& suggestion : explanation.suggestions) {
    auto* added = view.add_suggestions();
    added->set_change(suggestion.change);
    added->set_start(format_instant(suggestion.start));
    added->set_now(suggestion.now);
  }
  return print(view);
}

std::string explain_json(const cluster::State& state, const cluster::Job& job) {
  proto::ExplainView view;
  view.set_id(job.id.text());
  view.set_state(std::string(cluster::state_name(job)));
  view.set_why(cluster::reason_of(state, job));
  view.set_queue(job.spec.queue);
  return print(view);
}

}  // namespace tutti::wire
