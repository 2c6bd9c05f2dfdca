// Why a job waits. A question is put together on the core's thread and answered on the explainer's.
#include <array>
#include <functional>

#include "base/clock/clock.hpp"
#include "control/cluster/authorize.hpp"
#include "control/controller/call.hpp"
#include "control/controller/job_argument.hpp"
#include "control/wire/requests.hpp"

namespace tutti::controller {
namespace {

using Ask = std::function<void(cluster::State& state, const Explainer::Seat& seat)>;

// Whoever asks counts from here on until he is answered, and waits as for a page.
void ask(const Call& call, Ask ask) {
  const std::string& address = call.request().remote;
  auto seat = call.services().explainer.seat(address);
  if (!seat) return call.refuse_for_now(failed("too many ask why their jobs wait"));
  const bool taken = call.services().core.look(
      address,
      [call, ask = std::move(ask), seat = std::move(seat)](cluster::State& state,
                                                           const wire::StoreHealth& health) {
        if (!health.state_is_stored) return call.refuse(not_known(health));
        ask(state, seat);
      },
      [call] { return call.is_over(); });
  if (!taken) call.refuse_for_now(failed("too many pages are asked for at once"));
}

void ask_about(const Call& call, cluster::JobId job, cluster::State& state, const Explainer::Seat& seat) {
  const auto caller = call.caller(state);
  if (!caller) return call.refuse(caller.error());
  const cluster::Job* seen = cluster::visible_job(state, *caller, job);
  if (seen == nullptr) return call.refuse(cluster::not_visible(state, job), 404);
  const cluster::Job& known = *seen;
  if (known.finished() || known.placed()) return call.answer(wire::explain_json(state, known));
  call.services().explainer.ask(
      seat,
      [&]() -> Result<cluster::Question> { return cluster::question_about(state, now_on_the_wall(), known); },
      [call, job, state_name = std::string(cluster::state_name(known))](auto answer) {
        if (!answer) return call.refuse(answer.error());
        call.answer(wire::explain_json(*answer, job.text(), state_name));
      },
      [call] { return call.is_over(); });
}

void explain_job(const Call& call) {
  const auto job = job_argument(call);
  if (!job) return call.refuse(job.error(), 404);
  ask(call, [call, job = *job](cluster::State& state, const Explainer::Seat& seat) {
    ask_about(call, job, state, seat);
  });
}

void explain_submit(const Call& call) {
  auto asked = wire::decode_submit(call.body());
  if (!asked) return call.refuse(asked.error());
  cluster::Event event = std::move(*asked);
  if (call.by().caller) cluster::sign(event, *call.by().caller);
  ask(call, [call, submit = std::get<cluster::Submit>(std::move(event))](cluster::State& state,
                                                                         const Explainer::Seat& seat) {
    const auto caller = call.caller(state);
    const auto allowed = caller ? cluster::authorize(state, *caller, submit) : Result<>(caller.error());
    if (!allowed) {
      call.note({.verb = "explain", .object = "jobs", .refused = allowed.error().text()});
      return call.refuse(allowed.error());
    }
    call.services().explainer.ask(
        seat, [&] { return cluster::question_about(state, now_on_the_wall(), submit); },
        [call](auto answer) {
          if (!answer) return call.refuse(answer.error());
          call.answer(wire::explain_json(*answer, "", ""));
        },
        [call] { return call.is_over(); });
  });
}

}  // namespace

std::span<const Route> explain_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/jobs/{id}/explain",
            .need = Need::viewer,
            .is_question = true,
            .answer = {"ExplainView"},
            .summary = "Why a job waits, when it is expected to start, what would start it sooner",
            .handle = explain_job},
      Route{.method = "POST",
            .path = "/explain",
            .need = Need::user,
            .body_bytes_max = one_job_body_bytes_max,
            .spreads = true,
            .is_question = true,
            .request = {"SubmitRequest"},
            .answer = {"ExplainView"},
            .summary =
                "The same of a job that is not submitted; it is checked as a submit is, and nothing changes",
            .handle = explain_submit},
  };
  return table;
}

}  // namespace tutti::controller
