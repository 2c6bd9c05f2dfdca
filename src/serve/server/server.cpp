#include "serve/server/server.hpp"

#include <sys/random.h>

#include <atomic>
#include <map>
#include <optional>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "base/prng.hpp"
#include "net/http/server.hpp"
#include "serve/server/key.hpp"
#include "serve/server/mailbox.hpp"
#include "serve/server/metrics.hpp"
#include "serve/server/prepare.hpp"
#include "serve/server/reply.hpp"
#include "serve/server/workshop.hpp"

namespace tutti::serve {
namespace {

// For those whose answers were cancelled to hear it.
constexpr Duration last_words_time_max = 2s;

std::uint64_t random_number() {
  std::uint64_t number = 0;
  TUTTI_CHECK(getrandom(&number, sizeof number, 0) == sizeof number);
  return number;
}

std::string hexadecimal(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t at = 0; at < text.size(); ++at)
    text[at] = "0123456789abcdef"[number >> (60 - 4 * at) & 0xFU];
  return text;
}

Error not_ready(bool draining) {
  return draining ? failed("this engine is about to stop").remedy("ask another one")
                  : failed("the model is being loaded").remedy("ask again in a moment");
}

Workshop::Bounds bounds_of(std::size_t threads) {
  return {.threads = threads,
          .waiting_max = preparations_max,
          .waiting_per_owner_max = preparations_per_address_max};
}

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(now_on_the_wall().time_since_epoch()).count();
}

// What there is once the model is loaded.
struct Answering {
  Answering(Loaded from, const BatchSettings& batch)
      : loaded(std::move(from)),
        token_bytes(loaded.token_bytes()),
        card{loaded.source.name, seconds_now(), loaded.model->limits().context},
        preparation(loaded, loaded.model->limits()),
        engine(std::move(loaded.model), batch, token_bytes) {}

  Loaded loaded;
  std::function<std::string_view(Token)> token_bytes;
  api::ModelCard card;
  Preparation preparation;
  Engine engine;
};

}  // namespace

class Server::Core {
 public:
  explicit Core(const ServerSettings& settings)
      : settings_(settings),
        random_(random_number()),
        mailbox_(std::make_shared<Mailbox>([this] { loop_.post([this] { deliver(); }); })),
        readers_(std::make_unique<Workshop>(bounds_of(reading_threads))),
        formers_(std::make_unique<Workshop>(bounds_of(forming_threads))) {}
  ~Core() {
    for (const auto& [id, reply] : replies_) reply->left.request_stop();
    readers_.reset();  // what they prepare uses the rest
    formers_.reset();
    answering_.reset();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Result<> listen() {
    if (settings_.tls_certificate.empty() != settings_.tls_key.empty())
      return invalid("a certificate and its key go together")
          .remedy("give both --tls-certificate and --tls-key");
    if (settings_.key.empty() && !is_loopback(settings_.address))
      return invalid("everybody who reaches " + settings_.address + " could use this model")
          .remedy("--key-file names a file with a key, or listen at 127.0.0.1");
    auto listening = net::Server::listen(
        loop_,
        {.address = settings_.address,
         .port = settings_.port,
         .certificate_file = settings_.tls_certificate,
         .key_file = settings_.tls_key,
         .connections = settings_.connections_max,
         .connections_per_address = settings_.connections_max,
         // Many may ask through one gateway.
         .bodies_bytes = bodies_bytes_max,
         .bodies_bytes_per_address = bodies_bytes_max},
        [this](std::shared_ptr<net::Exchange> exchange) { handle(std::move(exchange)); },
        [this](const net::Request& head) { return admit(head); });
    if (!listening) return std::move(listening).error();
    http_ = std::move(*listening);
    return {};
  }

  std::uint16_t port() const { return http_->port(); }
  net::Loop& loop() { return loop_; }

  void start(Loaded loaded) {
    auto made = std::make_unique<Answering>(std::move(loaded), settings_.batch);
    const std::scoped_lock lock(answering_mutex_);
    answering_ = std::move(made);
    is_answering_ = true;
  }

  void drain_on(std::initializer_list<int> signals) {
    signals_ = loop_.on_signals(signals, [this](int) { is_draining_ ? loop_.stop() : drain(); });
  }

  void drain() {
    if (is_draining_) return;
    is_draining_ = true;
    stop_if_drained();
    drain_timer_ = loop_.after(settings_.drain_time_max, [this] {
      for (const auto& [id, reply] : replies_) cancel(*reply);
      drain_timer_ = loop_.after(last_words_time_max, [this] { loop_.stop(); });
    });
  }

  EngineCounts counts() const {
    const std::scoped_lock lock(answering_mutex_);
    EngineCounts counts = answering_ ? answering_->engine.counts() : EngineCounts{};
    counts.draining = counts.draining || is_draining_;
    return counts;
  }

 private:
  using Exchange = std::shared_ptr<net::Exchange>;

  // "/v1/…" and "/openai/v1/…" are the same.
  static std::string route_of(const net::Request& request) {
    std::string path;
    for (const std::string& part : request.parts) path += "/" + part;
    return path.starts_with("/openai/v1") ? path.substr(7) : path;
  }

  static std::optional<api::Kind> kind_of(const std::string& route) {
    if (route == "/v1/completions") return api::Kind::completion;
    if (route == "/v1/chat/completions") return api::Kind::chat;
    if (route == "/v1/embeddings") return api::Kind::embedding;
    return std::nullopt;
  }

  static bool is_page(const std::string& route) {
    return route == "/health" || route == "/metrics" || route == "/v1/models" ||
           route.starts_with("/v1/models/");
  }

  net::Response no_such(const net::Request& request) {
    return refusal(404, invalid("there is no " + request.path.substr(0, 256)));
  }

  net::Admission admit(const net::Request& head) {
    const std::string route = route_of(head);
    const bool known = settings_.key.empty() || is_same_key(settings_.key, head.bearer);
    if (!known && route != "/health") {
      return {
          .refusal = refusal(
              401, invalid("the key is missing or wrong").remedy("send it as 'Authorization: Bearer KEY'"))};
    }
    // Whatever it brings along: that it is asked in vain is what its client must hear.
    if (!kind_of(route) && !is_page(route)) return {.refusal = no_such(head), .known = known};
    if (!kind_of(route) && head.method != "GET")
      return {.refusal = refusal(405, invalid("this is asked with GET"), "GET"), .known = known};
    return {
        .refusal = std::nullopt, .known = known, .body_bytes_max = kind_of(route) ? api::body_bytes_max : 0};
  }

  net::Response refusal(int status, const Error& error, const std::string& allow = {}) {
    ++metrics_.responses[status];
    return {.status = status,
            .body = api::error_text(status, error),
            .retry_after_seconds = status == 503 || status == 429 ? retry_after_seconds : 0,
            .allow = allow};
  }

  void handle(Exchange exchange) {
    const net::Request& request = exchange->request();
    const std::string route = route_of(request);
    if (const auto kind = kind_of(route)) {
      if (request.method == "POST") return generate(*kind, std::move(exchange));
      return exchange->answer(refusal(405, invalid("this is asked with POST"), "POST"));
    }
    const auto page = page_of(route);
    if (!page) return exchange->answer(no_such(request));
    if (page->status == 200) ++metrics_.responses[200];
    exchange->answer(*page);
  }

  // What is only looked at.
  std::optional<net::Response> page_of(const std::string& route) {
    if (route == "/health") {
      if (!is_answering_ || is_draining_) return refusal(503, not_ready(is_draining_));
      if (counts().failing) return refusal(503, failed("the model could not compute its last step"));
      return net::Response{.body = "{\"status\":\"ok\"}\n"};
    }
    if (route == "/metrics")
      return net::Response{.body = metrics_.text(counts()), .type = "text/plain; version=0.0.4"};
    if (!is_answering_) return refusal(503, not_ready(is_draining_));
    const api::ModelCard& card = answering_->card;
    if (route == "/v1/models") return net::Response{.body = api::models_text(card)};
    if (route == "/v1/models/" + card.id) return net::Response{.body = api::model_text(card) + "\n"};
    return std::nullopt;
  }

  void generate(api::Kind kind, Exchange exchange) {
    const std::uint64_t id = ++last_reply_;
    auto reply = std::make_shared<Reply>(exchange, metrics_);
    replies_[id] = reply;
    bodies_bytes_ += reply->body_bytes();
    exchange->when_over([this, id] { over(id); });
    if (!is_answering_ || is_draining_)
      return reply->refuse(503, not_ready(is_draining_), {}, retry_after_seconds);
    const Preparation::Facts facts{reply->request().remote, random_.next(), now_on_the_wall(),
                                   reply->left.get_token()};
    const bool has_room = bodies_bytes_ <= bodies_bytes_max;
    const bool taken =
        has_room &&
        readers_->give({facts.key, facts.abandoned, [this, id, kind, exchange = std::move(exchange), facts] {
                          auto prepared = std::make_shared<Result<Prepared>>(
                              answering_->preparation.prepare(kind, exchange->request().body, facts));
                          loop_.post([this, id, prepared] { form(id, prepared); });
                        }});
    if (!taken) refuse_more(*reply);
  }

  static void refuse_more(Reply& reply) {
    reply.refuse(429, failed("too many requests wait already"), "overloaded", retry_after_seconds);
  }

  void form(std::uint64_t id, const std::shared_ptr<Result<Prepared>>& prepared) {
    if (!*prepared || !(*prepared)->wants_form) return submit(id, std::move(*prepared));
    const auto found = replies_.find(id);
    if (found == replies_.end()) return;  // its client has left
    Reply& reply = *found->second;
    const std::stop_token left = reply.left.get_token();
    const bool taken =
        formers_->give({reply.request().remote, left, [this, id, prepared, left] {
                          auto formed = answering_->preparation.add_form(**prepared, left);
                          if (!formed) *prepared = std::move(formed).error();
                          loop_.post([this, id, prepared] { submit(id, std::move(*prepared)); });
                        }});
    if (!taken) refuse_more(reply);
  }

  void submit(std::uint64_t id, Result<Prepared> prepared) {
    const auto found = replies_.find(id);
    if (found == replies_.end()) return;  // its client has left
    const std::shared_ptr<Reply> reply = found->second;
    const auto refuse = [&](const Error& error) {
      const bool is_wrong = error.code() == ErrorCode::invalid;
      reply->refuse(is_wrong ? 400 : 429, error, is_wrong ? "" : "overloaded",
                    is_wrong ? 0 : retry_after_seconds);
    };
    if (!prepared) return refuse(prepared.error());
    const api::Ask& ask = prepared->ask;
    if (!ask.model.empty() && ask.model != answering_->card.id) {
      return reply->refuse(404,
                           invalid("there is no model '" + ask.model.substr(0, 256) + "' here")
                               .within("model")
                               .remedy("the one that is here is '" + answering_->card.id + "'"),
                           "model_not_found");
    }
    std::int64_t prompt_tokens = 0;
    for (std::size_t nth = 0; nth < prepared->requests.size(); ++nth) {
      Request& request = prepared->requests[nth];
      prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
      auto submitted =
          answering_->engine.submit(std::move(request), [mailbox = mailbox_, id, nth](Piece&& piece) {
            mailbox->put({id, nth, std::move(piece)});
          });
      if (!submitted) {
        cancel(*reply);
        return refuse(submitted.error());
      }
      reply->ids.push_back(*submitted);
    }
    const bool is_chat = ask.kind == api::Kind::chat;
    const std::string name = (is_chat ? "chatcmpl-" : "cmpl-") + hexadecimal(random_.next());
    reply->begin(ask, std::move(prepared->begins), prompt_tokens,
                 api::Voice(ask.kind, name, seconds_now(), answering_->card.id, answering_->token_bytes),
                 [this, id] { over(id); });
  }

  void deliver() {
    for (Letter& letter : mailbox_->take()) {
      const auto found = replies_.find(letter.reply);
      if (found == replies_.end()) continue;  // its client has left
      Reply& reply = *found->second;
      reply.take(letter.request, std::move(letter.piece));
      if (reply.is_lost()) cancel(reply);
    }
  }

  void cancel(Reply& reply) {
    for (const RequestId id : reply.ids) answering_->engine.cancel(id);
  }

  // The answer has gone out, or nobody waits for it any more.
  void over(std::uint64_t id) {
    const auto found = replies_.find(id);
    if (found == replies_.end()) return;
    if (!found->second->is_over()) {
      ++metrics_.cut_off;
      cancel(*found->second);
      found->second->left.request_stop();
      readers_->drop_abandoned();
      formers_->drop_abandoned();
    }
    bodies_bytes_ -= found->second->body_bytes();
    replies_.erase(found);
    stop_if_drained();
  }

  void stop_if_drained() {
    if (is_draining_ && replies_.empty()) loop_.stop();
  }

  const ServerSettings settings_;
  net::Loop loop_;
  Prng random_;  // of seeds and names, never of keys
  Metrics metrics_;
  std::map<std::uint64_t, std::shared_ptr<Reply>> replies_;
  std::uint64_t last_reply_ = 0;
  std::size_t bodies_bytes_ = 0;  // of all replies
  std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<net::Server> http_;
  std::shared_ptr<net::Loop::Handle> signals_;
  std::shared_ptr<net::Loop::Handle> drain_timer_;

  mutable std::mutex answering_mutex_;  // while it is being set
  std::unique_ptr<Answering> answering_;
  std::atomic<bool> is_answering_ = false;
  std::atomic<bool> is_draining_ = false;
  std::unique_ptr<Workshop> readers_;
  std::unique_ptr<Workshop> formers_;
};

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

Server::Server(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::listen(const ServerSettings& settings) {
  auto core = std::make_unique<Core>(settings);
  if (auto listening = core->listen(); !listening) return std::move(listening).error();
  return std::unique_ptr<Server>(new Server(std::move(core)));
}

std::uint16_t Server::port() const { return core_->port(); }
void Server::start(Loaded loaded) { core_->start(std::move(loaded)); }
void Server::drain_on(std::initializer_list<int> signals) { core_->drain_on(signals); }
void Server::run() { core_->loop().run(); }
void Server::drain() {
  core_->loop().post([core = core_.get()] { core->drain(); });
}
void Server::stop() { core_->loop().stop(); }
EngineCounts Server::counts() const { return core_->counts(); }

}  // namespace tutti::serve
