// `tutti engine`: a model answers over HTTP. A language model on CPUs does so in this process, without
// libtorch, so that nothing is loaded but the model itself; on a GPU, and where it is a TorchScript program,
// a worker computes.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/clock/clock.hpp"
#include "base/log/log.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/front_flags.hpp"
#include "cli/model_flags.hpp"
#include "cli/replica.hpp"
#include "cli/script_flags.hpp"
#include "cli/terminal.hpp"
#include "cli/worker_program.hpp"
#include "serve/load/archive.hpp"
#include "serve/load/pooling.hpp"
#include "serve/load/script.hpp"
#include "serve/program/within_memory.hpp"
#include "serve/remote/program.hpp"
#include "serve/server/infer_server.hpp"
#include "serve/server/server.hpp"

namespace tutti::cli {
namespace {

constexpr std::int64_t requests_limit = 1'000'000;
// One token behind the first of its vocabulary, which every model has.
constexpr const char* first_request = R"({"prompt":[0],"max_tokens":1})";

// "25.2M parameters"
std::string shown_parameters(std::int64_t count) {
  char text[64];
  if (count >= 1'000'000'000) {
    std::snprintf(text, sizeof text, "%.2fB parameters", static_cast<double>(count) / 1e9);
  } else {
    std::snprintf(text, sizeof text, "%.1fM parameters", static_cast<double>(count) / 1e6);
  }
  return text;
}

// Whoever looks after the engine hears that its worker has ended, and what came of it.
serve::Engine::Reopen announced(serve::Engine::Reopen reopen) {
  return [reopen = std::move(reopen)] {
    print_note("the worker with the model has ended; another one is started");
    auto next = reopen();
    print_note(next ? "the model is there again" : "no model: " + next.error().text());
    return next;
  };
}

// The server answers 503 while its model is loaded, so that whoever waits for it knows that it comes. The
// exit code: of one that was ended before it was drained, as shells have it of that signal.
template <class Server>
Result<int> serve_until_drained(Server& server, const std::function<Result<>()>& load) {
  server.drain_when_asked();
  std::optional<Error> problem;
  std::atomic<bool> is_loading = true;
  std::thread loader([&] {
    auto loaded = serve::within_threads(load);
    if (!loaded) problem = std::move(loaded).error();
    is_loading = false;
    if (problem) server.stop();
  });
  server.run();
  // Asked to end before it has begun: what is being loaded is for nobody any more.
  if (is_loading) {
    log::finish();
    std::_Exit(exit_success);
  }
  loader.join();
  if (problem) return *problem;
  const int signal = server.cut_short_by();
  return signal == 0 ? exit_success : exit_signal_base + signal;
}

class EngineCommand final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word(
        "MODEL", model_,
        "the folder of a run of `tutti train`, a folder of Hugging Face, or a TorchScript archive");
    front_flags_.declare(flags);
    flags.add("name", name_, "that clients call the model by (default: the last part of MODEL)");
    flags.add("pooling", pooling_,
              "of embeddings: mean or last (default: what the folder says, or the last token's)");
    model_flags_.declare(flags);
    script_flags_.declare(flags);
    flags.add(
        "requests", requests_,
        "that are taken before others hear 429, three quarters of them from one address (default: 2000)",
        {.min = 1, .max = requests_limit});
    flags.add("json", json_, "print one JSON object when it answers: model, url, memory");
    flags.add(
        "replica", is_replica_,
        "the cluster has started it for a service: it listens where the cluster says, and tells when it "
        "can be asked");
  }

  bool serves() const override { return true; }

  Result<int> run() override {
    ::signal(SIGPIPE, SIG_IGN);  // whoever reads what it says may go; others have come for its answers
    if (is_replica_) {
      auto found = Replica::find();
      if (!found) return std::move(found).error();
      replica_ = std::move(*found);
      if (auto placed = front_flags_.settle_at(replica_->address(), replica_->key()); !placed)
        return std::move(placed).error();
    }
    auto settled = front_flags_.settle();
    if (!settled) return std::move(settled).error();
    settings_ = std::move(*settled);
    settings_.names_askers = is_replica_;
    if (replica_) settings_.identity = replica_->identity();
    if (!pooling_.empty()) {
      if (auto known = serve::parse_pooling(pooling_); !known)
        return std::move(known).error().within("--pooling");
    }
    auto chosen = model_flags_.choose();
    if (!chosen) return std::move(chosen).error();
    chosen->load.name = name_;
    const bool is_script = serve::looks_like_archive(model_);
    const std::string wrong = !is_script         ? script_flags_.given()
                              : pooling_.empty() ? model_flags_.given()
                                                 : "--pooling";
    if (!wrong.empty())
      return invalid(wrong + (is_script ? " is for language models" : " is for TorchScript models"))
          .within("command line");
    auto done = is_script ? answer_with_script(chosen->load) : answer_with_tokens(*chosen);
    if (!done) return std::move(done).error();
    tell_end(*done);
    return *done;
  }

 private:
  void tell_end(int exit_code) const {
    if (exit_code != exit_success) {
      print_note("ended before all requests were answered");
    } else if (!json_) {
      std::printf("drained\n");
    }
    std::fflush(stdout);
  }

  Result<int> answer_with_tokens(const ModelFlags::Chosen& chosen) const {
    serve::ServerSettings settings{settings_, chosen.batch};
    settings.batch.requests_max = static_cast<std::size_t>(requests_);
    auto server = serve::Server::listen(settings);
    if (!server) return std::move(server).error();
    front_flags_.warn_of_plain_text(settings_);
    auto done = serve::within_threads(
        [&] { return serve_until_drained(**server, [&] { return load_into(**server, chosen.load); }); });
    if (done && (*server)->problem())
      return Error(*(*server)->problem()).within(model_).remedy("start the engine again");
    // What is being loaded anew is for nobody any more, either.
    if (done && (*server)->counts().away) {
      tell_end(*done);
      log::finish();
      std::_Exit(*done);
    }
    return done;
  }

  Result<int> answer_with_script(const serve::LoadOptions& load) const {
    if (auto checked = serve::check_script(model_); !checked) return std::move(checked).error();
    auto signature = serve::read_script_signature(model_);
    if (!signature) return std::move(signature).error();
    const serve::GatherSettings gather = script_flags_.gather();
    const serve::ScriptOptions options{.device = load.device == serve::Device::cuda ? "cuda" : "cpu",
                                       .instances = script_flags_.instances(),
                                       .rows_max = gather.rows_max,
                                       .signature = std::move(*signature)};
    const serve::InferSettings settings{
        settings_, {.gather = gather, .requests_max = static_cast<std::size_t>(requests_)}};
    auto server = serve::InferServer::listen(settings);
    if (!server) return std::move(server).error();
    front_flags_.warn_of_plain_text(settings_);
    return serve::within_threads(
        [&] { return serve_until_drained(**server, [&] { return load_into(**server, options); }); });
  }

  // What it is, or one JSON object of the same.
  void tell(const nlohmann::json& told, const std::string& about) const {
    if (json_) {
      std::printf("%s\n", told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    } else {
      print_text(about);
      std::printf("answers at %s after %.2f s; Ctrl-C drains it\n",
                  told["url"].get_ref<const std::string&>().c_str(), told["load_seconds"].get<double>());
    }
    std::fflush(stdout);
  }

  Result<> load_into(serve::InferServer& server, const serve::ScriptOptions& options) const {
    const auto begin = SteadyClock::now();
    const std::string path = std::filesystem::absolute(model_).lexically_normal().string();
    auto program =
        serve::remote::open_program({worker_program(), "script", path, serve::write_script_options(options)},
                                    options.instances, {}, print_note);
    if (!program) return std::move(program).error();
    const std::string name = name_.empty() ? serve::script_name(path) : name_;
    const std::string device = (*program)->describe();
    std::string inputs;
    for (const serve::TensorSpec& spec : (*program)->signature().inputs)
      inputs += (inputs.empty() ? "" : ", ") + spec.name;
    server.start(name, std::move(*program));
    if (replica_) {
      if (auto begun = replica_->begin(server.port(), "/v2/models/" + url_encode(name) + "/ready", "");
          !begun)
        return begun;
    }
    tell({{"model", name},
          {"url", FrontFlags::url(settings_, server.port(), "/v2")},
          {"memory", device},
          {"load_seconds", seconds_since(begin)}},
         name + ": takes " + inputs + "\n" + device + "\n");
    return {};
  }

  Result<> load_into(serve::Server& server, const serve::LoadOptions& options) const {
    const auto begin = SteadyClock::now();
    auto loaded = serve::load(model_, options);
    if (!loaded) return std::move(loaded).error();
    model_flags_.tell(*loaded);
    if (!pooling_.empty()) loaded->source.pooling = serve::parse_pooling(pooling_);
    if (!loaded->source.pooling)
      print_note("/v1/embeddings is refused: " + loaded->source.pooling.error().text() + "; " +
                 loaded->source.pooling.error().remedy());
    if (loaded->reopen) loaded->reopen = announced(std::move(loaded->reopen));
    const std::string name = loaded->source.name;
    const std::string device = loaded->model->describe();
    const std::string about =
        loaded->source.detail + ", " + shown_parameters(model::parameters(loaded->source.shape));
    const std::string chat =
        loaded->chat ? loaded->chat->describe() : "none, because " + loaded->chat.error().text();
    const auto context = loaded->model->limits().context;
    const std::vector<std::string> adapters = loaded->adapters;
    server.start(std::move(*loaded));
    if (replica_) {
      if (auto begun = replica_->begin(server.port(), "/v1/completions", first_request); !begun) return begun;
    }
    std::string about_adapters;
    for (const std::string& adapter : adapters) about_adapters += "adapter: " + adapter + "\n";
    tell({{"model", name},
          {"adapters", adapters},
          {"url", FrontFlags::url(settings_, server.port(), "/v1")},
          {"context", context},
          {"memory", device},
          {"load_seconds", seconds_since(begin)}},
         name + ": " + about + ", context " + std::to_string(context) + ", chat: " + chat + "\n" + device +
             "\n" + about_adapters);
    return {};
  }

  std::string model_;
  FrontFlags front_flags_{"127.0.0.1:8000"};
  std::string name_;
  std::string pooling_;
  ModelFlags model_flags_;
  ScriptFlags script_flags_;
  std::int64_t requests_ = 2'000;
  serve::FrontSettings settings_;
  bool json_ = false;
  bool is_replica_ = false;
  std::unique_ptr<Replica> replica_;  // if it is one
};

}  // namespace

std::unique_ptr<Command> make_engine() { return std::make_unique<EngineCommand>(); }

}  // namespace tutti::cli
