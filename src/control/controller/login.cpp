#include "control/controller/login.hpp"

#include <future>

#include "base/bytes.hpp"
#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "control/controller/tokens.hpp"
#include "net/sync/digest.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t authority_bytes_max = 16 << 20;
constexpr std::size_t client_id_bytes_max = 1024;
// What a login is good for.
constexpr Duration login_life = 24h * 7;
constexpr Duration commit_time_max = 10s;
// As long as one of the issuer's can be taken at all.
constexpr Duration redeemed_kept = oidc::token_age_max + 2 * oidc::clock_skew_max;
constexpr std::size_t redeemed_max = 50'000;

// Of what is signed: a signature can be written in more than one way.
std::string hash_of_signed(std::string_view token) {
  return sync::hash_bytes(as_bytes(token.substr(0, token.rfind('.'))));
}

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

bool Redeemed::has(std::string_view token, Instant now) {
  while (!oldest_first_.empty() && now - oldest_first_.front().first > redeemed_kept) forget_oldest();
  return hashes_.contains(hash_of_signed(token));
}

void Redeemed::add(std::string_view token, Instant now) {
  const auto [hash, is_new] = hashes_.insert(hash_of_signed(token));
  if (!is_new) return;
  oldest_first_.emplace_back(now, *hash);
  if (oldest_first_.size() > redeemed_max) forget_oldest();
}

void Redeemed::forget_oldest() {
  hashes_.erase(oldest_first_.front().second);
  oldest_first_.pop_front();
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
                                .name_claim = options_.name_claim};
  const Instant now = wall_();
  const auto identity = oidc::verify(request.id_token, **keys, expected, now);
  if (!identity) return Error(identity.error()).within("the issuer's token");
  if (redeemed_.has(request.id_token, now))
    return invalid("somebody has logged in with it before")
        .within("the issuer's token")
        .remedy("log in again");
  auto token = give_token_(*identity, from);
  if (!token) return std::move(token).error().within("user " + identity->name);
  redeemed_.add(request.id_token, now);
  return wire::LoginReply{std::move(*token), identity->name};
}

GiveToken gives_tokens(Core& core) {
  return [&core](const oidc::Identity& identity, const std::string& from) -> Result<std::string> {
    people::Token wish{.person = identity.name, .expires_at = now_on_the_wall() + login_life};
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
