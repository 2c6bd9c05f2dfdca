// Logging in at an issuer of OpenID Connect, and out again.
#include <utility>

#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/login_token.hpp"
#include "cli/login_ways.hpp"
#include "cli/orderly_end.hpp"
#include "cli/terminal.hpp"
#include "control/wire/login.hpp"
#include "control/wire/replies.hpp"

namespace tutti::cli {

Error login_interrupted() { return failed("interrupted: you are not logged in"); }

namespace {

// Whoever logs out goes.
constexpr Duration logout_answer_time_max = 10s;

// The controller's answer; who presses Ctrl-C does not wait for it.
Result<std::string> ask_controller(Cluster& cluster, const std::string& method,
                                   const std::string& body = {}) {
  net::Client& client = cluster.client();
  client.keep_secret();
  client.give_up_when([] { return interrupted.load(); });
  auto response = client.request(method, "/api/v1/login", body, answer_time_max, net::small_answer_bytes_max);
  if (interrupted) return login_interrupted();
  if (!response) return std::move(response).error();
  if (response->status >= 400)
    return wire::decode_error(response->status, response->body).within("controller " + cluster.address());
  return std::move(response->body);
}

class Login final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("device", device_,
              "show a code to be typed in at any machine; the default where there is no display");
    flags.add("issuer", issuer_, "log in at this one, and not where the controller says");
    flags.add("client-id", client_id_, "what that one calls the cluster");
    flags.add(
        "ca", ca_file_,
        "the authority (PEM) that signed the issuer's certificate (default: those that this machine trusts)");
  }

  Result<int> run() override {
    const OrderlyEnd end;
    auto done = log_in();
    if (done || !interrupted) return done;
    print_note(done.error().text());
    return exit_interrupted;
  }

 private:
  Result<int> log_in() {
    auto cluster = Cluster::without_token();
    if (!cluster) return std::move(cluster).error();
    const auto settings = settings_of(*cluster);
    if (!settings) return settings.error();
    const auto place = place_of(*settings);
    if (!place) return Error(place.error()).within("issuer " + settings->issuer);
    const auto issued =
        device_wanted(place->provider) ? log_in_with_code(*place) : log_in_with_browser(*place);
    if (!issued) return Error(issued.error()).within("issuer " + settings->issuer);
    const auto answer = ask_controller(*cluster, "POST", wire::login_json({issued->id_token, issued->nonce}));
    if (!answer) return answer.error();
    const auto given = wire::decode_logged_in(*answer);
    if (!given) return given.error();
    if (auto kept = keep_login_token(cluster->address(), given->token); !kept) return std::move(kept).error();
    print_text("logged in at " + cluster->address() + " as " + given->user + "; the token is in " +
               login_token_file(cluster->address()) + "\n");
    return exit_success;
  }

  Result<wire::LoginSettings> settings_of(Cluster& cluster) const {
    if (issuer_.empty() != client_id_.empty())
      return invalid("--issuer and --client-id go together").within("login");
    if (!issuer_.empty()) return wire::LoginSettings{issuer_, client_id_, oidc::Client().scopes};
    const auto answer = ask_controller(cluster, "GET");
    if (!answer) return answer.error();
    return wire::decode_login_settings(*answer);
  }

  Result<LoginPlace> place_of(const wire::LoginSettings& settings) const {
    if (auto url = oidc::parse_issuer(settings.issuer); !url) return std::move(url).error();
    LoginPlace place{
        .provider = {},
        .client = {settings.client_id, settings.scopes},
        .reach = {ca_file_.empty() ? "" : absolute_path(ca_file_), [] { return interrupted.load(); }}};
    auto provider = oidc::discover(settings.issuer, place.reach);
    if (interrupted) return login_interrupted();
    if (!provider) return std::move(provider).error();
    place.provider = std::move(*provider);
    const bool possible =
        !place.provider.device_url.empty() || (!device_ && !place.provider.authorization_url.empty());
    if (possible) return place;
    return failed(
        device_
            ? "it has no codes to be typed in elsewhere (device_authorization_endpoint)"
            : "nobody can log in there: it offers neither a page for a browser with PKCE (S256) nor codes");
  }

  // What it cannot do otherwise is done so, whatever there is to look at.
  bool device_wanted(const oidc::Provider& provider) const {
    if (provider.device_url.empty()) return false;
    return device_ || provider.authorization_url.empty() || !has_display();
  }

  bool device_ = false;
  std::string issuer_;
  std::string client_id_;
  std::string ca_file_;
};

class Logout final : public Command {
 public:
  void declare(config::Flags& /*flags*/) override {}

  Result<int> run() override {
    const auto cluster = Cluster::without_token();
    if (!cluster) return cluster.error();
    // First, because nobody else has it: with the file goes the only way to say which one is meant.
    const auto revoked = revoke(cluster->address());
    const auto was = forget_login_token(cluster->address());
    if (!was) return was.error();
    if (!revoked) print_note(revoked.error().text() + "; " + revoked.error().remedy());
    print_text(*was ? "logged out at " + cluster->address() + "\n"
                    : "nobody is logged in at " + cluster->address() + "\n");
    return exit_success;
  }

 private:
  // One that opens nothing any more is as good as revoked.
  static Result<> revoke(const std::string& address) {
    const std::string id = login_token_id(address);
    if (id.empty()) return {};
    auto cluster = Cluster::with_login();
    if (!cluster) return std::move(cluster).error();
    const auto response = cluster->client().request("DELETE", "/api/v1/tokens/" + id, "",
                                                    logout_answer_time_max, net::small_answer_bytes_max);
    const bool is_worthless =
        response && (response->status < 400 || response->status == 401 || response->status == 404);
    if (is_worthless) return {};
    const Error why = response ? wire::decode_error(response->status, response->body) : response.error();
    return failed("the token " + id +
                  " is not revoked, and opens the cluster until it expires: " + why.text())
        .remedy("`tutti tokens revoke " + id + "` by another login makes it worthless");
  }
};

}  // namespace

std::unique_ptr<Command> make_login() { return std::make_unique<Login>(); }
std::unique_ptr<Command> make_logout() { return std::make_unique<Logout>(); }

}  // namespace tutti::cli
