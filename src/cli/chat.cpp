// `tutti chat`: a conversation at the terminal, with any server that speaks OpenAI's API or with a model of
// one's own, for which an engine is started on this machine and ended with the conversation.
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/clock/clock.hpp"
#include "cli/chat_line.hpp"
#include "cli/chat_words.hpp"
#include "cli/commands.hpp"
#include "cli/model_flags.hpp"
#include "cli/terminal.hpp"
#include "cli/url.hpp"
#include "net/http/client.hpp"
#include "serve/server/key.hpp"
#include "serve/server/server.hpp"

namespace tutti::cli {
namespace {

constexpr const char* help_text =
    "  /system TEXT   what the model is to be, from here on; without TEXT nothing\n"
    "  /clear         forget what was said\n"
    "  /help          this\n"
    "  Ctrl-C         stops an answer\n"
    "  Ctrl-D         leaves\n";

constexpr const char* key_remedy = "--key-file names a file with the key of that server";

std::atomic<bool> answer_stopped{false};
void stop_answer(int) { answer_stopped = true; }

// What is being written goes on after a signal: a terminal that got half of it would be a failure.
void stop_answers_on_interrupts() {
  struct sigaction action {};
  action.sa_handler = stop_answer;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

std::string random_key() {
  unsigned char bytes[24];
  TUTTI_CHECK(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
  std::string key;
  for (const unsigned char byte : bytes) {
    key += "0123456789abcdef"[byte >> 4U];
    key += "0123456789abcdef"[byte & 0xFU];
  }
  return key;
}

// A model of one's own, as a server on this machine that nobody else has the key of.
class OwnEngine {
 public:
  OwnEngine() = default;
  OwnEngine(const OwnEngine&) = delete;
  OwnEngine& operator=(const OwnEngine&) = delete;
  ~OwnEngine() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }

  Result<> start(const std::string& path, const ModelFlags& flags) {
    const auto chosen = flags.choose_one();
    if (!chosen) return chosen.error();
    auto loaded = serve::load(path, chosen->load);
    if (!loaded) return std::move(loaded).error();
    flags.tell(*loaded);
    key_ = random_key();
    serve::ServerSettings settings;
    settings.key = key_;
    settings.batch = chosen->batch;
    auto server = serve::Server::listen(settings);
    if (!server) return std::move(server).error();
    server_ = std::move(*server);
    print_note(loaded->source.detail + "; " + loaded->model->describe());
    adapters_ = loaded->adapters;
    server_->start(std::move(*loaded));
    thread_ = std::thread([this] { server_->run(); });
    return {};
  }
  net::Target target() const { return {.host = "127.0.0.1", .port = server_->port(), .who = "engine"}; }
  const std::string& key() const { return key_; }
  // The one that was asked for; of a server elsewhere none is known.
  const std::vector<std::string>& adapters() const { return adapters_; }

 private:
  std::string key_;
  std::vector<std::string> adapters_;
  std::unique_ptr<serve::Server> server_;
  std::thread thread_;
};

class Chat final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word(
        "WHERE", where_,
        "http://HOST:PORT[/PATH] of a server that speaks OpenAI's API, or a model as `tutti engine` takes "
        "it (default: http://127.0.0.1:8000)",
        false);
    flags.add("system", system_, "what the model is to be");
    flags.add("model", model_, "of that server, by its name (default: the first that it lists)");
    flags.add("key-file", key_file_, "the key of that server");
    flags.add("ca-file", ca_file_, "of a server behind https: its certificate authority (PEM)");
    flags.add("tokens", tokens_, "of an answer at most (default: what the model's context leaves)",
              {.min = 1, .max = 1 << 24});
    flags.add("temperature", temperature_, "how freely: 0 always takes the likeliest (default: 0.7)");
    flags.add("patience", patience_,
              "give an answer up when nothing more of it comes for so long, 0s never (default: 10m)");
    model_flags_.declare(flags);
  }

  Result<int> run() override {
    if (where_.empty()) where_ = "http://127.0.0.1:8000";
    if (auto found = find_server(); !found) return std::move(found).error();
    if (model_.empty()) {
      auto model = first_model();
      if (!model) return std::move(model).error();
      model_ = std::move(*model);
    }
    if (!own_.adapters().empty()) model_ = own_.adapters().front();
    is_terminal_ = isatty(STDIN_FILENO) == 1;
    if (is_terminal_) print_text("talking to " + model_ + "; /help helps, Ctrl-D leaves\n");
    stop_answers_on_interrupts();
    LineReader lines(STDIN_FILENO);
    for (;;) {
      if (is_terminal_) std::fputs("> ", stdout);
      std::fflush(stdout);
      answer_stopped = false;
      const LineReader::Line line = lines.next();
      if (line.kind == LineReader::Kind::interrupted) {
        std::fputs("\n", stdout);
        continue;
      }
      if (line.kind == LineReader::Kind::end) break;
      const auto said = line.kind == LineReader::Kind::too_long
                            ? Result<>(failed("that line is too long, and was not sent"))
                            : take(line.text);
      if (auto written = flush_text(); !written) return std::move(written).error();
      if (!said) print_note(said.error().text());
      if (!said && !is_terminal_) return exit_failed;
    }
    if (is_terminal_) std::fputs("\n", stdout);
    return exit_success;
  }

 private:
  Result<> find_server() {
    if (!is_url(where_)) {
      if (!model_.empty())
        return invalid("--model chooses one of a server, and " + where_ + " is none")
            .within("command line")
            .remedy("http://HOST:PORT names a server; --adapter chooses one of a model's own");
      if (access(where_.c_str(), F_OK) != 0 && net::parse_target(where_))
        return invalid("there is no such folder")
            .within(where_)
            .remedy("of a server there, http://" + where_);
      if (auto started = own_.start(where_, model_flags_); !started) return started;
      client_.emplace(own_.target(), own_.key());
      return {};
    }
    auto target = parse_url(where_, ca_file_);
    if (!target) return std::move(target).error();
    std::string key;
    if (!key_file_.empty()) {
      auto read = serve::read_key(key_file_);
      if (!read) return std::move(read).error();
      key = std::move(*read);
    }
    client_.emplace(std::move(*target), std::move(key));
    return {};
  }

  Result<std::string> first_model() {
    auto response =
        client_->request("GET", "/v1/models", "", net::answer_time_max, net::small_answer_bytes_max);
    if (!response) {
      const std::string_view remedy =
          client_->is_untrusted()
              ? std::string_view(response.error().remedy())
              : "`tutti engine MODEL` starts a server; `tutti chat MODEL` does without one";
      return failed(response.error().text()).remedy(remedy);
    }
    if (response->status == 401) return failed(problem_in(response->body)).within(where_).remedy(key_remedy);
    if (response->status != 200) return failed(problem_in(response->body)).within(where_);
    auto model = model_in(response->body);
    if (!model) return failed("it names no model").within(where_);
    return *std::move(model);
  }

  Result<> take(const std::string& line) {
    if (line.empty()) return {};
    if (line == "/help") {
      std::fputs(help_text, stdout);
    } else if (line == "/clear") {
      messages_.clear();
    } else if (line == "/system" || line.starts_with("/system ")) {
      system_ = line.size() > 8 ? line.substr(8) : "";
    } else if (line.starts_with("/")) {
      print_note("there is no " + line.substr(0, line.find(' ')) + "; /help lists what there is");
    } else {
      return say(line);
    }
    return {};
  }

  nlohmann::json body() const {
    nlohmann::json messages = nlohmann::json::array();
    if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
    for (const auto& message : messages_) messages.push_back(message);
    nlohmann::json body{
        {"model", model_}, {"messages", messages}, {"stream", true}, {"temperature", temperature_}};
    if (tokens_ > 0) body["max_tokens"] = tokens_;
    return body;
  }

  // What was said is kept when there was an answer, if only the beginning of one: templates want turns.
  Result<> say(const std::string& line) {
    messages_.push_back({{"role", "user"}, {"content", line}});
    Answer answer;
    const std::string problem = ask(answer);
    std::string lack = answer_stopped ? "" : answer.lack(problem);
    if (!answer.text().empty() || lack.empty()) std::fputs("\n", stdout);
    if (answer.text().empty()) {
      messages_.pop_back();
    } else {
      messages_.push_back({{"role", "assistant"}, {"content", answer.text()}});
    }
    if (lack.empty()) return {};
    // Whoever answers has words of its own for it.
    if (!messages_.empty() && lack.find("context") != std::string::npos)
      lack += "; /clear forgets what was said";
    return failed(lack);
  }

  // Why no more of it can come; "" if it is over, or was stopped.
  std::string ask(Answer& answer) {
    const std::string text = body().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    auto heard_at = SteadyClock::now();
    bool is_late = false;
    const auto done = client_->events(
        "POST", "/v1/chat/completions", text,
        [&](std::string_view, std::string_view data) {
          if (answer_stopped) return false;
          heard_at = SteadyClock::now();
          print_text(answer.hear(data));
          std::fflush(stdout);
          return !answer.is_over();
        },
        [&] {
          is_late = patience_ > Duration() && SteadyClock::now() - heard_at > patience_;
          return !is_late && !answer_stopped;
        });
    if (is_late)
      return "nothing has come for " + format_duration(patience_) + "; --patience says how long is waited";
    if (done) return "";
    std::string problem = problem_in(done.error().message());
    if (client_->is_untrusted()) problem += "; " + done.error().remedy();
    if (done.error().context() == "HTTP 401") problem += std::string("; ") + key_remedy;
    return problem;
  }

  std::string where_;
  std::string system_;
  std::string key_file_;
  std::string ca_file_;
  std::int64_t tokens_ = 0;
  double temperature_ = 0.7;
  Duration patience_ = 10min;
  ModelFlags model_flags_;
  OwnEngine own_;
  std::optional<net::Client> client_;
  std::string model_;
  bool is_terminal_ = false;
  std::vector<nlohmann::json> messages_;
};

}  // namespace

std::unique_ptr<Command> make_chat() { return std::make_unique<Chat>(); }

}  // namespace tutti::cli
