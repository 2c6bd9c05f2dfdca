// What the audit log says of an event: what somebody asked for, and how that stood before and after. Pure
// functions.
#pragma once

#include <optional>
#include <string>

#include "control/cluster/step.hpp"

namespace tutti::cluster {

struct Deed {
  std::string verb;       // "cancel"
  std::string object;     // "job 17"
  std::string what = {};  // more of what was asked: "now"
  std::string who = {};   // of what comes with no token of a person: "node n1"
};

// Nothing of what nobody has asked for, such as reports of agents and the passing of time.
std::optional<Deed> deed_of(const Event& event);
// How that stands of which the event speaks; "" where there is nothing of that name.
std::string standing_of(const State& state, const Event& event);
// "job 17", or "jobs 17 to 26".
std::string jobs_text(const std::vector<JobId>& jobs);

}  // namespace tutti::cluster
