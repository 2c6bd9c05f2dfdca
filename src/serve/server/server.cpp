#include "serve/server/server.hpp"

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "base/json/write.hpp"
#include "base/portions.hpp"
#include "base/prng.hpp"
#include "serve/program/within_memory.hpp"
#include "serve/server/lost.hpp"
#include "serve/server/mailbox.hpp"
#include "serve/server/metrics.hpp"
#include "serve/server/prepare.hpp"
#include "serve/server/reply.hpp"
#include "serve/server/unsent.hpp"
#include "serve/server/workshop.hpp"

namespace tutti::serve {
namespace {

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

enum class Absence { none, loading, draining, away, gone };

Error error_of(Absence absence) {
  if (absence == Absence::away)
    return failed("the process of the model has ended, and is started again").remedy("ask again in a while");
  if (absence == Absence::gone)
    return failed("the model is lost, and this engine ends").remedy("ask another one");
  return not_ready(absence == Absence::draining);
}

std::unique_ptr<Workshop> workshop(std::size_t threads, std::size_t waiting_max) {
  return std::make_unique<Workshop>(Workshop::Bounds{.threads = threads, .waiting_max = waiting_max});
}

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(now_on_the_wall().time_since_epoch()).count();
}

std::vector<api::ModelCard> cards_of(const Loaded& loaded) {
  const std::string& own = loaded.source.name;
  std::vector<api::ModelCard> cards{{own, seconds_now(), loaded.model->limits().context}};
  for (const std::string& adapter : loaded.adapters)
    cards.push_back({adapter, cards.front().created_seconds, cards.front().context, own});
  return cards;
}

// What there is once the model is loaded.
struct Answering {
  Answering(Loaded from, const BatchSettings& batch, Engine::Gone gone)
      : loaded(std::move(from)),
        token_bytes(loaded.token_bytes()),
        cards(cards_of(loaded)),
        preparation(loaded, loaded.model->limits()),
        engine(std::move(loaded.model), batch, token_bytes, loaded.reopen, std::move(gone)) {}

  Loaded loaded;
  std::function<std::string_view(Token)> token_bytes;
  std::vector<api::ModelCard> cards;  // of the model, then of its adapters in their order
  Preparation preparation;
  Engine engine;
};

}  // namespace

class Server::Core final : public Pages {
 public:
  explicit Core(const ServerSettings& settings)
      : settings_(settings),
        front_(settings, *this, {std::string(api::resumable_header)}),
        random_(random_number()),
        lost_watch_(front_.loop().when_readable(lost_.descriptor(), [this] { let_lost_go(); })),
        mailbox_(std::make_shared<Mailbox>([this] { front_.loop().post([this] { deliver(); }); })),
        readers_(workshop(reading_threads, settings.batch.requests_max)),
        formers_(workshop(forming_threads, settings.batch.requests_max)),
        // Every one of them may be done at once, and be one address's.
        writers_(workshop(writing_threads, 2 * settings.batch.requests_max)) {}
  ~Core() override {
    for (const auto& [id, reply] : replies_) reply->left.request_stop();
    readers_.reset();  // what they prepare uses the rest
    formers_.reset();
    writers_.reset();
    answering_.reset();
  }

  Front& front() { return front_; }

  static const std::vector<Page>& table() {
    static const std::vector<Page> rows{
        {.path = "[/openai]/v1/models",
         .summary = "the model, then its adapters, each with the model as its `parent`",
         .handle = show<Core, &Core::models>},
        {.path = "[/openai]/v1/models/{name...}",
         .summary = "one of them by its name",
         .handle = show<Core, &Core::model>},
        {.method = "POST",
         .path = "[/openai]/v1/completions",
         .body_bytes_max = api::body_bytes_max,
         .summary =
             "`prompt` (a text, tokens, or a list of such), `echo` (with `logprobs` also those of the "
             "prompt, with `max_tokens` 0 nothing else), `max_tokens` or `max_completion_tokens` (16), "
             "fields of sampling and form",
         .handle = compute<api::Kind::completion>},
        {.method = "POST",
         .path = "[/openai]/v1/chat/completions",
         .body_bytes_max = api::body_bytes_max,
         .summary =
             "`messages`, `tools` (written by the model's template; a call is text of the answer), "
             "`tool_choice` auto or none, `max_tokens` or `max_completion_tokens`, "
             "`chat_template_kwargs`, `add_generation_prompt`, `continue_final_message`, fields of sampling "
             "and form",
         .handle = compute<api::Kind::chat>},
        {.method = "POST",
         .path = "[/openai]/v1/embeddings",
         .body_bytes_max = api::body_bytes_max,
         .summary =
             "`input` (a text, tokens, or a list of such), `encoding_format` float or base64: what the "
             "model knows of a text, as a vector of length 1",
         .handle = compute<api::Kind::embedding>},
        {.path = "/health",
         .needs_key = false,
         .summary = "200 when it answers, with how many answers are `running` and `waiting` and how much of "
                    "its cache "
                    "is used (`cache_used`, 0 to 1); 503 while it loads, drains or has lost its worker, and "
                    "for 10 s "
                    "after a step that could not be computed, unless another one is",
         .handle = show<Core, &Core::health>},
        {.path = "/metrics",
         .summary =
             "for Prometheus: answers by status, tokens, queue, blocks, seconds to the first token and "
             "between tokens",
         .handle = show<Core, &Core::metrics>},
    };
    return rows;
  }
  std::span<const Page> rows() const override { return table(); }

  void start(Loaded loaded) {
    auto made = std::make_unique<Answering>(std::move(loaded), settings_.batch, [this](const Error& why) {
      front_.loop().post([this, why] {
        problem_ = why;
        front_.drain();
      });
    });
    const std::scoped_lock lock(answering_mutex_);
    answering_ = std::move(made);
    is_answering_ = true;
  }

  const std::optional<Error>& problem() const { return problem_; }

  EngineCounts counts() const {
    const std::scoped_lock lock(answering_mutex_);
    EngineCounts counts = answering_ ? answering_->engine.counts() : EngineCounts{};
    counts.draining = counts.draining || front_.is_draining();
    return counts;
  }

 private:
  using Exchange = std::shared_ptr<net::Exchange>;

  // For rows of what is computed.
  template <api::Kind kind>
  static void compute(Pages& pages, const Asked& asked) {
    static_cast<Core&>(pages).generate(kind, asked.exchange);
  }

  net::Response refusal(int status, const Error& error) override {
    ++metrics_.responses[status];
    return {.status = status,
            .body = api::error_text(status, error),
            .retry_after_seconds = status == 503 || status == 429 ? retry_after_seconds : 0};
  }

  void count(int status) override { ++metrics_.responses[status]; }

  bool is_idle() const override { return replies_.empty(); }
  // They are told here, and not by the engine: it may be that its model does not come back from a step.
  void cancel_all() override {
    const auto all = replies_;  // who is told may be over at once
    for (const auto& [id, reply] : all) {
      cancel(*reply);
      reply->left.request_stop();  // what is still read for it, made of its form, or written
      reply->end(error_of(Absence::draining));
    }
    drop_abandoned();
  }

  // Why it does not answer just now.
  Absence absence() const {
    if (is_answering_ && answering_->engine.counts().gone) return Absence::gone;
    if (front_.is_draining()) return Absence::draining;
    if (!is_answering_) return Absence::loading;
    return answering_->engine.counts().away ? Absence::away : Absence::none;
  }

  net::Response health(const Asked&) {
    if (const Absence why = absence(); why != Absence::none) return refusal(503, error_of(why));
    if (counts().failing) return refusal(503, failed("the model could not compute its last step"));
    const BatchCounts batch = counts().batch;
    const double used =
        batch.blocks == 0 ? 0 : static_cast<double>(batch.blocks_used) / static_cast<double>(batch.blocks);
    return {.body = json::write(json::Object{{"status", "ok"},
                                             {"running", batch.running},
                                             {"waiting", batch.waiting},
                                             {"cache_used", used}}) +
                    "\n"};
  }

  net::Response metrics(const Asked&) {
    return {.body = metrics_.text(counts()), .type = "text/plain; version=0.0.4"};
  }

  net::Response not_loaded() {
    return refusal(503, error_of(front_.is_draining() ? Absence::draining : Absence::loading));
  }

  net::Response models(const Asked&) {
    if (!is_answering_) return not_loaded();
    return {.body = api::models_text(answering_->cards)};
  }

  net::Response model(const Asked& asked) {
    if (!is_answering_) return not_loaded();
    const auto& cards = answering_->cards;
    const auto card = std::ranges::find(cards, asked.arguments.at("name"), &api::ModelCard::id);
    if (card == cards.end())
      return refusal(404, invalid("there is no " + asked.exchange->request().path.substr(0, 256)));
    return {.body = api::model_text(*card) + "\n"};
  }

  void generate(api::Kind kind, Exchange exchange) {
    const std::uint64_t id = ++last_reply_;
    exchange->when_over([this, id] { over(id); });
    replies_[id] =
        std::make_shared<Reply>(exchange, metrics_, unsent_,
                                [this, id](const Reply::Write& write) { return write_beside(id, write); });
    with_reply(id, [&](Reply& reply) { read(id, kind, std::move(exchange), reply); });
  }

  // Unless it is gone. Where there is no memory for it that is the end of the one reply, and not of the loop
  // with all others.
  template <class Work>
  void with_reply(std::uint64_t id, const Work& work) {
    const auto found = replies_.find(id);
    if (found == replies_.end()) return;  // its client has left
    const std::shared_ptr<Reply> reply = found->second;
    try {
      work(*reply);
    } catch (const std::bad_alloc&) {
      patiently([&] { reply->let_go(429, no_memory()); });
    }
    if (reply->is_in_vain()) cancel(*reply);
  }

  void read(std::uint64_t id, api::Kind kind, Exchange exchange, Reply& reply) {
    if (const Absence why = absence(); why != Absence::none)
      return reply.refuse(503, error_of(why), {}, retry_after_seconds);
    const Preparation::Facts facts{front_.asker(reply.request()), random_.next(), now_on_the_wall(),
                                   reply.left.get_token()};
    reply.holds_body = bodies_.take(facts.key, reply.body_bytes());
    const bool taken =
        reply.holds_body &&
        readers_->give({.owner = facts.key,
                        .abandoned = facts.abandoned,
                        .task =
                            [this, id, kind, exchange = std::move(exchange), facts] {
                              auto prepared = std::make_shared<Result<Prepared>>(
                                  answering_->preparation.prepare(kind, exchange->request().body, facts));
                              front_.loop().post([this, id, prepared] { form(id, prepared); });
                            },
                        .lost = lost_.teller(id)});
    if (!taken) refuse_more(reply);
  }

  static void refuse_more(Reply& reply) {
    reply.refuse(429, failed("too many requests wait already"), "overloaded", retry_after_seconds);
  }

  void form(std::uint64_t id, const std::shared_ptr<Result<Prepared>>& prepared) {
    if (!*prepared || !(*prepared)->wants_form) return submit(id, prepared);
    with_reply(id, [&](Reply& reply) {
      if (reply.is_over()) return;  // it was refused
      const std::stop_token left = reply.left.get_token();
      const bool taken =
          formers_->give({.owner = front_.asker(reply.request()),
                          .abandoned = left,
                          .task =
                              [this, id, prepared, left] {
                                auto formed = *prepared ? answering_->preparation.add_form(**prepared, left)
                                                        : Result<>();  // refused, and begun again
                                if (!formed) *prepared = std::move(formed).error();
                                front_.loop().post([this, id, prepared] { submit(id, prepared); });
                              },
                          .lost = lost_.teller(id)});
      if (!taken) refuse_more(reply);
    });
  }

  void submit(std::uint64_t id, const std::shared_ptr<Result<Prepared>>& prepared) {
    with_reply(id, [&](Reply& reply) {
      if (!reply.is_over()) submit(id, reply, *prepared);
    });
  }

  // What a request hears that is not let in.
  void refuse(Reply& reply, const Error& error) {
    const bool is_wrong = error.code() == ErrorCode::invalid;
    const Absence why = is_wrong ? Absence::none : absence();
    if (why == Absence::away || why == Absence::gone)
      return reply.refuse(503, error_of(why), {}, retry_after_seconds);
    reply.refuse(is_wrong ? 400 : 429, error, is_wrong ? "" : "overloaded",
                 is_wrong ? 0 : retry_after_seconds);
  }

  void submit(std::uint64_t id, Reply& reply, Result<Prepared>& prepared) {
    if (!prepared) return refuse(reply, prepared.error());
    const api::Ask ask = std::move(prepared->ask);
    // The model itself is adapter 0, and who names nothing means it.
    const auto& cards = answering_->cards;
    const auto card =
        ask.model.empty() ? cards.begin() : std::ranges::find(cards, ask.model, &api::ModelCard::id);
    if (card == cards.end()) {
      return reply.refuse(404,
                          invalid("there is no model '" + ask.model.substr(0, 256) + "' here")
                              .within("model")
                              .remedy(cards.size() == 1 ? "the one that is here is '" + cards.front().id + "'"
                                                        : "/v1/models lists those that are"),
                          "model_not_found");
    }
    if (prepared->beyond_context)
      return reply.refuse(400, *prepared->beyond_context, api::context_length_exceeded);
    std::int64_t prompt_tokens = 0;
    std::vector<std::string> begins;
    for (Prepared::Prompt& prompt : prepared->prompts) {
      begins.push_back(std::move(prompt.begin));
      prompt_tokens += static_cast<std::int64_t>(prompt.tokens.size());
    }
    prepared->request.adapter = static_cast<std::int32_t>(card - cards.begin());
    const std::int64_t created_seconds = prepared->created_seconds;
    reply.entering.emplace(std::move(*prepared));
    if (auto refused = begin_to_enter(id, ask.kind, *reply.entering); !refused) {
      cancel(reply);
      return refuse(reply, refused.error());
    }
    const bool is_chat = ask.kind == api::Kind::chat;
    const std::string own = (is_chat ? "chatcmpl-" : "cmpl-") + hexadecimal(random_.next());
    reply.begin(ask, std::move(begins), prompt_tokens,
                api::Voice(ask.kind, ask.resume ? ask.resume->id : own, created_seconds, card->id,
                           answering_->token_bytes),
                [this, id] { over(id); });
  }

  Entering::Submit into_engine(std::uint64_t id) {
    return [this, id](Request request, std::size_t nth) {
      return answering_->engine.submit(std::move(request), [mailbox = mailbox_, id, nth](Piece&& piece) {
        mailbox->put(id, nth, std::move(piece));
      });
    };
  }

  // Of embeddings it is enough that one is let in: nothing of the answer is said before the last is there.
  Result<> begin_to_enter(std::uint64_t id, api::Kind kind, Entering& entering) {
    if (kind != api::Kind::embedding) return entering.enter_all(into_engine(id));
    const auto step = entering.step(into_engine(id), SteadyClock::now());
    return step == Entering::Step::goes_on ? Result<>() : entering.why();
  }

  // One of its prompts is done, or it has waited for a place.
  void go_on(std::uint64_t id, Reply& reply) {
    if (reply.is_over() || !reply.entering) return;
    switch (reply.entering->step(into_engine(id), SteadyClock::now())) {
      case Entering::Step::goes_on:
        return;
      case Entering::Step::waits:
        reply.entering->again = front_.loop().after(
            entering_pause, [this, id] { with_reply(id, [&](Reply& waits) { go_on(id, waits); }); });
        return;
      case Entering::Step::is_over:
        return refuse(reply, reply.entering->why());
    }
  }

  void deliver() {
    for (Letter& letter : mailbox_->take()) {
      with_reply(letter.reply, [&](Reply& reply) {
        const bool is_done = reply.is_in_turns() && letter.piece.finish;
        reply.take(letter.request, std::move(letter.piece));
        if (!is_done || !reply.entering) return;
        reply.entering->done(letter.request);
        go_on(letter.reply, reply);
      });
    }
  }

  bool write_beside(std::uint64_t id, const Reply::Write& write) {
    const Reply& reply = *replies_.at(id);
    return writers_->give({.owner = front_.asker(reply.request()),
                           .abandoned = reply.left.get_token(),
                           .task =
                               [this, id, write] {
                                 auto text = std::make_shared<Result<std::string>>(write());
                                 front_.loop().post([this, id, text] {
                                   with_reply(id, [&](Reply& told) { told.tell(std::move(*text)); });
                                 });
                               },
                           .lost = lost_.teller(id)});
  }

  // What was to be done for them beside the loop could not be.
  void let_lost_go() {
    for (const std::uint64_t id : lost_.take())
      with_reply(id, [](Reply& reply) { reply.let_go(429, no_memory()); });
  }

  void cancel(Reply& reply) {
    if (!reply.entering) return;
    for (const auto& [nth, request] : reply.entering->inside()) answering_->engine.cancel(request);
    reply.entering.reset();
  }

  void drop_abandoned() {
    readers_->drop_abandoned();
    formers_->drop_abandoned();
    writers_->drop_abandoned();
  }

  // The answer has gone out, or nobody waits for it any more.
  void over(std::uint64_t id) {
    const auto found = replies_.find(id);
    if (found == replies_.end()) return;
    Reply& reply = *found->second;
    if (!reply.is_over() || reply.is_in_vain()) cancel(reply);
    reply.left.request_stop();
    if (reply.is_cut_off()) {
      ++metrics_.cut_off;
      drop_abandoned();
    }
    if (reply.holds_body) bodies_.give_back(front_.asker(reply.request()), reply.body_bytes());
    replies_.erase(found);
    front_.stop_if_drained();
  }

  const ServerSettings settings_;
  Front front_;
  std::optional<Error> problem_;  // that has ended it
  Prng random_;                   // of seeds and names, never of keys
  Metrics metrics_;
  Unsent unsent_;
  std::map<std::uint64_t, std::shared_ptr<Reply>> replies_;
  std::uint64_t last_reply_ = 0;
  Portions bodies_{bodies_bytes_max};  // bytes of all replies, by address
  Lost lost_;
  std::shared_ptr<net::Loop::Handle> lost_watch_;
  std::shared_ptr<Mailbox> mailbox_;

  mutable std::mutex answering_mutex_;  // while it is being set
  std::unique_ptr<Answering> answering_;
  std::atomic<bool> is_answering_ = false;
  std::unique_ptr<Workshop> readers_;
  std::unique_ptr<Workshop> formers_;
  std::unique_ptr<Workshop> writers_;
};

Server::Server(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::listen(const ServerSettings& settings) {
  return within_threads([&]() -> Result<std::unique_ptr<Server>> {
    if (auto enough = check_files(); !enough) return std::move(enough).error();
    auto core = std::make_unique<Core>(settings);
    if (auto listening = core->front().listen(); !listening) return std::move(listening).error();
    return std::unique_ptr<Server>(new Server(std::move(core)));
  });
}

std::span<const Page> Server::pages() { return Core::table(); }
std::uint16_t Server::port() const { return core_->front().port(); }
void Server::start(Loaded loaded) { core_->start(std::move(loaded)); }
void Server::drain_when_asked() { core_->front().drain_when_asked(); }
int Server::cut_short_by() const { return core_->front().cut_short_by(); }
void Server::run() { core_->front().loop().run(); }
void Server::drain() {
  core_->front().loop().post([core = core_.get()] { core->front().drain(); });
}
void Server::stop() { core_->front().loop().stop(); }
EngineCounts Server::counts() const { return core_->counts(); }
std::optional<Error> Server::problem() const { return core_->problem(); }

}  // namespace tutti::serve
