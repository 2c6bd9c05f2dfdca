// Whether somebody may ask for that, by the rules of control/people. What comes of it is the state machine's.
// Pure functions.
#pragma once

#include "base/result.hpp"
#include "control/cluster/step.hpp"
#include "control/people/may.hpp"

namespace tutti::cluster {

// Who that is now; an error if the credential opens nothing any more.
Result<people::Caller> identify(const State& state, Instant now, const people::Credential& credential);

// A job belongs to who submits it, whatever the request says, and whoever ends one is named: from now on the
// event says so. Whoever has the cluster's own token acts for whom he names.
void sign(Event& event, const people::Caller& caller);

// An error with the code forbidden if he may not. What he may not see is not there for him: then it is an
// error as of an unknown id.
Result<> authorize(const State& state, const people::Caller& caller, const Event& event);

// For questions: null for a job that is not there, or that he may not see.
const Job* visible_job(const State& state, const people::Caller& caller, JobId job);
bool may_see(const State& state, const people::Caller& caller, const Job& job);
// One that is under way, or has just ended, of that queue and user: with jobs that have not ended neither a
// queue goes nor a person.
bool may_see(const people::Caller& caller, const QueueName& queue, const std::string& user);
// That there is such a secret: whose jobs may get it.
bool may_see(const people::Caller& caller, const SecretId& id);
// Null for a service that is not there, or that he may not see.
const Service* visible_service(const State& state, const people::Caller& caller, const ServiceName& name);
Error no_visible_service(const ServiceName& name);
// What is said of one that visible_job() does not find.
Error not_visible(const State& state, JobId job);

}  // namespace tutti::cluster
