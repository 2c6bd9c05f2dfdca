#include "gate/gateway/follow.hpp"

#include <sys/random.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "base/json/write.hpp"
#include "net/pki/pki.hpp"
#include "serve/server/front.hpp"

namespace tutti::gate {
namespace {

constexpr const char* routes_path = "/api/v1/services/routes";
constexpr const char* told_path = "/api/v1/services/told";
constexpr std::size_t told_max = 20'000;  // versions
constexpr std::string_view plain_scheme = "http://";
constexpr std::string_view secure_scheme = "https://";

// Of its own, from start to end.
std::string random_id() {
  unsigned char bytes[8];
  TUTTI_CHECK(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
  std::string id;
  for (const unsigned char byte : bytes)
    id += {"0123456789abcdef"[byte >> 4U], "0123456789abcdef"[byte & 15U]};
  return id;
}

// A revision is digits; what else may come is no part of a query.
bool can_be_asked_for(const std::string& revision) {
  return !revision.empty() && std::ranges::all_of(revision, [](char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
           (letter >= 'A' && letter <= 'Z') || letter == '-' || letter == '.';
  });
}

// http://HOST:PORT. Whoever has a key, and is reached over a network, shows that he has it by TLS.
Result<net::Target> target_of(const std::string& url, const std::string& key) {
  const bool is_secure = url.starts_with(secure_scheme);
  if (!is_secure && !url.starts_with(plain_scheme)) return invalid("'" + url + "' is no URL");
  std::string rest = url.substr(is_secure ? secure_scheme.size() : plain_scheme.size());
  while (rest.ends_with('/')) rest.pop_back();
  auto target = net::parse_target(rest);
  if (!target) return target;
  target->who = "replica";
  const bool is_here = target->host == "localhost" || serve::is_loopback(target->host);
  if (key.empty() || (!is_secure && is_here)) return target;
  auto authority = pki::authority_of_secret(key, now_on_the_wall());
  if (!authority) return std::move(authority).error();
  target->authority = std::move(authority->certificate);
  return target;
}

}  // namespace

Follow::Follow(net::Loop& loop, const ControllerSettings& settings, Backends& backends, Tallies& tallies,
               Waiting waiting)
    : loop_(loop),
      settings_(settings),
      backends_(backends),
      tallies_(tallies),
      waiting_(std::move(waiting)),
      id_(random_id()) {}

Result<> Follow::open() {
  auto caller = net::Caller::make(loop_, settings_.target);
  if (!caller) return std::move(caller).error();
  caller_ = std::move(*caller);
  return {};
}

void Follow::begin(const std::string& url, Say say) {
  url_ = url;
  say_ = std::move(say);
  ask();
  tell();
}

void Follow::hurry() {
  is_hurried_ = true;
  hurry(telling_, &Follow::tell);
  hurry(asking_, &Follow::ask);
}

// However many come, the controller is asked so often, and not more.
void Follow::hurry(Asking& asking, void (Follow::*again)()) {
  if (asking.call) return;
  const Duration pause = asking.begun_at + settings_.hurried_every - steady_instant();
  if (pause <= Duration::zero()) return (this->*again)();
  asking.next = loop_.after(pause, [this, again] { (this->*again)(); });
}

void Follow::send(Asking& asking, net::Outgoing outgoing, std::function<void(const Result<>&)> over) {
  outgoing.token = settings_.token;
  outgoing.head_time_max = outgoing.pause_time_max = settings_.time_max;
  asking.next.reset();
  asking.begun_at = steady_instant();
  asking.status = 0;
  asking.body.clear();
  asking.call =
      caller_->call(std::move(outgoing),
                    {.on_head = [&asking](const net::AnswerHead& head) { asking.status = head.status; },
                     .on_piece = [&asking](const std::string& piece) { asking.body += piece; },
                     .over =
                         [&asking, over = std::move(over)](const Result<>& end) {
                           const auto done = std::move(asking.call);
                           if (end && (asking.status < 200 || asking.status > 299))
                             return over(failed("it answers " + std::to_string(asking.status)));
                           over(end);
                         }});
}

// ---- what it says

void Follow::ask() {
  const std::string known = can_be_asked_for(revision_) ? "?known=" + revision_ : "";
  send(asking_, {.method = "GET", .path = routes_path + known, .answer_bytes_max = routes_bytes_max},
       [this](const Result<>& over) { asked(over); });
}

void Follow::asked(const Result<>& over) {
  if (!over) {
    note(over.error().message());
  } else if (const auto routes = read_routes(asking_.body, revision_)) {
    note("");
    take(*routes);
  } else {
    note(routes.error().message());
  }
  const auto waiting = waiting_();
  const bool is_missed =
      std::ranges::any_of(waiting, [this](const auto& each) { return !backends_.has_replica(each.first); });
  asking_.next = loop_.after(is_missed ? settings_.hurried_every : settings_.ask_every, [this] { ask(); });
}

// Said once, and that it is over.
void Follow::note(const std::string& problem) {
  if (problem == problem_) return;
  const std::string who = "the controller " + settings_.target.text();
  if (say_ && problem.empty()) say_(who + " answers again");
  if (say_ && !problem.empty())
    say_(who + " : " + problem + "; what is known of services holds until it answers");
  problem_ = problem;
}

void Follow::take(const RouteList& routes) {
  revision_ = routes.revision;
  if (!routes.services) return;
  // Replicas first: a service that is new is not one without them.
  take_replicas(*routes.services);
  std::map<std::string, ServiceVersions> services;
  for (const RouteService& service : *routes.services)
    services[service.name] = {service.version, service.next_version, service.canary_share};
  std::set<std::string> gone;
  for (const auto& [key, tally] : tallies_.all()) {
    if (!services.contains(key.first)) gone.insert(key.first);
  }
  for (const std::string& service : gone) tallies_.forget(service);
  backends_.set_services(services);
}

void Follow::take_replicas(const std::vector<RouteService>& services) {
  decltype(replicas_) kept;
  for (const RouteService& service : services) {
    for (const RouteReplica& replica : service.replicas) {
      const std::tuple key(service.name, service.key, replica);
      const auto known = replicas_.find(key);
      if (known != replicas_.end()) {
        kept.insert(*known);
        replicas_.erase(known);
      } else if (const auto added = add(service, replica)) {
        kept.emplace(key, *added);
      }
    }
  }
  for (const auto& [key, backend] : replicas_) backends_.remove(backend);
  replicas_ = std::move(kept);
}

std::optional<BackendId> Follow::add(const RouteService& service, const RouteReplica& replica) {
  auto target = target_of(replica.url, service.key);
  if (target) {
    auto added = backends_.add({.target = std::move(*target),
                                .key = service.key,
                                .service = service.name,
                                .version = replica.version});
    if (added) return *added;
    if (say_) say_("replica " + replica.name + " of " + service.name + " : " + added.error().text());
  } else if (say_) {
    say_("replica " + replica.name + " of " + service.name + " : " + target.error().text());
  }
  return std::nullopt;
}

// ---- what it is told

std::vector<Told> Follow::words() const {
  std::map<Tallies::Key, Told> words;
  const auto word_of = [&](const Tallies::Key& key) -> Told& {
    Told& told = words[key];
    told.service = key.first;
    told.version = key.second;
    return told;
  };
  for (const auto& [key, tally] : tallies_.all()) word_of(key).tally = tally;
  for (const auto& [key, load] : backends_.loads()) {
    Told& told = word_of(key);
    told.running = load.running;
    told.waiting = load.waiting;
    told.cache_used = load.cache_used;
  }
  for (const auto& [service, count] : waiting_())
    word_of({service, backends_.service_of(service).second}).waiting += count;
  std::vector<Told> all;
  for (auto& [key, told] : words) {
    if (all.size() < told_max) all.push_back(std::move(told));
  }
  return all;
}

void Follow::tell() {
  is_hurried_ = false;
  const std::vector<Told> all = words();
  send(telling_, {.path = told_path, .body = net::make_text(write_told(id_, url_, all))},
       [this](const Result<>& /*over*/) { told(); });
}

// Whether it was heard or not: the next word says all of it, and more.
void Follow::told() {
  telling_.next =
      loop_.after(is_hurried_ ? settings_.hurried_every : settings_.tell_every, [this] { tell(); });
}

}  // namespace tutti::gate
