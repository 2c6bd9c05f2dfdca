#include "serve/server/infer_server.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "base/clock/clock.hpp"
#include "base/json/write.hpp"
#include "base/version/version.hpp"
#include "serve/infer/answer.hpp"
#include "serve/infer/ask.hpp"
#include "serve/program/within_memory.hpp"
#include "serve/server/infer_metrics.hpp"
#include "serve/server/workshop.hpp"

namespace tutti::serve {
namespace {

constexpr const char* ready_text = "{\"ready\":true}\n";

// Which model is meant.
struct Target {
  std::string model;
  std::string version;
};

Target target_of(const Asked& asked) {
  const auto version = asked.arguments.find("version");
  return {asked.arguments.at("name"),
          version == asked.arguments.end() ? std::string(infer::model_version) : version->second};
}

// A request for an answer: one thread after the other has it, and it is answered once.
struct Call {
  explicit Call(std::shared_ptr<net::Exchange> from) : exchange(std::move(from)), begun(SteadyClock::now()) {}

  void answer(net::Response response) {
    if (is_answered.exchange(true)) return;
    status = response.status;
    try {
      exchange->answer(std::move(response));
    } catch (const std::bad_alloc&) {
      status = 0;
      is_answered = false;  // whoever wrote it tries again
      throw;
    }
  }

  const std::shared_ptr<net::Exchange> exchange;
  const SteadyClock::time_point begun;
  std::atomic<bool> is_answered = false;
  std::atomic<int> status = 0;         // 0: its client has left
  std::atomic<bool> is_over = false;   // nobody waits for it any more
  std::atomic<std::uint64_t> run = 0;  // its number in the runner
};

net::Response refusal_of(int status, const Error& error) {
  return {.status = status,
          .body = infer::error_text(error),
          .retry_after_seconds = status == 503 || status == 429 ? retry_after_seconds : 0};
}

// Of what became of a request in the runner.
int status_of(const Error& error) {
  if (error.code() == ErrorCode::invalid) return 400;
  if (error == no_memory()) return 429;
  return error.code() == ErrorCode::unknown ? 503 : 500;
}

net::Response response_of(infer::Written written) {
  if (written.json_bytes == written.bytes.size()) return {.body = std::move(written.bytes)};
  return {.body = std::move(written.bytes),
          .type = "application/octet-stream",
          .headers = {{std::string(infer::json_length_header), std::to_string(written.json_bytes)}}};
}

// What there is once the program is loaded.
struct Serving {
  Serving(std::string name, std::unique_ptr<Program> program, const RunnerSettings& settings)
      : card{std::move(name), program->signature()}, runner(std::move(program), settings) {}

  const infer::Card card;
  Runner runner;
};

}  // namespace

class InferServer::Core final : public Pages {
 public:
  explicit Core(const InferSettings& settings)
      : settings_(settings),
        front_(settings, *this, {std::string(infer::json_length_header)}),
        // Every one of them may be done at once, and be one address's.
        writing_(std::make_unique<Workshop>(Workshop::Bounds{
            .threads = tensor_writing_threads, .waiting_max = 2 * settings.runner.requests_max})),
        reading_(std::make_unique<Workshop>(Workshop::Bounds{.threads = tensor_reading_threads,
                                                             .waiting_max = settings.runner.requests_max})) {}
  ~Core() override {
    // Each hands over to the next.
    reading_.reset();
    answering_.reset();
    writing_.reset();
  }

  Front& front() { return front_; }

  static const std::vector<Page>& table() {
    static const std::vector<Page> rows{
        {.path = "/v2", .summary = "`name`, `version`, `extensions`", .handle = show<Core, &Core::about>},
        {.path = "/v2/health/live",
         .needs_key = false,
         .summary = "200 from the start",
         .handle = show<Core, &Core::live>},
        {.path = "/v2/health/ready",
         .needs_key = false,
         .summary = "200, or 503 with the reason",
         .handle = show<Core, &Core::ready>},
        {.path = "/v2/models/{name}[/versions/{version}]",
         .summary = "inputs and outputs, of version 1, the only one; a type that nobody has told is `ANY`",
         .handle = show<Core, &Core::model>},
        {.path = "/v2/models/{name}[/versions/{version}]/ready",
         .summary = "200 or 503",
         .handle = show<Core, &Core::model_ready>},
        {.method = "POST",
         .path = "/v2/models/{name}[/versions/{version}]/infer",
         .body_bytes_max = infer::body_bytes_max,
         .summary = "`inputs` with `data` flat or nested, or as bytes behind the JSON "
                    "(`Inference-Header-Content-Length`, `binary_data_size`); `outputs` and `binary_data`, "
                    "`binary_data_output`; `id` comes back",
         .handle = compute},
        {.path = "/health",
         .needs_key = false,
         .summary = "200 with how many requests are `running` and `waiting`, or 503 with the reason",
         .handle = show<Core, &Core::health>},
        {.path = "/metrics",
         .summary =
             "for Prometheus: answers by status, batches and their rows, what waits, restarts, seconds "
             "of a request",
         .handle = show<Core, &Core::metrics>},
    };
    return rows;
  }
  std::span<const Page> rows() const override { return table(); }

  void start(const std::string& name, std::unique_ptr<Program> program) {
    auto made = std::make_unique<Serving>(name, std::move(program), settings_.runner);
    const std::scoped_lock lock(answering_mutex_);
    answering_ = std::move(made);
    is_answering_ = true;
  }

  RunnerCounts counts() const {
    const std::scoped_lock lock(answering_mutex_);
    return answering_ ? answering_->runner.counts() : RunnerCounts{};
  }

 private:
  static void compute(Pages& pages, const Asked& asked) {
    static_cast<Core&>(pages).infer(target_of(asked), asked.exchange);
  }

  net::Response refusal(int status, const Error& error) override {
    ++metrics_.responses[status];
    return refusal_of(status, error);
  }

  void count(int status) override { ++metrics_.responses[status]; }

  bool is_idle() const override { return calls_.empty(); }
  void cancel_all() override {
    for (const auto& [id, call] : calls_) {
      call->answer(refusal_of(503, not_ready(true)));
      forget(*call);
    }
  }

  // Why nothing can be computed now.
  std::optional<Error> problem() const {
    if (!is_answering_ || front_.is_draining()) return not_ready(front_.is_draining());
    const ProgramState state = counts().program;
    return state.is_ready ? std::nullopt : std::optional(failed(state.problem));
  }

  std::optional<Error> not_here(const Target& target) const {
    const std::string& name = answering_->card.name;
    if (target.model == name && target.version == infer::model_version) return std::nullopt;
    return invalid("there is no model '" + target.model.substr(0, 256) + "'" +
                   (target.model == name ? " of version '" + target.version.substr(0, 256) + "'" : "") +
                   " here")
        .remedy("the one that is here is '" + name + "', version " + std::string(infer::model_version));
  }

  net::Response metrics(const Asked&) {
    return {.body = metrics_.text(counts(), front_.is_draining()), .type = "text/plain; version=0.0.4"};
  }
  net::Response about(const Asked&) { return {.body = infer::server_text(version())}; }
  net::Response live(const Asked&) { return {.body = "{\"live\":true}\n"}; }
  net::Response health(const Asked&) {
    const RunnerCounts now = counts();
    return if_ready(
        json::write(json::Object{
            {"status", "ok"}, {"running", now.running}, {"waiting", now.waiting}, {"cache_used", 0.0}}) +
        "\n");
  }
  net::Response ready(const Asked&) { return if_ready(ready_text); }

  net::Response if_ready(std::string text) {
    const auto why_not = problem();
    return why_not ? refusal(503, *why_not) : net::Response{.body = std::move(text)};
  }

  // Nothing if it is here.
  std::optional<net::Response> refuse_target(const Target& target) {
    if (!is_answering_) return refusal(503, not_ready(front_.is_draining()));
    const auto wrong = not_here(target);
    return wrong ? std::optional(refusal(404, *wrong)) : std::nullopt;
  }

  net::Response model(const Asked& asked) {
    auto refused = refuse_target(target_of(asked));
    return refused ? std::move(*refused) : net::Response{.body = infer::model_text(answering_->card)};
  }

  net::Response model_ready(const Asked& asked) {
    auto refused = refuse_target(target_of(asked));
    return refused ? std::move(*refused) : if_ready(ready_text);
  }

  void infer(const Target& target, const std::shared_ptr<net::Exchange>& exchange) {
    const std::uint64_t id = ++last_call_;
    auto call = std::make_shared<Call>(exchange);
    calls_[id] = call;
    exchange->when_over([this, id] { over(id); });
    if (!is_answering_ || front_.is_draining())
      return call->answer(refusal_of(503, not_ready(front_.is_draining())));
    if (const auto wrong = not_here(target)) return call->answer(refusal_of(404, *wrong));
    if (!reading_->give({.owner = front_.asker(exchange->request()),
                         .abandoned = {},
                         .task = [this, call] { read(call); },
                         .lost = [call] { call->answer(refusal_of(429, no_memory())); }}))
      call->answer(refusal_of(429, failed("too many requests wait already")));
  }

  // On a reading thread.
  void read(const std::shared_ptr<Call>& call) {
    if (call->is_over) return;
    const auto submitted = within_memory_of_errand([&] { return submit(call); });
    if (!submitted) {
      const bool is_wrong = submitted.error().code() == ErrorCode::invalid;
      return call->answer(refusal_of(is_wrong ? 400 : 429, submitted.error()));
    }
    call->run = submitted->number();
    if (call->is_over) forget(*call);
  }

  Result<RunId> submit(const std::shared_ptr<Call>& call) {
    const net::Request& request = call->exchange->request();
    const auto header = request.headers.find(std::string(infer::json_length_header));
    auto read = infer::read_ask(request.body, header == request.headers.end() ? "" : header->second,
                                answering_->card.signature);
    if (!read) return std::move(read).error();
    auto ask = std::make_shared<infer::Ask>(std::move(*read));
    return answering_->runner.submit(
        std::move(ask->inputs),
        [this, call, ask](Result<std::vector<Tensor>>&& made) { hand_over(call, ask, std::move(made)); },
        front_.asker(request));
  }

  // On a lane, to a writing thread.
  void hand_over(const std::shared_ptr<Call>& call, const std::shared_ptr<infer::Ask>& ask,
                 Result<std::vector<Tensor>> made) {
    const auto handed = within_memory([&]() -> Result<> {
      auto outputs = std::make_shared<Result<std::vector<Tensor>>>(std::move(made));
      const bool taken = writing_->give({.owner = front_.asker(call->exchange->request()),
                                         .abandoned = {},
                                         .task = [this, call, ask, outputs] { write(*call, *ask, *outputs); },
                                         .lost = [call] { call->answer(refusal_of(429, no_memory())); }});
      if (!taken) return failed("too many answers wait already");
      return {};
    });
    if (!handed) call->answer(refusal_of(429, handed.error()));
  }

  // On a writing thread.
  void write(Call& call, const infer::Ask& ask, const Result<std::vector<Tensor>>& outputs) const {
    if (call.is_over) return;
    if (!outputs) return call.answer(refusal_of(status_of(outputs.error()), outputs.error()));
    auto written = within_memory_of_errand([&] {
      return infer::write_answer(answering_->card.name, ask.id, ask.outputs, ask.all_binary, *outputs);
    });
    call.answer(written ? response_of(std::move(*written))
                        : refusal_of(status_of(written.error()), written.error()));
  }

  void forget(Call& call) {
    call.is_over = true;
    if (const std::uint64_t run = call.run; run != 0) answering_->runner.cancel(RunId(run));
  }

  // The answer has gone out, or nobody waits for it any more.
  void over(std::uint64_t id) {
    const auto found = calls_.find(id);
    if (found == calls_.end()) return;
    Call& call = *found->second;
    if (call.status == 0) {
      ++metrics_.cut_off;
      forget(call);
    } else {
      ++metrics_.responses[call.status];
      metrics_.whole_request.add(seconds_since(call.begun));
      if (!call.exchange->is_written()) ++metrics_.cut_off;
    }
    calls_.erase(found);
    front_.stop_if_drained();
  }

  const InferSettings settings_;
  Front front_;
  InferMetrics metrics_;
  std::map<std::uint64_t, std::shared_ptr<Call>> calls_;
  std::uint64_t last_call_ = 0;

  mutable std::mutex answering_mutex_;  // while it is being set
  std::unique_ptr<Serving> answering_;
  std::atomic<bool> is_answering_ = false;
  std::unique_ptr<Workshop> writing_;
  std::unique_ptr<Workshop> reading_;
};

InferServer::InferServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
InferServer::~InferServer() = default;

Result<std::unique_ptr<InferServer>> InferServer::listen(const InferSettings& settings) {
  return within_threads([&]() -> Result<std::unique_ptr<InferServer>> {
    if (auto enough = check_files(); !enough) return std::move(enough).error();
    auto core = std::make_unique<Core>(settings);
    if (auto listening = core->front().listen(); !listening) return std::move(listening).error();
    return std::unique_ptr<InferServer>(new InferServer(std::move(core)));
  });
}

std::span<const Page> InferServer::pages() { return Core::table(); }
std::uint16_t InferServer::port() const { return core_->front().port(); }
void InferServer::start(const std::string& name, std::unique_ptr<Program> program) {
  core_->start(name, std::move(program));
}
void InferServer::drain_when_asked() { core_->front().drain_when_asked(); }
int InferServer::cut_short_by() const { return core_->front().cut_short_by(); }
void InferServer::run() { core_->front().loop().run(); }
void InferServer::drain() {
  core_->front().loop().post([core = core_.get()] { core->front().drain(); });
}
void InferServer::stop() { core_->front().loop().stop(); }
RunnerCounts InferServer::counts() const { return core_->counts(); }

}  // namespace tutti::serve
