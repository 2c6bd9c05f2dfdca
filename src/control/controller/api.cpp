#include "control/controller/api.hpp"

#include <openssl/crypto.h>

#include <charconv>
#include <chrono>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/clock/clock.hpp"
#include "base/text.hpp"
#include "base/version/version.hpp"
#include "control/wire/messages.hpp"
#include "control/wire/replies.hpp"
#include "control/wire/requests.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t page_jobs_max = 1000;
constexpr Rate wrong_tokens_max{.per_second = 20, .burst = 20};    // per address
constexpr Rate open_pages_max{.per_second = 1000, .burst = 2000};  // per address

net::Response reply(const Error& error, int status = 0) {
  if (status == 0) status = error.code() == ErrorCode::invalid ? 400 : 503;
  return {.status = status, .body = wire::error_json(error) + "\n"};
}

net::Response no_such_thing(const std::string& what) {
  return reply(invalid("there is no " + what).remedy("/api/v1/openapi.json describes the API"), 404);
}

// What stands at this place below /api/v1, "" if nothing does.
std::string part_of(const net::Request& request, std::size_t at) {
  return at + 2 < request.parts.size() ? request.parts[at + 2] : "";
}

// Pages of the API have at most three parts: jobs/7/cancel.
bool is_of_api(const net::Request& request) {
  return request.parts.size() >= 3 && request.parts.size() <= 5 && request.parts[0] == "api" &&
         request.parts[1] == "v1";
}

// "status" of /api/v1/status: a page without parts of its own.
std::string page_of(const net::Request& request) {
  return is_of_api(request) && request.parts.size() == 3 ? part_of(request, 0) : "";
}

net::Response no_such_page(const net::Request& request) {
  return no_such_thing("page " + valid_utf8(request.path.substr(0, 100)));
}

bool same_secret(const std::string& given, const std::string& expected) {
  return !expected.empty() && given.size() == expected.size() &&
         CRYPTO_memcmp(given.data(), expected.data(), given.size()) == 0;
}

// A number of the query, or its default; nothing if it is none.
std::optional<std::int64_t> number_of(const net::Request& request, const std::string& name,
                                      std::int64_t otherwise) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return otherwise;
  std::int64_t number = 0;
  const char* end = found->second.data() + found->second.size();
  const auto parsed = std::from_chars(found->second.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < -1) return std::nullopt;
  return number;
}

bool is_set(const net::Request& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found != request.query.end() && (found->second == "1" || found->second == "true");
}

}  // namespace

Api::Api(net::Loop& loop, Core& core, Hub& hub, Explainer& explainer, ApiOptions options)
    : loop_(loop),
      core_(core),
      hub_(hub),
      explainer_(explainer),
      tokens_(std::move(options.tokens)),
      blobs_(std::move(options.blob_folder)),
      requests_(options.requests),
      open_pages_(open_pages_max),
      wrong_tokens_(wrong_tokens_max) {}

void Api::handle(const std::shared_ptr<net::Exchange>& exchange) {
  const net::Request& request = exchange->request();
  const std::string kind = is_of_api(request) ? part_of(request, 0) : "";
  const std::string page = page_of(request);
  if (kind.empty() || page == "health" || page == "openapi.json") return handle_open(exchange);
  if (!authorize(exchange)) return;
  if (page == "agent" && request.websocket) {
    const std::string remote = request.remote;
    return exchange->upgrade(
        [this, remote](const std::shared_ptr<net::Socket>& socket) { hub_.add_agent(socket, remote); });
  }
  if (kind == "jobs") return handle_jobs(exchange);
  if (kind == "nodes") return handle_nodes(exchange);
  if (kind == "blobs") return handle_blobs(exchange);
  if (page == "fabric") return handle_fabric(exchange);
  if (page == "events") return hub_.add_watcher(*exchange);
  if (kind == "queues") return handle_queues(exchange);
  if (page == "explain" && request.method == "POST") return explain_submit(exchange);
  if (page == "status") {
    return show(exchange, [](const auto& state, const auto& health) {
      return wire::status_json(state, health, version());
    });
  }
  exchange->answer(no_such_page(request));
}

// What anybody may read.
void Api::handle_open(const Shared& exchange) {
  if (!within(open_pages_, exchange, "requests")) return;
  const net::Request& request = exchange->request();
  const std::string page = page_of(request);
  if (page == "health") return exchange->answer({.status = 200, .body = "{\"alive\":true}\n"});
  if (page == "openapi.json") return exchange->answer({.status = 200, .body = openapi_json()});
  exchange->answer(no_such_page(request));
}

// Agents come with the join token and reach only what they need; everything else asks for the admin token.
bool Api::authorize(const Shared& exchange) {
  const net::Request& request = exchange->request();
  const std::string kind = part_of(request, 0);
  const bool for_agents = kind == "agent" || (kind == "blobs" && request.method == "GET");
  const bool known =
      same_secret(request.bearer, tokens_.admin) || (for_agents && same_secret(request.bearer, tokens_.join));
  if (known) return within(requests_, exchange, "requests");
  if (!within(wrong_tokens_, exchange, "wrong tokens")) return false;
  const std::string what = request.bearer.empty() ? "the request has no token" : "the token is wrong";
  exchange->answer(reply(invalid(what).remedy("TUTTI_TOKEN_FILE names the file that holds the token"), 401));
  return false;
}

bool Api::within(RateLimits& limits, const Shared& exchange, const std::string& what) {
  const Instant now(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  const Duration wait = limits.take(exchange->request().remote, now);
  if (wait == Duration::zero()) return true;
  const auto seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(wait).count());
  net::Response refusal = reply(failed("too many " + what + " from this address")
                                    .remedy("try again in " + std::to_string(seconds) + " s"),
                                429);
  refusal.retry_after_seconds = seconds;
  exchange->answer(std::move(refusal));
  return false;
}

// Runs on the core's thread after the commit; the exchange takes answers from any thread.
void Api::change(const Shared& exchange, cluster::Event event, int status_if_wrong) {
  core_.happen(std::move(event), [exchange, status_if_wrong](Result<std::vector<cluster::JobId>> done) {
    const bool wrong = !done && done.error().code() == ErrorCode::invalid;
    if (!done) return exchange->answer(reply(done.error(), wrong ? status_if_wrong : 0));
    exchange->answer({.status = 200, .body = wire::submitted_json(*done) + "\n"});
  });
}

void Api::show(const Shared& exchange,
               std::function<Result<std::string>(const cluster::State&, const wire::StoreHealth&)> view) {
  core_.ask([exchange, view = std::move(view)](const cluster::State& state, const wire::StoreHealth& health) {
    auto text = view(state, health);
    if (!text) return exchange->answer(reply(text.error(), 404));
    exchange->answer({.status = 200, .body = std::move(*text) + "\n"});
  });
}

void Api::submit(const Shared& exchange) {
  auto specs = wire::decode_submit(exchange->request().body);
  if (!specs) return exchange->answer(reply(specs.error()));
  change(exchange, cluster::Submit{std::move(*specs)});
}

void Api::list_jobs(const Shared& exchange) {
  const net::Request& request = exchange->request();
  const auto before = number_of(request, "before", 0);
  const auto limit = number_of(request, "limit", 100);
  const auto array = number_of(request, "array", 0);
  if (!before || !limit || *limit < 1 || !array || *array < 0)
    return exchange->answer(reply(invalid("before, limit and array are whole numbers")));
  const wire::JobQuery query{.all = is_set(request, "all"),
                             .array = static_cast<std::uint64_t>(*array),
                             .before = static_cast<std::uint64_t>(std::max<std::int64_t>(*before, 0)),
                             .limit = std::min(static_cast<std::size_t>(*limit), page_jobs_max)};
  show(exchange, [query](const auto& state, const auto&) { return wire::jobs_json(state, query); });
}

void Api::handle_jobs(const Shared& exchange) {
  const net::Request& request = exchange->request();
  const std::string id = part_of(request, 1);
  if (id.empty() && request.method == "POST") return submit(exchange);
  if (id.empty()) return list_jobs(exchange);
  const auto job = parse_id<sched::JobTag>(id);
  if (!job)
    return exchange->answer(reply(
        invalid("there is no job '" + valid_utf8(id.substr(0, 64)) + "'").remedy(job.error().remedy()), 404));
  handle_job(exchange, *job, part_of(request, 2));
}

void Api::handle_job(const Shared& exchange, cluster::JobId job, const std::string& verb) {
  const net::Request& request = exchange->request();
  if (verb.empty() && request.method == "GET") {
    return show(exchange, [job](const auto& state, const auto&) -> Result<std::string> {
      const auto found = state.jobs.find(job);
      if (found == state.jobs.end())
        return invalid("there is no job " + job.text()).remedy("`tutti jobs --all` lists them");
      return wire::job_json(state, found->second, true);
    });
  }
  if (verb == "explain" && request.method == "GET") return explain_job(exchange, job);
  if (verb == "cancel" && request.method == "POST") {
    const auto by = request.query.find("by");
    return change(exchange, cluster::Cancel{job, by == request.query.end() ? "" : by->second.substr(0, 64),
                                            is_set(request, "array")});
  }
  if (verb == "logs" && request.method == "GET") {
    const auto rank = number_of(request, "rank", -1);
    const auto tail = number_of(request, "tail", 0);
    if (!rank || !tail || *tail < 0)
      return exchange->answer(reply(invalid("rank and tail are whole numbers")));
    return hub_.add_log_reader(*exchange,
                               {job, static_cast<std::int32_t>(*rank), is_set(request, "follow"), *tail});
  }
  exchange->answer(no_such_thing("such request for a job"));
}

void Api::handle_nodes(const Shared& exchange) {
  const net::Request& request = exchange->request();
  const std::string name = valid_utf8(part_of(request, 1).substr(0, wire::node_name_bytes_max));
  const std::string verb = part_of(request, 2);
  if (name.empty())
    return show(exchange, [](const auto& state, const auto&) { return wire::nodes_json(state); });
  if (verb.empty()) {
    return show(exchange, [name](const auto& state, const auto&) -> Result<std::string> {
      const auto found = state.nodes.find(name);
      if (found == state.nodes.end())
        return invalid("there is no node '" + name + "'").remedy("`tutti nodes` lists them");
      return wire::node_json(state, found->second);
    });
  }
  if (verb == "resume" && request.method == "POST") return change(exchange, cluster::Resume{name}, 404);
  if (verb == "drain" && request.method == "POST") {
    const auto now = wire::decode_drain(request.body);
    if (!now) return exchange->answer(reply(now.error()));
    return change(exchange, cluster::Drain{name, *now}, 404);
  }
  exchange->answer(no_such_thing("such request for a node"));
}

void Api::handle_queues(const Shared& exchange) {
  const net::Request& request = exchange->request();
  const std::string name = valid_utf8(part_of(request, 1).substr(0, cluster::queue_name_max + 1));
  if (name.empty() && request.method == "GET") {
    return show(exchange,
                [](const auto& state, const auto&) { return wire::queues_json(state, now_on_the_wall()); });
  }
  if (name.empty() || !part_of(request, 2).empty())
    return exchange->answer(no_such_thing("such request for a queue"));
  if (request.method == "DELETE") return change(exchange, cluster::RemoveQueue{name});
  if (request.method != "PUT") return exchange->answer(no_such_thing("such request for a queue"));
  auto queue = wire::decode_queue(name, request.body);
  if (!queue) return exchange->answer(reply(queue.error()));
  change(exchange, std::move(*queue));
}

// The question is put together on the core's thread and answered on the explainer's.
void Api::explain_job(const Shared& exchange, cluster::JobId job) {
  core_.ask([this, exchange, job](cluster::State& state, const wire::StoreHealth&) {
    const auto found = state.jobs.find(job);
    if (found == state.jobs.end()) {
      const Error unknown = invalid("there is no job " + job.text()).remedy("`tutti jobs --all` lists them");
      return exchange->answer(reply(unknown, 404));
    }
    const cluster::Job& known = found->second;
    if (known.finished() || known.placed())
      return exchange->answer({.status = 200, .body = wire::explain_json(state, known) + "\n"});
    explainer_.ask(cluster::question_about(state, now_on_the_wall(), known),
                   [exchange, job, state_name = std::string(cluster::name_of(known.state))](auto answer) {
                     if (!answer) return exchange->answer(reply(answer.error()));
                     exchange->answer(
                         {.status = 200, .body = wire::explain_json(*answer, job.text(), state_name) + "\n"});
                   });
  });
}

void Api::explain_submit(const Shared& exchange) {
  auto specs = wire::decode_submit(exchange->request().body);
  if (!specs) return exchange->answer(reply(specs.error()));
  core_.ask([this, exchange, submit = cluster::Submit{std::move(*specs)}](cluster::State& state,
                                                                          const wire::StoreHealth&) {
    auto question = cluster::question_about(state, now_on_the_wall(), submit);
    if (!question) return exchange->answer(reply(question.error()));
    explainer_.ask(std::move(*question), [exchange](auto answer) {
      if (!answer) return exchange->answer(reply(answer.error()));
      exchange->answer({.status = 200, .body = wire::explain_json(*answer, "", "") + "\n"});
    });
  });
}

// What was measured between nodes: the last measurement, and a new one in its place.
void Api::handle_fabric(const Shared& exchange) {
  const net::Request& request = exchange->request();
  if (request.method == "GET")
    return show(exchange, [](const auto& state, const auto&) { return wire::fabric_json(*state.fabric); });
  if (request.method != "PUT") return exchange->answer(no_such_thing("such request for the fabric"));
  auto links = wire::decode_fabric(request.body);
  if (!links) return exchange->answer(reply(links.error()));
  change(exchange, cluster::FabricMeasured{std::move(*links)});
}

// The contents of shipped folders: PUT and GET by hash; `missing` tells which of a list are not here.
void Api::handle_blobs(const Shared& exchange) {
  const net::Request& request = exchange->request();
  const std::string name = part_of(request, 1);
  if (name == "missing" && request.method == "POST") {
    const auto asked = nlohmann::json::parse(request.body, nullptr, false);
    if (!asked.is_array()) return exchange->answer(reply(invalid("expected a list of hashes")));
    auto missing = nlohmann::json::array();
    for (const auto& hash : asked) {
      if (!hash.is_string()) return exchange->answer(reply(invalid("expected a list of hashes")));
      if (!blobs_.has(hash.get<std::string>())) missing.push_back(hash);
    }
    return exchange->answer({.status = 200, .body = missing.dump() + "\n"});
  }
  if (request.method == "PUT") {
    if (auto put = blobs_.put(name, as_bytes(request.body)); !put)
      return exchange->answer(reply(put.error()));
    return exchange->answer({.status = 200, .body = "{}\n"});
  }
  auto content = blobs_.get(name);
  if (!content) return exchange->answer(reply(content.error(), 404));
  exchange->answer({.status = 200, .body = std::move(*content), .type = "application/octet-stream"});
}

}  // namespace tutti::controller
