#include "gate/gateway/backends.hpp"

#include <algorithm>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "base/visible.hpp"
#include "gate/ask/ask.hpp"

namespace tutti::gate {
namespace {

constexpr std::size_t look_bytes_max = std::size_t{4} << 20;
constexpr std::size_t problem_bytes_max = 512;
constexpr std::int64_t load_max = 1'000'000;  // requests that are believed of one

const char* page_of(Protocol protocol) {
  return protocol == Protocol::openai ? "/v1/models" : "/v2/health/ready";
}

// The models that it lists, each as it tells of it.
std::optional<std::map<std::string, std::string>> models_in(const std::string& body) {
  const auto root = json::parse(body);
  const json::Value* const list = root ? root->find("data") : nullptr;
  if (list == nullptr || list->list() == nullptr) return std::nullopt;
  std::map<std::string, std::string> models;
  for (const json::Value& card : *list->list()) {
    const json::Value* const id = card.find("id");
    if (id == nullptr || id->text() == nullptr || models.size() >= models_max) continue;
    if (id->text()->size() > model_bytes_max) continue;  // nobody can ask for it
    models.emplace(*id->text(), json::write(card));
  }
  return models;
}

}  // namespace

Instant steady_instant() {
  return Instant(std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch()));
}

Backends::Backends(net::Loop& loop, const Looking& looking, std::size_t requests_max,
                   std::function<void()> changed, std::function<void(BackendId)> gone)
    : loop_(loop),
      looking_(looking),
      changed_(std::move(changed)),
      gone_(std::move(gone)),
      balance_(requests_max) {}
Backends::~Backends() = default;

Result<BackendId> Backends::add(const BackendSettings& settings) {
  if (backends_.size() >= backends_max)
    return invalid("there can be at most " + std::to_string(backends_max) + " backends");
  auto caller = net::Caller::make(loop_, settings.target);
  if (!caller) return std::move(caller).error();
  const BackendId id(++last_id_);
  Backend& backend = backends_[id];
  backend.name = settings.target.text() + settings.target.prefix;
  backend.key = settings.key;
  backend.service = settings.service;
  backend.version = settings.version;
  backend.caller = std::move(*caller);
  balance_.add(id);
  if (is_begun_) look(id);
  return id;
}

void Backends::remove(BackendId id) {
  const auto found = backends_.find(id);
  if (found == backends_.end() || std::exchange(found->second.is_leaving, true)) return;
  serving_.clear();
  sweep_later();
}

// Whoever is looked at just now, or has the request that ends, is still in use.
void Backends::sweep_later() {
  sweeping_ = loop_.after(0ms, [this] { sweep(); });
}

void Backends::sweep() {
  for (auto at = backends_.begin(); at != backends_.end();) {
    if (!at->second.is_leaving || balance_.requests(at->first) > 0) {
      ++at;
      continue;
    }
    balance_.remove(at->first);
    at = backends_.erase(at);
  }
}

void Backends::begin(Turned turned) {
  turned_ = std::move(turned);
  is_begun_ = true;
  for (const auto& [id, backend] : backends_) look(id);
}

void Backends::set_services(const std::map<std::string, ServiceVersions>& services) {
  std::erase_if(services_, [&](const auto& each) { return !services.contains(each.first); });
  std::erase_if(owners_, [&](const auto& each) { return !services.contains(each.second); });
  for (const auto& [name, versions] : services) services_[name].versions = versions;
  has_services_ = true;
  serving_.clear();
  changed_();
}

std::map<std::pair<std::string, std::int64_t>, ServiceLoad> Backends::loads() const {
  std::map<std::pair<std::string, std::int64_t>, ServiceLoad> loads;
  for (const auto& [id, backend] : backends_) {
    if (backend.service.empty()) continue;
    ServiceLoad& load = loads[{backend.service, backend.version}];
    // Others ask him, too: of what waits there we have our part.
    const auto own = static_cast<std::int64_t>(balance_.requests(id));
    const std::int64_t all = std::max<std::int64_t>(backend.running + backend.waiting, 1);
    const std::int64_t waiting = std::min(own, backend.waiting * own / all);
    load.waiting += static_cast<std::size_t>(waiting);
    load.running += static_cast<std::size_t>(own - waiting);
    if (backend.is_leaving || !backend.is_ready) continue;
    ++load.replicas;
    load.cache_used += (backend.cache_used - load.cache_used) / static_cast<double>(load.replicas);
  }
  return loads;
}

std::pair<std::string, std::int64_t> Backends::service_of(const std::string& model) const {
  const std::string service = owner_of(model);
  const auto found = services_.find(service);
  if (found == services_.end()) return {};
  return {service, found->second.versions.serving};
}

bool Backends::has_replica(const std::string& service) const {
  return std::ranges::any_of(backends_, [&](const auto& each) {
    return each.second.service == service && each.second.is_ready && !each.second.is_leaving;
  });
}

std::map<std::string, std::string> Backends::models() const {
  std::map<std::string, std::string> all;
  for (const auto& [id, backend] : backends_) {
    if (backend.is_ready && !backend.is_leaving) all.insert(backend.models.begin(), backend.models.end());
  }
  // One that sleeps wakes for whoever asks.
  for (const auto& [name, service] : services_) {
    if (service.protocol == Protocol::inference) continue;
    all.try_emplace(name, json::write(json::Object{
                              {"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "tutti"}}));
  }
  return all;
}

// Who names nothing means the only one that there is.
std::string Backends::owner_of(const std::string& model) const {
  if (services_.contains(model)) return model;
  if (model.empty() && services_.size() == 1 && !has_plain(Protocol::openai)) return services_.begin()->first;
  const auto found = owners_.find(model);
  return found == owners_.end() ? "" : found->second;
}

bool Backends::has_plain(Protocol protocol) const {
  return std::ranges::any_of(backends_, [&](const auto& each) {
    return each.second.service.empty() && !each.second.is_leaving && each.second.protocol == protocol;
  });
}

// Whoever speaks the Open Inference Protocol lists nothing: each of them is asked, and says 404.
bool Backends::serves(const Backend& backend, Protocol protocol, const std::string& model,
                      const std::string& service) const {
  if (backend.is_leaving || !backend.is_ready || backend.protocol != protocol || backend.service != service)
    return false;
  if (protocol == Protocol::inference || model.empty()) return true;
  return model == service || backend.models.contains(model);
}

bool Backends::knows(Protocol protocol, const std::string& model) const {
  if (const auto service = services_.find(owner_of(model)); service != services_.end())
    return service->second.protocol.value_or(protocol) == protocol;
  if (protocol == Protocol::inference || model.empty()) return has_plain(protocol);
  return models_known_.contains(model);
}

bool Backends::is_any_ready() const {
  return std::ranges::any_of(backends_, [](const auto& each) { return each.second.is_ready; });
}

const std::vector<BackendId>& Backends::serving(Protocol protocol, const std::string& model,
                                                std::int64_t version) {
  const std::string service = owner_of(model);
  // Programs are the same to us, whatever they are called.
  const std::string known_by = protocol == Protocol::openai ? model : service;
  const auto [found, is_new] = serving_.try_emplace({protocol, known_by, version});
  if (!is_new) return found->second;
  std::vector<BackendId>& ids = found->second;
  for (const auto& [id, backend] : backends_) {
    if (version != 0 && backend.version != version) continue;
    if (serves(backend, protocol, model, service)) ids.push_back(id);
  }
  return ids;
}

std::int64_t Backends::draw(const std::string& model) {
  const auto found = services_.find(owner_of(model));
  if (found == services_.end()) return 0;
  const ServiceVersions& versions = found->second.versions;
  if (versions.next == 0 || versions.canary_share == 0) return 0;
  return found->second.draw.take(versions.canary_share) ? versions.next : versions.serving;
}

bool Backends::may_come(const Wanted& wanted) const {
  const auto found = services_.find(owner_of(wanted.model));
  if (found == services_.end()) return wanted.version == 0;
  const ServiceVersions& versions = found->second.versions;
  if (wanted.version == 0 || wanted.version == versions.serving || wanted.version == versions.next)
    return true;
  return std::ranges::any_of(backends_, [&](const auto& each) {
    const Backend& backend = each.second;
    return backend.service == found->first && backend.version == wanted.version && !backend.is_leaving;
  });
}

std::optional<Backends::Turn> Backends::choose(const Wanted& wanted, const Burden& burden,
                                               const std::set<BackendId>& but) {
  // Names of nobody are not kept.
  if (!knows(wanted.protocol, wanted.model)) return std::nullopt;
  const Instant now = steady_instant();
  const std::vector<BackendId>* ids = &serving(wanted.protocol, wanted.model, wanted.version);
  auto chosen = balance_.choose(*ids, burden, but, now);
  if (!chosen && wanted.version != 0 && !wanted.is_only_version) {
    ids = &serving(wanted.protocol, wanted.model, 0);
    chosen = balance_.choose(*ids, burden, but, now);
  }
  if (chosen) {
    const Backend& backend = backends_.at(*chosen);
    return Turn{*chosen, balance_.begin(*chosen, burden, now), backend.service, backend.version};
  }
  // Whoever waits for one that rests hears of it when he has rested.
  if (const auto rested = balance_.next_rested(*ids))
    rested_ = loop_.after(std::max<Duration>(*rested - now, 1ms), [this] { changed_(); });
  return std::nullopt;
}

void Backends::done(const Turn& turn) {
  const bool was_full = balance_.is_full(turn.backend);
  balance_.end(turn.backend, turn.weight);
  if (was_full) tell_of_room();
  if (is_leaving(turn.backend)) sweep_later();
}

// Whoever has ended something is not through with it yet.
void Backends::tell_of_room() {
  if (room_) return;
  room_ = loop_.after(0ms, [this] {
    room_.reset();
    changed_();
  });
}

std::unique_ptr<net::Call> Backends::call(BackendId id, net::Outgoing outgoing, net::CallListener listener) {
  const Backend& backend = backends_.at(id);
  outgoing.token = backend.key;
  return backend.caller->call(std::move(outgoing), std::move(listener));
}

void Backends::failed(BackendId id, const std::string& problem) {
  const auto found = backends_.find(id);
  if (found == backends_.end()) return;
  ++found->second.failures;
  found->second.problem = problem.substr(0, problem_bytes_max);
  balance_.failed(id, steady_instant());
}

void Backends::worked(BackendId id) {
  const auto found = backends_.find(id);
  if (found == backends_.end()) return;
  found->second.problem.clear();
  balance_.worked(id);
}

bool Backends::is_leaving(BackendId id) const {
  const auto found = backends_.find(id);
  return found == backends_.end() || found->second.is_leaving;
}

BackendView Backends::view_of(BackendId id) const {
  const Backend& backend = backends_.at(id);
  BackendView view{.name = backend.name,
                   .is_ready = backend.is_ready && !balance_.rests(id, steady_instant()),
                   .problem = backend.problem,
                   .models = {},
                   .requests = balance_.requests(id),
                   .outstanding_tokens = balance_.outstanding(id),
                   .failures = backend.failures};
  for (const auto& [model, card] : backend.models) view.models.insert(visible_line(model));
  return view;
}

std::vector<BackendView> Backends::views() const {
  std::vector<BackendView> views;
  for (const auto& [id, backend] : backends_) views.push_back(view_of(id));
  return views;
}

// It says which protocol it speaks by which of the two pages it has.
void Backends::look(BackendId id) {
  Backend& backend = backends_.at(id);
  backend.looked_at = steady_instant();
  look_at(id, backend.protocol);
}

void Backends::ask(BackendId id, const std::string& path, std::function<void(const Seen&)> seen) {
  const auto seen_so_far = std::make_shared<Seen>();
  Backend& backend = backends_.at(id);
  backend.look = backend.caller->call(
      {.method = "GET",
       .path = path,
       .token = backend.key,
       .head_time_max = looking_.time_max,
       .pause_time_max = looking_.time_max,
       .answer_bytes_max = look_bytes_max},
      {.on_head = [seen_so_far](const net::AnswerHead& head) { seen_so_far->status = head.status; },
       .on_piece = [seen_so_far](const std::string& piece) { seen_so_far->body += piece; },
       .over =
           [this, id, seen_so_far, seen = std::move(seen)](const Result<>& over) {
             if (over) return seen(*seen_so_far);
             set_ready(id, false, over.error().message());
             look_later(id);
           }});
}

void Backends::look_at(BackendId id, Protocol protocol) {
  ask(id, page_of(protocol),
      [this, id, protocol](const Seen& page) { seen(id, protocol, page.status, page.body); });
}

void Backends::look_at_load(BackendId id) {
  ask(id, "/health", [this, id](const Seen& page) { seen_load(id, page.status, page.body); });
}

void Backends::seen(BackendId id, Protocol protocol, int status, const std::string& body) {
  Backend& backend = backends_.at(id);
  if (status == 404 && protocol == Protocol::openai) return look_at(id, Protocol::inference);
  if (status != 200) {
    backend.protocol = Protocol::openai;
    set_ready(id, false, "it answers " + std::to_string(status) + " where it is asked for its models");
    return look_later(id);
  }
  if (backend.protocol != protocol) serving_.clear();
  backend.protocol = protocol;
  if (protocol == Protocol::openai) {
    auto models = models_in(body);
    if (!models) {
      set_ready(id, false, "it does not list its models as OpenAI's API has it");
      return look_later(id);
    }
    keep_models(backend, std::move(*models));
  }
  if (!backend.service.empty()) return look_at_load(id);
  set_ready(id, true, "");
  look_later(id);
}

void Backends::keep_models(Backend& backend, std::map<std::string, std::string> models) {
  if (backend.models != models) serving_.clear();
  backend.models = std::move(models);
  const auto service = services_.find(backend.service);
  for (const auto& [model, card] : backend.models) {
    if (models_known_.size() + owners_.size() >= models_known_max) return;
    if (backend.service.empty()) models_known_.insert(model);
    // Two services that have an adapter of one name: it is the first one's.
    if (service != services_.end() && !services_.contains(model)) owners_.try_emplace(model, backend.service);
  }
}

// An engine that is full of work says so, and one that drains that it cannot be asked.
void Backends::seen_load(BackendId id, int status, const std::string& body) {
  Backend& backend = backends_.at(id);
  const auto load = json::parse(body);
  const auto part = [&](const char* name) { return load ? load->find(name) : nullptr; };
  const auto count = [&](const char* name) {
    return part(name) == nullptr ? 0 : std::max<std::int64_t>(part(name)->whole().value_or(0), 0);
  };
  backend.running = std::min(count("running"), load_max);
  backend.waiting = std::min(count("waiting"), load_max);
  const json::Value* const used = part("cache_used");
  backend.cache_used = used == nullptr ? 0 : std::clamp(used->number().value_or(0), 0.0, 1.0);
  if (const auto service = services_.find(backend.service); service != services_.end())
    service->second.protocol = backend.protocol;
  set_ready(id, status == 200,
            status == 200 ? "" : "it answers " + std::to_string(status) + " where it is asked how it is");
  look_later(id);
}

void Backends::set_ready(BackendId id, bool is_ready, const std::string& problem) {
  Backend& backend = backends_.at(id);
  const bool is_new = !std::exchange(backend.is_seen, true) || is_ready != backend.is_ready;
  backend.is_ready = is_ready;
  backend.problem = problem.substr(0, problem_bytes_max);
  if (is_ready)
    backend.silent_since.reset();
  else if (!backend.silent_since)
    backend.silent_since = backend.looked_at;
  if (is_new) {
    serving_.clear();
    if (turned_ && !backend.is_leaving) turned_(view_of(id));
    if (is_ready) changed_();
  }
  // One look that fails may be one that found no room.
  const bool is_silent =
      backend.silent_since && steady_instant() - *backend.silent_since >= looking_.time_max;
  if (is_silent && balance_.requests(id) > 0) gone_(id);
}

void Backends::look_later(BackendId id) {
  Backend& backend = backends_.at(id);
  backend.next_look =
      loop_.after(backend.is_ready ? looking_.every : looking_.again_after, [this, id] { look(id); });
}

}  // namespace tutti::gate
