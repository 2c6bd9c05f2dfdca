#include "control/controller/api.hpp"

#include <algorithm>
#include <chrono>

#include "base/clock/clock.hpp"
#include "base/text.hpp"
#include "control/controller/registrar.hpp"

namespace tutti::controller {
namespace {

constexpr Duration use_noted_every = 1h;
constexpr Rate wrong_tokens_max{.per_second = 20, .burst = 20};    // per address
constexpr Rate open_pages_max{.per_second = 1000, .burst = 2000};  // per address
// The same: a whole hall may join at once, and whoever tries tokens makes this loop look at a key and sign
// each time.
constexpr Rate joins_max{.per_second = 20, .burst = 500};

// Of what is refused, for the audit log.
constexpr std::size_t shown_method_bytes_max = 20;
constexpr std::size_t shown_path_bytes_max = 200;
constexpr std::size_t shown_part_bytes_max = 48;

// What a body may become on the loop, which hears the agents.
constexpr std::size_t spread_bytes_max = 1 << 20;

// One that spreads becomes at most as many jobs as it has commas and one more, each no longer than itself: a
// look at it is enough, however it is written.
bool is_read_soon(const std::string& body, const Route& route) {
  if (body.size() > small_body_bytes_max) return false;
  if (!route.spreads) return true;
  const auto jobs_max = static_cast<std::size_t>(std::count(body.begin(), body.end(), ',')) + 1;
  return jobs_max * body.size() <= spread_bytes_max;
}

net::Response wrong_method(const net::Request& request, const Page& page) {
  net::Response response = refusal(invalid("the page " + valid_utf8(request.path.substr(0, 100)) +
                                           " does not take " + valid_utf8(request.method.substr(0, 20)))
                                       .remedy("it takes " + page.methods()),
                                   405);
  response.allow = page.methods();
  return response;
}

// What stands for yes or no in the query is one of these: another word would be taken for no by one reader
// and for yes by the next.
std::optional<net::Response> wrong_flag(const net::Request& request, const Route& route) {
  for (const Parameter& parameter : route.query) {
    if (parameter.value != flag_value) continue;
    const auto given = request.query.find(std::string(parameter.name));
    if (given == request.query.end() || is_yes(given->second) || is_no(given->second)) continue;
    return refusal(invalid(std::string(parameter.name) + " is neither true (or 1) nor false (or 0)"), 400);
  }
  return std::nullopt;
}

net::Response too_large(const net::Request& request, const Route& route) {
  return refusal(invalid("the body has " + std::to_string(request.body_bytes) + " bytes; at most " +
                         std::to_string(route.body_bytes_max) + " are taken here"),
                 413);
}

// What is asked for, as the audit log says it. What may be a token, pasted in place of its id, is not shown.
std::string shown_path(const std::vector<std::string>& parts) {
  std::string path;
  for (const std::string& part : parts) {
    const bool is_name =
        part.size() <= shown_part_bytes_max && std::all_of(part.begin(), part.end(), [](char letter) {
          return letter > ' ' && letter <= '~' && letter != '/' && letter != '"';
        });
    const bool is_secret = part.starts_with("tutti-") || part.starts_with("tutti_");
    path += is_name && !is_secret ? "/" + part : "/…";
  }
  return path.substr(0, cut_utf8(path, shown_path_bytes_max).size());
}

// Where nodes come with certificates alone, the join token of the folder opens nothing.
Tokens tokens_taken(const ApiOptions& options) {
  Tokens tokens = options.tokens;
  if (!options.takes_join_token) tokens.join.clear();
  return tokens;
}

}  // namespace

Api::Api(Core& core, Hub& hub, Explainer& explainer, Janitor& janitor, AuditKeeper& audit, Vault& vault,
         ApiOptions options)
    : gate_(tokens_taken(options)),
      blobs_(std::move(options.blob_folder)),
      login_(std::move(options.login), std::move(options.give_token), now_steady, now_on_the_wall),
      services_{core,   hub,         explainer,   blobs_, desk_, nodes_desk_,       janitor,
                login_, login_desk_, audit_desk_, audit,  vault, options.registrar, options.takes_join_token},
      requests_(options.requests),
      open_pages_(open_pages_max),
      wrong_tokens_(wrong_tokens_max),
      logins_(wrong_tokens_max),
      joins_(joins_max) {}

Identity Api::identify(const net::Request& request) const {
  Identity by = gate_.identify(request.bearer, now_on_the_wall());
  if (!by.known() && request.peer) by.agent = check_peer(request).ok();
  return by;
}

net::Admission Api::admit(const net::Request& head) {
  const Identity by = identify(head);
  const bool known = by.known();
  const Page page = find_page(routes(), head.parts);
  const Route* route = page.route(head.method);
  if (route == nullptr) return {refuse_unknown(head, page), known};
  // Whoever may not do it has no more tries than others; who is nobody has fewer.
  if (known) {
    if (auto refused = take(limits_of(route->rate), head, "requests")) return {std::move(refused), known};
  }
  if (auto refused = authorize(head, by, route->need)) return {std::move(refused), known};
  if (!known) {
    if (auto refused = take(limits_of(route->rate), head, "requests")) return {std::move(refused), known};
  }
  if (auto refused = recognise(head)) return {std::move(refused), known};
  if (auto refused = wrong_flag(head, *route)) return {std::move(refused), known};
  if (head.body_bytes > route->body_bytes_max) return {too_large(head, *route), known};
  return {.refusal = std::nullopt, .known = known, .body_bytes_max = route->body_bytes_max};
}

void Api::handle(const Shared& exchange) {
  const net::Request& request = exchange->request();
  Page page = find_page(routes(), request.parts);
  const Route& route = *page.route(request.method);
  // It was let in, and may not be any more.
  Identity by = identify(request);
  if (!by.meets(route.need)) {
    if (auto refused = authorize(request, by, route.need)) return exchange->answer(std::move(*refused));
  }
  note_use(by);
  Call call(services_, exchange, std::move(page.arguments), std::move(by));
  if (route.is_question) call.watch();
  if (route.request.format != Format::json || is_read_soon(request.body, route)) return route.handle(call);
  call.hand_to(bodies_, [call, handle = route.handle] {
    if (!call.is_over()) handle(call);
  });
}

// The routes are no secret, so that nobody needs a token to learn of this.
net::Response Api::refuse_unknown(const net::Request& request, const Page& page) {
  if (auto refused = take(open_pages_, request, "requests")) return std::move(*refused);
  return page.routes.empty() ? no_such_page(request) : wrong_method(request, page);
}

Api::Refusal Api::authorize(const net::Request& request, const Identity& by, Need need) {
  if (by.meets(need)) return std::nullopt;
  if (by.caller) {
    const Error error = forbidden("'" + by.caller->name + "' may not do that: it takes the role " +
                                  std::string(name_of(need)));
    note_refusal(request, by, error);
    return refusal(Error(error).remedy("`tutti whoami` tells which roles you have"));
  }
  if (need == Need::agent && request.peer) {
    const auto good = check_peer(request);
    // An agent that connects is told on its connection.
    if (good || request.websocket) return std::nullopt;
    note_refusal(request, by, good.error());
    return refusal(good.error(), 401);
  }
  if (auto refused = take(wrong_tokens_, request, "wrong tokens")) return refused;
  const Error error = invalid(request.bearer.empty() ? "the request has no token" : "the token is wrong");
  note_refusal(request, by, error);
  return refusal(Error(error).remedy("TUTTI_TOKEN_FILE names the file that holds the token"), 401);
}

void Api::note_refusal(const net::Request& request, const Identity& by, const Error& why) {
  cluster::Noted noted{.verb = valid_utf8(request.method.substr(0, shown_method_bytes_max)),
                       .object = shown_path(request.parts),
                       .refused = why.text()};
  services_.core.happen(std::move(noted), nullptr, by.caller ? std::optional(by.credential) : std::nullopt,
                        request.remote);
}

void Api::note_use(const Identity& by) {
  if (by.credential.token.empty()) return;
  const Instant now = now_steady();
  const auto [known, is_new] = used_.try_emplace(by.credential.token, now);
  if (!is_new && now - known->second < use_noted_every) return;
  known->second = now;
  // Where too much waits it is noted another time.
  if (used_.size() > people::tokens_max) used_.clear();
  services_.core.happen(cluster::TokensUsed{{by.credential.token}}, nullptr);
}

Result<> Api::check_peer(const net::Request& request) const {
  if (services_.registrar == nullptr) return invalid("nobody shows a certificate here");
  return services_.registrar->check(*request.peer, now_on_the_wall());
}

// Ids of jobs are the same in every cluster: what is meant for another one is not done here.
Api::Refusal Api::recognise(const net::Request& request) const {
  const auto meant = request.headers.find(net::cluster_header);
  const std::string& here = services_.core.cluster_id();
  if (meant == request.headers.end() || meant->second == here) return std::nullopt;
  return refusal(invalid("this is cluster " + here + ", and the request is for another one"), 412);
}

RateLimits& Api::limits_of(RateClass rate) {
  switch (rate) {
    case RateClass::open_pages:
      return open_pages_;
    case RateClass::logins:
      return logins_;
    case RateClass::joins:
      return joins_;
    case RateClass::requests:
      return requests_;
  }
  return requests_;
}

Api::Refusal Api::take(RateLimits& limits, const net::Request& request, const std::string& what) {
  const Duration wait = limits.take(request.remote, now_steady());
  if (wait == Duration::zero()) return std::nullopt;
  const auto seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(wait).count());
  net::Response response = refusal(failed("too many " + what + " from this address")
                                       .remedy("try again in " + std::to_string(seconds) + " s"),
                                   429);
  response.retry_after_seconds = seconds;
  return response;
}

}  // namespace tutti::controller
