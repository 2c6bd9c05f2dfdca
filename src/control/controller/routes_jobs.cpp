// Jobs: submitted, listed, looked at, ended, forgotten.
#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "base/clock/clock.hpp"
#include "base/visible.hpp"
#include "control/cluster/authorize.hpp"
#include "control/controller/call.hpp"
#include "control/controller/job_argument.hpp"
#include "control/controller/keep_shipped.hpp"
#include "control/wire/requests.hpp"

namespace tutti::controller {
namespace {

// In place of a number of lines.
constexpr std::int64_t only_what_comes = -1;

constexpr std::size_t page_jobs_max = 1000;
constexpr std::size_t canceller_bytes_max = 64;

void list_jobs(const Call& call) {
  const auto before = call.number("before", 0);
  const auto limit = call.number("limit", 100);
  const auto array = call.number("array", 0);
  if (!before || !limit || *limit < 1 || !array || *array < 0)
    return call.refuse(invalid("before, limit and array are whole numbers"));
  const auto states = wire::parse_states(call.text("state"));
  if (!states) return call.refuse(states.error());
  const wire::JobQuery query{.all = call.is_set("all"),
                             .array = static_cast<std::uint64_t>(*array),
                             .before = static_cast<std::uint64_t>(std::max<std::int64_t>(*before, 0)),
                             .limit = std::min(static_cast<std::size_t>(*limit), page_jobs_max),
                             .states = *states,
                             .user = call.text("user"),
                             .queue = call.text("queue"),
                             .name = call.text("name")};
  call.show([query](const auto& state, const auto&, const people::Caller& caller) {
    wire::JobQuery seen = query;
    if (!people::has(caller, people::Role::viewer, people::everything))
      seen.shows = [&](const cluster::Job& job) { return cluster::may_see(state, caller, job); };
    return wire::jobs_json(state, seen);
  });
}

std::set<std::string> folders_of(const cluster::Submit& submit) {
  std::set<std::string> folders;
  for (const auto& spec : submit.specs) {
    if (!spec.sync.empty()) folders.insert(spec.sync);
  }
  return folders;
}

// At a desk: the disk is waited for beside the loop that hears the agents.
void keep_and_submit(const Call& call, bool repeated) {
  auto submit = wire::decode_submit(call.body());
  if (!submit) return call.refuse(submit.error());
  submit->only_repeats = repeated;
  for (const std::string& folder : repeated ? std::set<std::string>() : folders_of(*submit)) {
    auto kept = keep_shipped(call.services().blobs, folder);
    if (!kept && kept.error().code() == ErrorCode::failed) return call.refuse_for_now(kept.error());
    if (!kept) return call.refuse(kept.error());
  }
  call.change(std::move(*submit));
}

// A folder is on the disk before its job is accepted, which may take long. So whether the job may come in is
// looked at before, and again then: nobody waits to be refused. What was done before needs its folder no
// more.
void submit_shipped(const Call& call, const cluster::Submit& submit) {
  // Elements of an array are alike, and what waits here is not large.
  cluster::Event first = cluster::Submit{{submit.specs.front()}, submit.key};
  if (call.by().caller) cluster::sign(first, *call.by().caller);
  const bool taken = call.services().core.look(
      call.request().remote, [call, first = std::get<cluster::Submit>(std::move(first))](
                                 cluster::State& state, const wire::StoreHealth& health) {
        if (!health.state_is_stored) return call.refuse(not_known(health));
        const auto caller = call.caller(state);
        const auto allowed = caller ? cluster::authorize(state, *caller, first) : Result<>(caller.error());
        if (!allowed) {
          call.note({.verb = "submit", .object = "jobs", .refused = allowed.error().text()});
          return call.refuse(allowed.error());
        }
        const Instant now = now_on_the_wall();
        const bool repeated = cluster::is_repeated(state, now, first);
        const auto admitted = repeated ? Result<>() : cluster::admit(state, now, first);
        if (!admitted) return call.refuse(admitted.error());
        call.hand_to(call.services().desk, [call, repeated] { keep_and_submit(call, repeated); });
      });
  if (!taken) call.refuse_for_now(failed("too many pages are asked for at once"));
}

void submit(const Call& call) {
  auto submit = wire::decode_submit(call.body());
  if (!submit) return call.refuse(submit.error());
  if (folders_of(*submit).empty()) return call.change(std::move(*submit));
  submit_shipped(call, *submit);
}

void release(const Call& call) {
  const auto job = job_argument(call);
  if (!job) return call.refuse(job.error(), 404);
  call.change(cluster::Release{*job, call.is_set("array")});
}

void show_job(const Call& call) {
  const auto job = job_argument(call);
  if (!job) return call.refuse(job.error(), 404);
  call.show([job = *job](const auto& state, const auto&, const auto& caller) -> Result<std::string> {
    const cluster::Job* seen = cluster::visible_job(state, caller, job);
    if (seen == nullptr) return cluster::not_visible(state, job);
    return wire::job_json(state, *seen, true);
  });
}

void cancel(const Call& call) {
  const auto job = job_argument(call);
  if (!job) return call.refuse(job.error(), 404);
  call.change(cluster::Cancel{*job, visible_line(call.text("by").substr(0, canceller_bytes_max)),
                              call.is_set("array"), call.is_set("now")});
}

void remove_jobs(const Call& call) {
  auto jobs = wire::decode_remove_jobs(call.body());
  if (!jobs) return call.refuse(jobs.error());
  call.change(cluster::RemoveJobs{std::move(*jobs)});
}

void read_logs(const Call& call) {
  const auto job = job_argument(call);
  if (!job) return call.refuse(job.error(), 404);
  const auto rank = call.number("rank", -1);
  const bool has_tail = !call.text("tail").empty();
  const auto tail = call.number("tail", 0);
  if (!rank || !tail || *tail < 0) return call.refuse(invalid("rank and tail are whole numbers"));
  if (*rank < -1 || *rank > std::numeric_limits<std::int32_t>::max())
    return call.refuse(invalid("there is no rank " + std::to_string(*rank)));
  call.services().hub.add_log_reader(call.exchange(),
                                     {*job, static_cast<std::int32_t>(*rank), call.is_set("follow"),
                                      has_tail && *tail == 0 ? only_what_comes : *tail},
                                     call.by());
}

}  // namespace

std::span<const Route> job_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/jobs",
            .need = Need::viewer,
            .query = {{"all", "1", "finished ones too"},
                      {"array", "ID", "only the elements of this job's array"},
                      {"state", "STATE", "only jobs in this state, or in one of several with commas"},
                      {"user", "USER", "only those of this user"},
                      {"queue", "QUEUE", "only those of this queue and its parts"},
                      {"name", "TEXT", "only those with this in their name"},
                      {"limit", "N", "jobs a page, at most 1000"},
                      {"before", "ID", "the `next` of the page before"}},
            .answer = {"JobList"},
            .summary = "Jobs, newest first, a page at a time",
            .handle = list_jobs},
      Route{.method = "POST",
            .path = "/jobs",
            .need = Need::user,
            .body_bytes_max = net::body_bytes_max,
            .spreads = true,
            .request = {"SubmitRequest"},
            .answer = {"SubmitReply"},
            .summary =
                "Submits a job, or all elements of an array; durable when it answers, and once for each key",
            .handle = submit},
      Route{.method = "POST",
            .path = "/jobs/remove",
            .need = Need::queue_admin,
            .request = {"RemoveJobsRequest"},
            .answer = {"SubmitReply"},
            .summary = "Forgets finished jobs, all of these or none",
            .handle = remove_jobs},
      Route{.method = "GET",
            .path = "/jobs/{id}",
            .need = Need::viewer,
            .answer = {"JobView with the fields of JobDetail"},
            .summary = "One job with its command, its folder and its ranks",
            .handle = show_job},
      Route{.method = "POST",
            .path = "/jobs/{id}/cancel",
            .need = Need::user,
            .query = {{"array", "1", "every element of its array"},
                      {"by", "NAME", "who, for the reason"},
                      {"now", "1", "kills its ranks instead of asking them to end"}},
            .answer = {"SubmitReply"},
            .summary = "Ends a job; the ids are what is being ended",
            .handle = cancel},
      Route{.method = "POST",
            .path = "/jobs/{id}/release",
            .need = Need::user,
            .query = {{"array", "1", "every element of its array that is held or waits so"}},
            .answer = {"SubmitReply"},
            .summary = "Lets a job that is held, or waits after bad ends, start again at once",
            .handle = release},
      Route{.method = "GET",
            .path = "/jobs/{id}/logs",
            .need = Need::viewer,
            .query = {{"follow", "1", "until the job ends"},
                      {"rank", "N", "only this rank"},
                      {"tail", "N", "only the last N lines of each rank; 0: only what comes from now on"}},
            .answer = {"log {rank, attempt, offset, bytes, text}, job JobView, note {text, missing, "
                       "attempt}, alive {}",
                       Format::events},
            .summary = "The logs of a job's ranks as server-sent events",
            .handle = read_logs},
  };
  return table;
}

}  // namespace tutti::controller
