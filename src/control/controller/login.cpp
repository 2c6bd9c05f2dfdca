#include "control/controller/login.hpp"

#include <cctype>
#include <future>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "control/controller/tokens.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t authority_bytes_max = 16 << 20;
constexpr std::size_t client_id_bytes_max = 1024;
// What a login is good for.
constexpr Duration login_life = 24h * 7;
constexpr Duration commit_time_max = 10s;

}  // namespace

Result<> check_login(const LoginOptions& options) {
  if (options.issuer.empty() != options.client_id.empty())
    return invalid("an issuer and the name that it has for this cluster go together")
        .remedy("give both --oidc-issuer and --oidc-client-id");
  if (options.issuer.empty()) return {};
  if (auto url = oidc::parse_issuer(options.issuer); !url)
    return std::move(url).error().within("--oidc-issuer");
  if (options.client_id.size() > client_id_bytes_max)
    return invalid("it is too long").within("--oidc-client-id");
  if (options.ca_file.empty()) return {};
  auto file = files::read_existing_file(options.ca_file, authority_bytes_max);
  if (!file) return std::move(file).error().within("--oidc-ca");
  return {};
}

Result<> Login::fetch_keys() {
  keys_.asked(steady_());
  const oidc::Reach reach{options_.ca_file, [this] { return stopping_.load(); }};
  const auto provider = oidc::discover(options_.issuer, reach);
  if (!provider) return provider.error();
  auto keys = oidc::fetch_keys(*provider, reach);
  if (!keys) return std::move(keys).error();
  keys_.took(std::move(*keys), steady_());
  return {};
}

Result<const oidc::KeySet*> Login::keys_for(const oidc::Header& header) {
  if (keys_.wants_fetch(header.key_id, steady_())) {
    if (auto fetched = fetch_keys(); !fetched) {
      trouble_ = fetched.error().text();
      log::warning("the keys of the issuer {} cannot be fetched: {}", options_.issuer, trouble_);
    }
  }
  const oidc::KeySet* keys = keys_.keys(steady_());
  if (keys == nullptr)
    return failed("the keys of the issuer cannot be fetched: " + trouble_).remedy("try again in a while");
  return keys;
}

Result<wire::LoginReply> Login::log_in(const wire::LoginRequest& request, const std::string& from) {
  const auto header = oidc::read_header(request.id_token);
  if (!header) return Error(header.error()).within("the issuer's token");
  const auto keys = keys_for(*header);
  if (!keys) return keys.error();
  const oidc::Expected expected{.issuer = options_.issuer,
                                .client_id = options_.client_id,
                                .nonce = request.nonce,
                                .name_claim = options_.name_claim,
                                .groups_claim = options_.groups_claim};
  const auto identity = oidc::verify(request.id_token, **keys, expected, wall_());
  if (!identity) return Error(identity.error()).within("the issuer's token");
  auto token = give_token_(*identity, from);
  if (!token) return std::move(token).error().within("user " + identity->name);
  return wire::LoginReply{std::move(*token), identity->name};
}

GiveToken gives_tokens(Core& core) {
  return [&core](const oidc::Identity& identity, const std::string& from) -> Result<std::string> {
    people::Token wish{.person = identity.name, .expires_at = now_on_the_wall() + login_life};
    for (char& letter : wish.person)
      letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    auto made = new_token(std::move(wish));
    if (!made) return made.error();
    const auto done = std::make_shared<std::promise<Result<>>>();
    const bool taken = core.happen(
        cluster::LogIn{identity.issuer + " " + identity.subject, std::move(made->token)},
        [done](const auto& reply) { done->set_value(reply ? Result<>() : Result<>(reply.error())); },
        std::nullopt, from);
    if (!taken) return failed("the controller is overloaded");
    auto answer = done->get_future();
    if (answer.wait_for(commit_time_max) != std::future_status::ready)
      return failed("the controller's disk does not answer");
    if (auto given = answer.get(); !given) return std::move(given).error();
    return std::move(made->text);
  };
}

}  // namespace tutti::controller
