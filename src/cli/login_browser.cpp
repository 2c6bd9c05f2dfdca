#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "cli/login_ways.hpp"
#include "cli/orderly_end.hpp"
#include "cli/terminal.hpp"
#include "net/http/server.hpp"

namespace tutti::cli {
namespace {

constexpr const char* answer_path = "/callback";
constexpr std::size_t opening_bytes = 32;
constexpr int found_status = 302;
constexpr std::size_t browser_connections_max = 16;
constexpr Duration interrupted_looked_every = 100ms;
constexpr int wrong_status = 400;
constexpr int missing_status = 404;

// A page says what it has to in plain text, and nobody keeps it: a code stands in its address.
net::Response page(int status, std::string text) {
  return {.status = status,
          .body = std::move(text) + "\n",
          .type = "text/plain; charset=utf-8",
          .headers = {{"Cache-Control", "no-store"}, {"Referrer-Policy", "no-referrer"}}};
}

// What the browser brings back to this machine, the first time that it is what was waited for.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(const LoginPlace& place, net::Loop& loop) : place_(place), loop_(loop) {}

  // `opening` is the path of the page that leads to the issuer.
  void expect(oidc::BrowserLogin login, std::string opening) {
    login_ = std::move(login);
    opening_ = std::move(opening);
  }
  const oidc::BrowserLogin& login() const { return login_; }
  const std::optional<Result<std::string>>& code() const { return code_; }

  void handle(const std::shared_ptr<net::Exchange>& exchange) {
    const net::Request& request = exchange->request();
    if (request.method == "GET" && !opening_.empty() && request.path == opening_)
      return exchange->answer(way_to_issuer());
    if (request.method != "GET" || request.path != answer_path)
      return exchange->answer(page(missing_status, "There is nothing here."));
    auto code = oidc::code_from(request.query, place_.provider, login_);
    if (!code || code_)
      return exchange->answer(page(wrong_status, "This is not the answer that `tutti login` waits for."));
    const bool fine = code->ok();
    code_ = std::move(code);
    exchange->when_over([answer = shared_from_this()] { answer->loop_.stop(); });
    exchange->answer(fine ? page(200, "tutti has its answer. Close this page and go back to the terminal.")
                          : page(wrong_status, "You are not logged in. The terminal says why."));
  }

 private:
  // Once: whoever has it is the browser, and who comes later sees that somebody was there before him.
  net::Response way_to_issuer() {
    if (was_opened_)
      return page(missing_status,
                  "This page was opened before. If that was not you, press Ctrl-C where `tutti login` runs.");
    was_opened_ = true;
    net::Response response = page(found_status, "On to the issuer.");
    response.headers["Location"] = oidc::address_for(place_.provider, place_.client, login_);
    return response;
  }

  const LoginPlace& place_;
  net::Loop& loop_;
  oidc::BrowserLogin login_;
  std::string opening_;
  bool was_opened_ = false;
  std::optional<Result<std::string>> code_;
};

// It may not be there, or not come up: the address was printed. Everybody on this machine can read the words
// of a program: they name a page of ours, and not the issuer's, in whose address is what makes the answer
// ours.
void show_in_browser(std::string url) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&actions) != 0) return;
  if (::posix_spawnattr_init(&attributes) == 0) {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    std::string program = "xdg-open";
    const std::array<char*, 3> words{program.data(), url.data(), nullptr};
    pid_t pid = 0;
    ::posix_spawnp(&pid, "xdg-open", &actions, &attributes, words.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
  }
  ::posix_spawn_file_actions_destroy(&actions);
}

Result<> invite(const std::string& url, const std::string& opening_url) {
  print_text("Log in with a browser on this machine, at\n\n  " + url + "\n\n");
  if (auto told = flush_text(); !told) return told;
  if (has_display()) show_in_browser(opening_url);
  return {};
}

Result<IssuedToken> token_for(const LoginPlace& place, const oidc::BrowserLogin& login,
                              const std::string& code) {
  const auto answer =
      oidc::post_form(place.provider.token_url, oidc::code_form(place.client, login, code), place.reach);
  if (interrupted) return login_interrupted();
  if (!answer) return answer.error();
  const auto given = oidc::read_token_answer(answer->status, answer->body);
  if (!given) return given.error();
  if (given->id_token.empty()) return oidc::refused_by_issuer(*given);
  return IssuedToken{given->id_token, login.nonce};
}

}  // namespace

bool has_display() {
  for (const char* name : {"DISPLAY", "WAYLAND_DISPLAY"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return true;
  }
  return false;
}

Result<IssuedToken> log_in_with_browser(const LoginPlace& place) {
  net::Loop loop;
  const auto answer = std::make_shared<Answer>(place, loop);
  net::ServerOptions options;
  net::limit_connections(options, browser_connections_max);
  auto server = net::Server::listen(
      loop, options, [answer](const std::shared_ptr<net::Exchange>& exchange) { answer->handle(exchange); });
  if (!server) return std::move(server).error();
  const std::string here = "http://127.0.0.1:" + std::to_string((*server)->port());
  auto login = oidc::begin_browser_login(here + answer_path);
  const auto opening = oidc::random_letters(opening_bytes);
  if (!login || !opening) return login ? opening.error() : login.error();
  answer->expect(std::move(*login), "/" + *opening);
  if (auto told =
          invite(oidc::address_for(place.provider, place.client, answer->login()), here + "/" + *opening);
      !told)
    return std::move(told).error();
  const auto deadline = loop.after(browser_login_time_max, [&loop] { loop.stop(); });
  const auto looks = loop.every(interrupted_looked_every, [&loop] {
    if (interrupted) loop.stop();
  });
  loop.run();
  if (interrupted) return login_interrupted();
  if (!answer->code())
    return failed("nobody has come back from the browser within " + format_duration(browser_login_time_max))
        .remedy("`tutti login` begins anew; with --device the browser may be on another machine");
  if (!answer->code()->ok()) return answer->code()->error();
  return token_for(place, answer->login(), **answer->code());
}

}  // namespace tutti::cli
