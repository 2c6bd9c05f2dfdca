#include "control/controller/call.hpp"

#include <charconv>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "control/cluster/authorize.hpp"
#include "control/wire/replies.hpp"

namespace tutti::controller {
namespace {

constexpr int moment_seconds = 1;
// A disk is full, or somebody has as many jobs as he may have.
constexpr int not_soon_seconds = 60;

int status_of(const Error& error) {
  if (error.code() == ErrorCode::invalid) return 400;
  if (error.code() == ErrorCode::forbidden) return 403;
  // What was sent before is not here as it was: it is for whoever asks to send it again.
  return error.code() == ErrorCode::damaged ? 409 : 503;
}

}  // namespace

net::Response refusal(const Error& error, int status) {
  if (status == 0) status = status_of(error);
  return {.status = status,
          .body = wire::error_json(error) + "\n",
          .retry_after_seconds = status == 503 || status == 429 ? not_soon_seconds : 0};
}

net::Response no_such_page(const net::Request& request) {
  return refusal(invalid("there is no page " + valid_utf8(request.path.substr(0, 100)))
                     .remedy(std::string(api_prefix) + "/openapi.json describes the API"),
                 404);
}

Error not_known(const wire::StoreHealth& health) {
  return failed("what is stored is not known now: " + health.error).remedy("ask again when the disk is well");
}

void Call::watch() {
  over_ = std::make_shared<std::atomic<bool>>(false);
  exchange_->when_over([over = over_] { *over = true; });
}

const std::string& Call::argument(std::string_view name) const {
  const auto found = arguments_.find(name);
  TUTTI_CHECK(found != arguments_.end());
  return found->second;
}

std::string Call::text(const std::string& name) const {
  const auto found = request().query.find(name);
  return found == request().query.end() ? "" : found->second;
}

bool Call::is_set(const std::string& name) const { return is_yes(text(name)); }

std::optional<std::int64_t> Call::number(const std::string& name, std::int64_t otherwise) const {
  const auto found = request().query.find(name);
  if (found == request().query.end()) return otherwise;
  std::int64_t number = 0;
  const char* end = found->second.data() + found->second.size();
  const auto parsed = std::from_chars(found->second.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < -1) return std::nullopt;
  return number;
}

void Call::answer(std::string json) const {
  exchange_->answer({.status = 200, .body = std::move(json) + "\n"});
}

void Call::refuse_for_now(Error error) const {
  if (error.remedy().empty()) error = std::move(error).remedy("try again in a moment");
  net::Response response = refusal(error, 503);
  response.retry_after_seconds = moment_seconds;
  exchange_->answer(std::move(response));
}

void Call::hand_to(Desk& desk, std::function<void()> task) const {
  const bool taken = desk.run(request().remote, [call = *this, task = std::move(task)] {
    try {
      task();
    } catch (const std::exception& failure) {
      const net::Request& asked = call.request();
      log::error("{} {} is given up: {}", asked.method, asked.path, failure.what());
      call.refuse_for_now(failed(failure.what()));
    }
  });
  if (!taken) refuse_for_now(failed(desk.crowded()));
}

Result<people::Caller> Call::caller(const cluster::State& state) const {
  if (!by_->caller) return people::Caller();
  return cluster::identify(state, now_on_the_wall(), by_->credential);
}

void Call::change(cluster::Event event, int status_if_wrong) const {
  happen(std::move(event), status_if_wrong, wire::submitted_json);
}

void Call::change(cluster::Event event, std::string answer) const {
  happen(std::move(event), 400, [answer = std::move(answer)](const auto&) { return answer; });
}

void Call::change(cluster::Event event, std::string answer, const std::function<void()>& done) const {
  if (by_->caller) cluster::sign(event, *by_->caller);
  const bool taken = services_.core.happen(
      std::move(event),
      [call = *this, answer = std::move(answer), done](const auto& outcome) {
        done();
        if (!outcome) return call.refuse(outcome.error());
        call.answer(answer);
      },
      by_->caller ? std::optional(by_->credential) : std::nullopt, request().remote);
  if (taken) return;
  done();
  refuse_for_now(failed("the controller is overloaded"));
}

void Call::happen(cluster::Event event, int status_if_wrong, Answer answer) const {
  // Before it waits: what waits is shared by those whose it is.
  if (by_->caller) cluster::sign(event, *by_->caller);
  const bool taken = services_.core.happen(
      std::move(event),
      [call = *this, status_if_wrong, answer = std::move(answer)](auto done) {
        const bool wrong = !done && done.error().code() == ErrorCode::invalid;
        if (!done) return call.refuse(done.error(), wrong ? status_if_wrong : 0);
        call.answer(answer(*done));
      },
      by_->caller ? std::optional(by_->credential) : std::nullopt, request().remote);
  if (!taken) refuse_for_now(failed("the controller is overloaded"));
}

void Call::note(cluster::Noted noted) const {
  services_.core.happen(std::move(noted), nullptr,
                        by_->caller ? std::optional(by_->credential) : std::nullopt, request().remote);
}

void Call::note_first(cluster::Noted noted, std::function<void()> then) const {
  const bool taken = services_.core.happen(
      std::move(noted),
      [call = *this, then = std::move(then)](const auto& done) {
        if (!done) return call.refuse(done.error());
        then();
      },
      by_->caller ? std::optional(by_->credential) : std::nullopt, request().remote);
  if (!taken) refuse_for_now(failed("the controller is overloaded"));
}

Registrar* Call::registrar() const {
  if (services_.registrar == nullptr)
    refuse(invalid("this controller signs no certificates: it speaks no TLS, or its folder has no authority")
               .remedy(
                   "`tutti controller --listen` on another address than 127.0.0.1, or with --tls, and `tutti "
                   "controller init` for the authority; here agents join with the join token"),
           404);
  return services_.registrar;
}

void Call::show(View view) const {
  Call watched = *this;
  watched.watch();
  const bool taken = services_.core.look(
      request().remote,
      [watched, view = std::move(view)](const cluster::State& state, const wire::StoreHealth& health) {
        if (!health.state_is_stored) return watched.refuse(not_known(health));
        const auto caller = watched.caller(state);
        if (!caller) return watched.refuse(caller.error());
        auto text = view(state, health, *caller);
        const bool forbidden = !text && text.error().code() == ErrorCode::forbidden;
        if (!text) return watched.refuse(text.error(), forbidden ? 0 : 404);
        watched.answer(std::move(*text));
      },
      [watched] { return watched.is_over(); });
  if (!taken) refuse_for_now(failed("too many pages are asked for at once"));
}

}  // namespace tutti::controller
