#include "gate/gateway/gateway.hpp"

#include <map>
#include <set>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/json/write.hpp"
#include "base/portions.hpp"
#include "base/version/version.hpp"
#include "gate/gateway/follow.hpp"
#include "gate/gateway/key_file.hpp"
#include "gate/gateway/passage.hpp"
#include "gate/quota/quota.hpp"
#include "serve/api/ask.hpp"
#include "serve/infer/ask.hpp"
#include "serve/server/key.hpp"

namespace tutti::gate {
namespace {

using serve::Asked;
using serve::Page;

// A part of a path as it is sent.
std::string encoded(std::string_view part) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string text;
  for (const char letter : part) {
    const auto byte = static_cast<unsigned char>(letter);
    if (plain.find(letter) != std::string_view::npos) {
      text += letter;
    } else {
      text += {'%', digits[byte >> 4U], digits[byte & 15U]};
    }
  }
  return text;
}

std::string model_path(const net::Arguments& arguments, const std::string& end) {
  const auto version = arguments.find("version");
  return "/v2/models/" + encoded(arguments.at("name")) +
         (version == arguments.end() ? "" : "/versions/" + encoded(version->second)) + end;
}

}  // namespace

class Gateway::Core final : public serve::Pages {
 public:
  explicit Core(const GatewaySettings& settings)
      : settings_(settings),
        front_(with_keys(settings), *this, {resumable_header, std::string(serve::infer::json_length_header)}),
        backends_(
            front_.loop(), settings.looking, settings.backend_requests_max, [this] { look_again(); },
            [this](BackendId id) { leave(id); }),
        house_{front_.loop(),
               backends_,
               counts_,
               tallies_,
               settings.wait_time_max,
               [this](const std::string& model) { begin_to_wait(model); }} {
    if (settings.controller)
      follow_.emplace(front_.loop(), *settings.controller, backends_, tallies_,
                      [this] { return waiting_for(); });
  }
  ~Core() override { passages_.clear(); }

  serve::Front& front() { return front_; }

  Result<> begin() {
    if (keys_) {
      if (auto read = keys_->look(); !read) return std::move(read).error().within("--keys");
      keys_look_ = front_.loop().every(settings_.look_at_keys_every, [this] { look_at_keys(); });
    }
    for (const BackendSettings& backend : settings_.backends) {
      if (auto added = backends_.add(backend); !added) return std::move(added).error();
    }
    if (follow_) {
      if (auto opened = follow_->open(); !opened) return opened;
    }
    if (auto listening = front_.listen(); !listening) return listening;
    front_.loop().post([this] {
      backends_.begin(turned_);
      if (follow_) follow_->begin(url(), say_);
    });
    return {};
  }
  void when_turned(Backends::Turned turned) { turned_ = std::move(turned); }
  void when_wrong(Follow::Say say) { say_ = std::move(say); }

  static const std::vector<Page>& table() {
    static const std::vector<Page> rows{
        {.path = "[/openai]/v1/models",
         .summary = "the models of all backends that can be asked",
         .handle = serve::show<Core, &Core::models>},
        {.path = "[/openai]/v1/models/{name...}",
         .summary = "one of them by its name",
         .handle = serve::show<Core, &Core::model>},
        {.method = "POST",
         .path = "[/openai]/v1/completions",
         .body_bytes_max = serve::api::body_bytes_max,
         .summary = "goes to an engine that serves `model`",
         .handle = pass<text_page<0>>},
        {.method = "POST",
         .path = "[/openai]/v1/chat/completions",
         .body_bytes_max = serve::api::body_bytes_max,
         .summary = "the same",
         .handle = pass<text_page<1>>},
        {.method = "POST",
         .path = "[/openai]/v1/embeddings",
         .body_bytes_max = serve::api::body_bytes_max,
         .summary = "the same",
         .handle = pass<text_page<2>>},
        {.path = "/v2",
         .summary = "`name`, `version`, `extensions`",
         .handle = serve::show<Core, &Core::about>},
        {.path = "/v2/health/live",
         .needs_key = false,
         .summary = "200 from the start",
         .handle = serve::show<Core, &Core::live>},
        {.path = "/v2/health/ready",
         .needs_key = false,
         .summary = "200 when somebody can be asked or services are known, else 503",
         .handle = serve::show<Core, &Core::health>},
        {.path = "/v2/models/{name}[/versions/{version}]",
         .summary = "what a program's engine says of it",
         .handle = pass<program_page<0>>},
        {.path = "/v2/models/{name}[/versions/{version}]/ready",
         .summary = "the same",
         .handle = pass<program_page<1>>},
        {.method = "POST",
         .path = "/v2/models/{name}[/versions/{version}]/infer",
         .body_bytes_max = serve::infer::body_bytes_max,
         .summary = "goes to an engine of the Open Inference Protocol that serves the model",
         .handle = pass<program_page<2>>},
        {.path = "/health",
         .needs_key = false,
         .summary =
             "200 when somebody can be asked or services are known, 503 while neither is so or it drains",
         .handle = serve::show<Core, &Core::health>},
        {.path = "/metrics",
         .summary =
             "for Prometheus: answers by status, what was asked again or continued elsewhere, each backend",
         .handle = serve::show<Core, &Core::metrics>},
    };
    return rows;
  }
  std::span<const Page> rows() const override { return table(); }

 private:
  static constexpr const char* text_paths[] = {"/v1/completions", "/v1/chat/completions", "/v1/embeddings"};
  static constexpr const char* program_ends[] = {"", "/ready", "/infer"};

  // What a page asks for.
  template <std::size_t at>
  static Result<Errand> text_page(const Asked& asked) {
    auto ask = read_ask(asked.exchange->request().body);
    if (!ask) return std::move(ask).error();
    Errand errand{.path = text_paths[at], .model = ask->model, .ask = std::move(*ask)};
    errand.wants_comments = asked.exchange->request().headers.contains(resumable_header);
    return errand;
  }
  template <std::size_t at>
  static Result<Errand> program_page(const Asked& asked) {
    const net::Request& request = asked.exchange->request();
    Errand errand{.protocol = Protocol::inference,
                  .method = request.method,
                  .path = model_path(asked.arguments, program_ends[at]),
                  .model = asked.arguments.at("name")};
    errand.ask.prompt_tokens = static_cast<std::int64_t>(request.body.size()) / token_bytes + 1;
    const auto length = request.headers.find(std::string(serve::infer::json_length_header));
    if (length != request.headers.end()) errand.headers.insert(*length);
    return errand;
  }
  template <Result<Errand> (*read)(const Asked&)>
  static void pass(Pages& pages, const Asked& asked) {
    static_cast<Core&>(pages).begin_passage(asked, read(asked));
  }

  // ---- who may ask

  serve::FrontSettings with_keys(const GatewaySettings& settings) {
    serve::FrontSettings front = settings;
    if (settings.keys_file.empty()) return front;
    keys_.emplace(settings.keys_file);
    front.takes_key = [this](const std::string& key) { return keys_->find(key) != nullptr; };
    return front;
  }
  void look_at_keys() {
    const auto changed = keys_->look();
    const std::string problem = changed ? "" : changed.error().text();
    if (say_ && !problem.empty() && problem != keys_problem_) say_(problem + "; the keys of before hold");
    keys_problem_ = problem;
    if (changed && *changed) quota_.keep_only(keys_->keys());
  }
  // Null: whoever may ask all there is.
  const KeyRules* key_of(const net::Request& request) const {
    const bool is_master = !settings_.key.empty() && serve::is_same_key(settings_.key, request.bearer);
    return is_master || !keys_ ? nullptr : keys_->find(request.bearer);
  }
  bool may_ask(const KeyRules& key, const std::string& model) const {
    const std::string service = backends_.service_of(model).first;
    return (!model.empty() && key.may_ask(model)) || (!service.empty() && key.may_ask(service)) ||
           key.models.empty();
  }

  void refuse(const Asked& asked, Protocol protocol, int status, const Error& error,
              std::string_view code = {}) {
    count(status);
    asked.exchange->answer(refusal_of(protocol, status, error, code));
  }

  void begin_passage(const Asked& asked, Result<Errand> errand) {
    if (!errand) return refuse(asked, Protocol::openai, 400, errand.error());
    const Protocol protocol = errand->protocol;
    if (front_.is_draining()) return refuse(asked, protocol, 503, serve::not_ready(true));
    const net::Request& request = asked.exchange->request();
    const KeyRules* const key = key_of(request);
    if (key != nullptr && !may_ask(*key, errand->model))
      return refuse(asked, protocol, 403,
                    invalid("this key may not ask '" + errand->model.substr(0, 256) + "'")
                        .within("model")
                        .remedy("/v1/models lists what it may"),
                    "model_not_allowed");
    if (backends_.is_settled() && !backends_.knows(protocol, errand->model)) {
      count(404);
      return asked.exchange->answer(refusal_of_unknown(protocol, errand->model));
    }
    const std::size_t bytes = request.body.size();
    const std::string who = key == nullptr ? request.remote : "key:" + key->name;
    if (!places_.take(who)) return refuse_more(asked, protocol);
    if (!bodies_.take(who, bytes)) {
      places_.give_back(who);
      return refuse_more(asked, protocol);
    }
    const auto refusal = key == nullptr ? std::nullopt : quota_.begin(*key, now_on_the_wall());
    if (refusal) {
      places_.give_back(who);
      bodies_.give_back(who, bytes);
      return refuse_for_now(asked, protocol, *refusal);
    }
    errand->asker = who;
    errand->priority = key == nullptr ? 0 : key->priority;
    const std::uint64_t id = ++last_passage_;
    asked.exchange->when_over([this, id] { closed(id); });
    const auto passage =
        std::make_shared<Passage>(house_, asked.exchange, std::move(*errand),
                                  [this, id, who, bytes, name = key == nullptr ? "" : key->name] {
                                    places_.give_back(who);
                                    bodies_.give_back(who, bytes);
                                    if (!name.empty())
                                      quota_.end(name, passages_.at(id)->tokens(), now_on_the_wall());
                                    forget(id);
                                  });
    passages_[id] = passage;
    passage->begin();
  }
  void refuse_for_now(const Asked& asked, Protocol protocol, const Quota::Refusal& refusal) {
    const bool is_pace = refusal.limit == Quota::Limit::requests;
    count(429);
    auto response = refusal_of(protocol, 429,
                               failed(is_pace ? "this key has asked as often as it may in a minute"
                                              : "this key has used the tokens that it has for a day")
                                   .remedy("ask again when Retry-After has passed"),
                               is_pace ? "rate_limit_exceeded" : "insufficient_quota");
    response.retry_after_seconds = static_cast<int>((refusal.retry_after + 1s - 1ns) / 1s);
    asked.exchange->answer(std::move(response));
  }
  void refuse_more(const Asked& asked, Protocol protocol) {
    refuse(asked, protocol, 429, failed("too many requests are under way").remedy("ask again in a while"),
           "overloaded");
  }

  void closed(std::uint64_t id) {
    const auto found = passages_.find(id);
    if (found == passages_.end()) return;
    const auto passage = found->second;  // it forgets itself
    passage->closed();
  }
  void forget(std::uint64_t id) {
    passages_.erase(id);
    front_.stop_if_drained();
  }

  // Whoever has the higher priority, and of those whoever came first, takes what is there.
  void look_again() {
    std::map<std::pair<std::int64_t, std::uint64_t>, std::shared_ptr<Passage>> in_turn;
    for (const auto& [id, passage] : passages_) {
      if (passage->is_waiting()) in_turn[{-passage->priority(), id}] = passage;
    }
    // Where one finds nobody, those behind him do not, either. Whoever looks may be over at once.
    std::set<std::pair<Protocol, std::string>> in_vain;
    for (const auto& [turn, passage] : in_turn) {
      std::pair<Protocol, std::string> wanted{passage->protocol(), passage->model()};
      if (in_vain.contains(wanted)) continue;
      passage->look_again();
      if (passage->waits_for_anybody()) in_vain.insert(std::move(wanted));
    }
  }

  void leave(BackendId backend) {
    const auto all = passages_;
    for (const auto& [id, passage] : all) passage->leave(backend);
  }

  // ---- for the controller

  std::string url() const {
    const bool is_secure = !settings_.tls_certificate.empty();
    const bool is_v6 = settings_.address.find(':') != std::string::npos;
    return (is_secure ? "https://" : "http://") +
           (is_v6 ? "[" + settings_.address + "]" : settings_.address) + ":" + std::to_string(front_.port());
  }
  std::map<std::string, std::size_t> waiting_for() const {
    std::map<std::string, std::size_t> counts;
    for (const auto& [id, passage] : passages_) {
      if (!passage->is_waiting()) continue;
      const std::string service = backends_.service_of(passage->model()).first;
      if (!service.empty()) ++counts[service];
    }
    return counts;
  }
  void begin_to_wait(const std::string& model) {
    const std::string service = backends_.service_of(model).first;
    if (follow_ && !service.empty() && !backends_.has_replica(service)) follow_->hurry();
  }

  std::size_t waiting() const {
    std::size_t count = 0;
    for (const auto& [id, passage] : passages_) count += passage->is_waiting() ? 1U : 0U;
    return count;
  }

  // ---- pages of its own

  net::Response models(const Asked& asked) {
    std::string list;
    const KeyRules* const key = key_of(asked.exchange->request());
    for (const auto& [name, card] : backends_.models()) {
      if (key == nullptr || may_ask(*key, name)) list += (list.empty() ? "" : ",") + card;
    }
    return {.body = "{\"object\":\"list\",\"data\":[" + list + "]}\n"};
  }
  net::Response model(const Asked& asked) {
    const auto models = backends_.models();
    const auto card = models.find(asked.arguments.at("name"));
    const KeyRules* const key = key_of(asked.exchange->request());
    if (card == models.end() || (key != nullptr && !may_ask(*key, card->first)))
      return refusal(404, invalid("there is no " + asked.exchange->request().path.substr(0, 256)));
    return {.body = card->second + "\n"};
  }
  net::Response about(const Asked&) {
    return {.body = json::write(json::Object{{"name", "tutti gateway"},
                                             {"version", version()},
                                             {"extensions", json::Array{"binary_tensor_data"}}}) +
                    "\n"};
  }
  net::Response live(const Asked&) { return {.body = "{\"live\":true}\n"}; }
  net::Response health(const Asked&) {
    if (front_.is_draining()) return refusal(503, serve::not_ready(true));
    if (!backends_.is_settled()) return refusal(503, failed("no engine can be asked now"));
    return {.body = "{\"status\":\"ok\"}\n"};
  }
  // One key sees what it has used itself, and nothing of others.
  net::Response metrics(const Asked& asked) {
    constexpr const char* type = "text/plain; version=0.0.4";
    const KeyRules* const key = key_of(asked.exchange->request());
    if (key == nullptr)
      return {.body = counts_.text(passages_.size(), waiting(), backends_.views()) +
                      (keys_ ? text_of_usage(quota_.usage()) : ""),
              .type = type};
    const auto own = quota_.usage().find(key->name);
    return {.body = text_of_usage({{key->name, own == quota_.usage().end() ? KeyUsage{} : own->second}}),
            .type = type};
  }

  net::Response refusal(int status, const Error& error) override {
    count(status);
    return refusal_of(Protocol::openai, status, error);
  }
  void count(int status) override { ++counts_.responses[status]; }
  bool is_idle() const override { return passages_.empty(); }
  void cancel_all() override {
    const auto all = passages_;
    for (const auto& [id, passage] : all)
      passage->end(503, failed("this gateway is about to stop").remedy("ask another one"));
  }

  const GatewaySettings settings_;
  std::optional<KeyFile> keys_;
  serve::Front front_;
  std::shared_ptr<net::Loop::Handle> keys_look_;
  std::string keys_problem_;  // as it was said last
  Quota quota_;
  Counts counts_;
  Tallies tallies_;
  Portions places_{settings_.requests_max};
  Portions bodies_{serve::bodies_bytes_max};  // bytes, by address
  Backends backends_;
  House house_;
  std::map<std::uint64_t, std::shared_ptr<Passage>> passages_;
  std::uint64_t last_passage_ = 0;
  Backends::Turned turned_;
  Follow::Say say_;
  std::optional<Follow> follow_;
};

Gateway::Gateway(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Gateway::~Gateway() = default;

Result<std::unique_ptr<Gateway>> Gateway::listen(const GatewaySettings& settings) {
  if (auto enough = serve::check_files(); !enough) return std::move(enough).error();
  auto core = std::make_unique<Core>(settings);
  if (auto begun = core->begin(); !begun) return std::move(begun).error();
  return std::unique_ptr<Gateway>(new Gateway(std::move(core)));
}

std::span<const Page> Gateway::pages() { return Core::table(); }
std::uint16_t Gateway::port() const { return core_->front().port(); }
void Gateway::when_turned(Backends::Turned turned) { core_->when_turned(std::move(turned)); }
void Gateway::when_wrong(Follow::Say say) { core_->when_wrong(std::move(say)); }
void Gateway::drain_when_asked() { core_->front().drain_when_asked(); }
int Gateway::cut_short_by() const { return core_->front().cut_short_by(); }
void Gateway::run() { core_->front().loop().run(); }
void Gateway::drain() {
  core_->front().loop().post([core = core_.get()] { core->front().drain(); });
}
void Gateway::stop() { core_->front().loop().stop(); }

}  // namespace tutti::gate
