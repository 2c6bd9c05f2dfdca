#include "gate/gateway/backends.hpp"

#include <algorithm>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::gate {
namespace {

constexpr std::size_t look_bytes_max = std::size_t{4} << 20;
constexpr std::size_t problem_bytes_max = 512;

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
    models.emplace(*id->text(), json::write(card));
  }
  return models;
}

}  // namespace

Instant steady_instant() {
  return Instant(std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch()));
}

Backends::Backends(net::Loop& loop, const Looking& looking, std::function<void()> changed,
                   std::function<void(BackendId)> gone)
    : loop_(loop), looking_(looking), changed_(std::move(changed)), gone_(std::move(gone)) {}
Backends::~Backends() = default;

Result<> Backends::add(const BackendSettings& settings) {
  if (backends_.size() >= backends_max)
    return invalid("there can be at most " + std::to_string(backends_max) + " backends");
  auto caller = net::Caller::make(loop_, settings.target);
  if (!caller) return std::move(caller).error();
  const BackendId id(backends_.size() + 1);
  Backend& backend = backends_[id];
  backend.name = settings.target.text() + settings.target.prefix;
  backend.key = settings.key;
  backend.caller = std::move(*caller);
  balance_.add(id);
  return {};
}

void Backends::begin(Turned turned) {
  turned_ = std::move(turned);
  for (const auto& [id, backend] : backends_) look(id);
}

std::map<std::string, std::string> Backends::models() const {
  std::map<std::string, std::string> all;
  for (const auto& [id, backend] : backends_) {
    if (backend.is_ready) all.insert(backend.models.begin(), backend.models.end());
  }
  return all;
}

// Whoever speaks the Open Inference Protocol lists nothing: each of them is asked, and says 404.
bool Backends::serves(const Backend& backend, Protocol protocol, const std::string& model) {
  if (backend.protocol != protocol) return false;
  return protocol == Protocol::inference || model.empty() || backend.models.contains(model);
}

bool Backends::knows(Protocol protocol, const std::string& model) const {
  if (protocol == Protocol::inference || model.empty())
    return std::ranges::any_of(backends_, [&](const auto& each) { return each.second.protocol == protocol; });
  return models_known_.contains(model);
}

bool Backends::is_any_ready() const {
  return std::ranges::any_of(backends_, [](const auto& each) { return each.second.is_ready; });
}

const std::vector<BackendId>& Backends::serving(Protocol protocol, const std::string& model) {
  // Programs are the same to us, whatever they are called.
  const std::string known_by = protocol == Protocol::openai ? model : "";
  const auto [found, is_new] = serving_.try_emplace({protocol, known_by});
  if (!is_new) return found->second;
  std::vector<BackendId>& ids = found->second;
  for (const auto& [id, backend] : backends_) {
    if (backend.is_ready && serves(backend, protocol, model)) ids.push_back(id);
  }
  return ids;
}

std::optional<Backends::Turn> Backends::choose(Protocol protocol, const std::string& model,
                                               const Burden& burden, const std::set<BackendId>& but) {
  // Names of nobody are not kept.
  if (!knows(protocol, model)) return std::nullopt;
  const std::vector<BackendId>& ids = serving(protocol, model);
  const Instant now = steady_instant();
  const auto chosen = balance_.choose(ids, burden, but, now);
  if (chosen) return Turn{*chosen, balance_.begin(*chosen, burden, now)};
  // Whoever waits for one that rests hears of it when he has rested.
  if (const auto rested = balance_.next_rested(ids))
    rested_ = loop_.after(std::max<Duration>(*rested - now, 1ms), [this] { changed_(); });
  return std::nullopt;
}

void Backends::done(const Turn& turn) { balance_.end(turn.backend, turn.weight); }

std::unique_ptr<net::Call> Backends::call(BackendId id, net::Outgoing outgoing, net::CallListener listener) {
  const Backend& backend = backends_.at(id);
  outgoing.token = backend.key;
  return backend.caller->call(std::move(outgoing), std::move(listener));
}

void Backends::failed(BackendId id, const std::string& problem) {
  Backend& backend = backends_.at(id);
  ++backend.failures;
  backend.problem = problem.substr(0, problem_bytes_max);
  balance_.failed(id, steady_instant());
}

void Backends::worked(BackendId id) {
  backends_.at(id).problem.clear();
  balance_.worked(id);
}

std::string Backends::name(BackendId id) const { return backends_.at(id).name; }

BackendView Backends::view_of(BackendId id) const {
  const Backend& backend = backends_.at(id);
  BackendView view{.name = backend.name,
                   .is_ready = backend.is_ready && !balance_.rests(id, steady_instant()),
                   .problem = backend.problem,
                   .models = {},
                   .requests = balance_.requests(id),
                   .outstanding_tokens = balance_.outstanding(id),
                   .failures = backend.failures};
  for (const auto& [model, card] : backend.models) view.models.insert(model);
  return view;
}

std::vector<BackendView> Backends::views() const {
  std::vector<BackendView> views;
  for (const auto& [id, backend] : backends_) views.push_back(view_of(id));
  return views;
}

// It says which protocol it speaks by which of the two pages it has.
void Backends::look(BackendId id) { look_at(id, backends_.at(id).protocol); }

void Backends::look_at(BackendId id, Protocol protocol) {
  struct Seen {
    int status = 0;
    std::string body;
  };
  const auto seen_so_far = std::make_shared<Seen>();
  Backend& backend = backends_.at(id);
  backend.look = backend.caller->call(
      {.method = "GET",
       .path = page_of(protocol),
       .token = backend.key,
       .head_time_max = looking_.time_max,
       .pause_time_max = looking_.time_max,
       .answer_bytes_max = look_bytes_max},
      {.on_head = [seen_so_far](const net::AnswerHead& head) { seen_so_far->status = head.status; },
       .on_piece = [seen_so_far](const std::string& piece) { seen_so_far->body += piece; },
       .over =
           [this, id, protocol, seen_so_far](const Result<>& over) {
             if (!over) {
               set_ready(id, false, over.error().message());
               return look_later(id);
             }
             seen(id, protocol, seen_so_far->status, seen_so_far->body);
           }});
}

void Backends::seen(BackendId id, Protocol protocol, int status, const std::string& body) {
  Backend& backend = backends_.at(id);
  if (status == 404 && protocol == Protocol::openai) {
    backend.look.reset();
    return look_at(id, Protocol::inference);
  }
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
    if (backend.models != *models) serving_.clear();
    backend.models = std::move(*models);
    for (const auto& [model, card] : backend.models) {
      if (models_known_.size() < models_known_max) models_known_.insert(model);
    }
  }
  set_ready(id, true, "");
  look_later(id);
}

void Backends::set_ready(BackendId id, bool is_ready, const std::string& problem) {
  Backend& backend = backends_.at(id);
  const bool is_new = !std::exchange(backend.is_seen, true) || is_ready != backend.is_ready;
  backend.is_ready = is_ready;
  backend.problem = problem.substr(0, problem_bytes_max);
  if (!is_new) return;
  serving_.clear();
  if (turned_) turned_(view_of(id));
  is_ready ? changed_() : gone_(id);
}

void Backends::look_later(BackendId id) {
  Backend& backend = backends_.at(id);
  backend.next_look =
      loop_.after(backend.is_ready ? looking_.every : looking_.again_after, [this, id] { look(id); });
}

}  // namespace tutti::gate
