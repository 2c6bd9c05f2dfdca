#include "controller/api.hpp"

#include <openssl/crypto.h>

#include <charconv>
#include <chrono>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "version/version.hpp"

namespace tutti::controller {
namespace {

constexpr std::string_view prefix = "/api/v1/";
constexpr std::size_t page_jobs_max = 1000;
constexpr int failed_tokens_max = 20;  // per address and second

net::Response reply(const Error& error, int status = 0) {
  if (status == 0) status = error.code() == ErrorCode::invalid ? 400 : 503;
  return {.status = status, .body = wire::error_json(error) + "\n"};
}

net::Response no_such_thing(const std::string& what) {
  return reply(invalid("there is no " + what).remedy("/api/v1/openapi.json describes the API"), 404);
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

Api::Api(net::Loop& loop, Core& core, Hub& hub, Tokens tokens, std::string blob_folder)
    : loop_(loop), core_(core), hub_(hub), tokens_(std::move(tokens)), blobs_(std::move(blob_folder)) {}

void Api::handle(const std::shared_ptr<net::Exchange>& exchange) {
  const net::Request& request = exchange->request();
  if (!request.path.starts_with(prefix))
    return exchange->answer(no_such_thing("page " + request.path.substr(0, 100)));
  const std::string path = request.path.substr(prefix.size());
  if (path == "health") return exchange->answer({.status = 200, .body = "{\"alive\":true}\n"});
  if (path == "openapi.json") return exchange->answer({.status = 200, .body = openapi_json()});
  if (!authorize(exchange)) return;
  if (path == "agent" && request.websocket) {
    const std::string remote = request.remote;
    return exchange->upgrade(
        [this, remote](const std::shared_ptr<net::Socket>& socket) { hub_.add_agent(socket, remote); });
  }
  const std::string_view kind = std::string_view(path).substr(0, path.find('/'));
  const std::string rest = path.size() > kind.size() ? path.substr(kind.size() + 1) : "";
  if (kind == "jobs") return handle_jobs(exchange, rest);
  if (kind == "nodes") return handle_nodes(exchange, rest);
  if (kind == "blobs") return handle_blobs(exchange, rest);
  if (path == "events") return hub_.add_watcher(*exchange);
  if (path == "queues")
    return show(exchange, [](const auto& state, const auto&) { return wire::queues_json(state); });
  if (path == "status") {
    return show(exchange, [](const auto& state, const auto& health) {
      return wire::status_json(state, health, version());
    });
  }
  exchange->answer(no_such_thing("page " + request.path.substr(0, 100)));
}

// Agents come with the join token and reach only what they need; everything else asks for the admin token.
bool Api::authorize(const Shared& exchange) {
  const net::Request& request = exchange->request();
  const bool for_agents = request.path == "/api/v1/agent" ||
                          (request.path.starts_with("/api/v1/blobs/") && request.method == "GET");
  const bool known =
      same_secret(request.bearer, tokens_.admin) || (for_agents && same_secret(request.bearer, tokens_.join));
  if (known) return true;
  if (too_many_failures(request.remote)) {
    exchange->answer(reply(failed("too many wrong tokens from this address").remedy("wait a second"), 429));
    return false;
  }
  const std::string what = request.bearer.empty() ? "the request has no token" : "the token is wrong";
  exchange->answer(reply(invalid(what).remedy("TUTTI_TOKEN_FILE names the file that holds the token"), 401));
  return false;
}

bool Api::too_many_failures(const std::string& remote) {
  const Instant now(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  if (failures_.size() > 10'000) failures_.clear();
  Attempts& attempts = failures_[remote];
  if (now - attempts.since > 1s) attempts = {0, now};
  return ++attempts.failed > failed_tokens_max;
}

// Runs on the core's thread after the commit; the exchange takes answers from any thread.
void Api::change(const Shared& exchange, cluster::Event event) {
  core_.happen(std::move(event), [exchange](Result<std::vector<cluster::JobId>> done) {
    if (!done) return exchange->answer(reply(done.error()));
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

void Api::handle_jobs(const Shared& exchange, const std::string& rest) {
  const net::Request& request = exchange->request();
  if (rest.empty() && request.method == "POST") return submit(exchange);
  if (rest.empty()) {
    const auto before = number_of(request, "before", 0);
    const auto limit = number_of(request, "limit", 100);
    if (!before || !limit || *limit < 1)
      return exchange->answer(reply(invalid("before and limit are whole numbers")));
    const wire::JobQuery query{is_set(request, "all"),
                               static_cast<std::uint64_t>(std::max<std::int64_t>(*before, 0)),
                               std::min(static_cast<std::size_t>(*limit), page_jobs_max)};
    return show(exchange, [query](const auto& state, const auto&) { return wire::jobs_json(state, query); });
  }
  const auto slash = rest.find('/');
  const auto job = parse_id<sched::JobTag>(rest.substr(0, slash));
  if (!job) return exchange->answer(reply(job.error()));
  handle_job(exchange, *job, slash == std::string::npos ? "" : rest.substr(slash + 1));
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
  if (verb == "cancel" && request.method == "POST") {
    const auto by = request.query.find("by");
    return change(exchange, cluster::Cancel{job, by == request.query.end() ? "" : by->second.substr(0, 64)});
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

void Api::handle_nodes(const Shared& exchange, const std::string& rest) {
  const net::Request& request = exchange->request();
  if (rest.empty())
    return show(exchange, [](const auto& state, const auto&) { return wire::nodes_json(state); });
  const auto slash = rest.find('/');
  const std::string name = rest.substr(0, slash);
  const std::string verb = slash == std::string::npos ? "" : rest.substr(slash + 1);
  if (verb.empty()) {
    return show(exchange, [name](const auto& state, const auto&) -> Result<std::string> {
      const auto found = state.nodes.find(name);
      if (found == state.nodes.end())
        return invalid("there is no node '" + name + "'").remedy("`tutti nodes` lists them");
      return wire::node_json(state, found->second);
    });
  }
  if (verb == "resume" && request.method == "POST") return change(exchange, cluster::Resume{name});
  if (verb == "drain" && request.method == "POST") {
    const auto now = wire::decode_drain(request.body);
    if (!now) return exchange->answer(reply(now.error()));
    return change(exchange, cluster::Drain{name, *now});
  }
  exchange->answer(no_such_thing("such request for a node"));
}

// The contents of shipped folders: PUT and GET by hash; `missing` tells which of a list are not here.
void Api::handle_blobs(const Shared& exchange, const std::string& rest) {
  const net::Request& request = exchange->request();
  if (rest == "missing" && request.method == "POST") {
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
    if (auto put = blobs_.put(rest, as_bytes(request.body)); !put)
      return exchange->answer(reply(put.error()));
    return exchange->answer({.status = 200, .body = "{}\n"});
  }
  auto content = blobs_.get(rest);
  if (!content) return exchange->answer(reply(content.error(), 404));
  exchange->answer({.status = 200, .body = std::move(*content), .type = "application/octet-stream"});
}

}  // namespace tutti::controller
