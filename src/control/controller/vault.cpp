#include "control/controller/vault.hpp"

#include <openssl/crypto.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "base/log/log.hpp"

namespace tutti::controller {
namespace {

constexpr auto core_patience = std::chrono::seconds(30);

// Of the thread that seals anew, and of nobody else: what is in the clear there is not left behind.
class Cleared {
 public:
  explicit Cleared(std::string& value) : value_(value) {}
  Cleared(const Cleared&) = delete;
  Cleared& operator=(const Cleared&) = delete;
  ~Cleared() { OPENSSL_cleanse(value_.data(), value_.size()); }

 private:
  std::string& value_;
};

Error not_known_now() {
  return failed("what is in the store is not known now").remedy("try again when its disk is well");
}

}  // namespace

void Vault::open() {
  // Whether that matters is known when the store is read.
  static_cast<void>(sealer_.read());
  core_.open_secrets_with([this](const std::string& cluster, const cluster::Secret& secret) {
    return sealer_.open(cluster, secret);
  });
}

void Vault::start() {
  thread_ = std::thread([this] { run(); });
}

void Vault::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Vault::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_up_ = true;
  }
  woken_.notify_one();
}

void Vault::tell(const std::string& trouble) {
  if (trouble == told_) return;
  if (!trouble.empty())
    log::error("secrets cannot be opened, and jobs that ask for them are held: {}", trouble);
  if (trouble.empty()) log::warning("secrets can be opened again");
  told_ = trouble;
}

std::string Vault::trouble(const cluster::State& state) const {
  if (state.secrets.empty()) return "";
  if (!sealer_.has(state.secret_key)) return sealer_.lacks(state.secret_key).text();
  for (const auto& [id, secret] : state.secrets) {
    if (secret.key != state.secret_key && !sealer_.has(secret.key)) return sealer_.lacks(secret.key).text();
  }
  return "";
}

std::optional<Vault::Look> Vault::look(const std::optional<cluster::SecretId>& behind) const {
  auto answer = std::make_shared<std::promise<std::optional<Look>>>();
  auto coming = answer->get_future();
  core_.ask([answer, behind](const cluster::State& state, const wire::StoreHealth& health) {
    if (!health.state_is_stored) return answer->set_value(std::nullopt);
    Look look{.key = state.secret_key, .has_secrets = !state.secrets.empty(), .old = {}};
    std::size_t bytes = 0;
    auto at = behind ? state.secrets.upper_bound(*behind) : state.secrets.begin();
    for (; at != state.secrets.end(); ++at) {
      const cluster::Secret& secret = at->second;
      if (secret.key == state.secret_key) continue;
      bytes += secret.sealed.size();
      look.old.push_back(secret);
      if (look.old.size() >= cluster::rewrapped_max || bytes >= cluster::rewrapped_bytes_max) break;
    }
    answer->set_value(std::move(look));
  });
  if (coming.wait_for(core_patience) != std::future_status::ready) return std::nullopt;
  return coming.get();
}

Result<cluster::SetSecret> Vault::seal(cluster::SecretId id, std::string_view value) {
  const auto known = look();
  if (!known) return not_known_now();
  std::string key = known->key;
  // Never another one in place of one that is missing: what is sealed under that would be lost for good when
  // somebody finds it.
  if (!key.empty() && !sealer_.has(key)) {
    if (auto read = sealer_.read(); !read) return std::move(read).error();
    if (!sealer_.has(key)) return sealer_.lacks(key);
  }
  if (key.empty()) {
    auto first = sealer_.first();
    if (!first) return std::move(first).error();
    key = *std::move(first);
  }
  // Nothing is stored that could not be opened after a restart.
  const auto restored = sealer_.restore();
  if (!restored) return restored.error();
  if (*restored) {
    log::warning("keys of the secrets were missing in {}, and are there again: was it removed or replaced?",
                 sealer_.file());
    wake();
  }
  auto sealed = sealer_.seal(core_.cluster_id(), id, key, value);
  if (!sealed) return std::move(sealed).error();
  return cluster::SetSecret{.id = std::move(id),
                            .key = std::move(key),
                            .sealed = *std::move(sealed),
                            .bytes = static_cast<std::int32_t>(value.size())};
}

Result<std::string> Vault::make_key() {
  const auto known = look();
  if (!known) return not_known_now();
  if (known->has_secrets && !sealer_.has(known->key)) {
    if (auto read = sealer_.read(); !read) return std::move(read).error();
    if (!sealer_.has(known->key))
      return failed(sealer_.lacks(known->key).message())
          .remedy(
              "put that file back; where there is no copy, remove all secrets (`tutti secret rm`), and ask "
              "for another key then");
  }
  return sealer_.make();
}

void Vault::settle() {
  sealer_.settle();
  wake();
}

void Vault::run() {
  for (;;) {
    const Step step = rewrap_some();
    std::unique_lock lock(mutex_);
    const auto is_wanted = [this] { return stopping_ || woken_up_; };
    if (step == Step::is_done) woken_.wait(lock, is_wanted);
    if (step == Step::failed) woken_.wait_for(lock, secrets_tried_every, is_wanted);
    if (stopping_) return;
    woken_up_ = false;
  }
}

// What is read here and what is committed are apart: what was set anew meanwhile stays as it is, and is under
// the new key by then.
Vault::Step Vault::rewrap_some() {
  const auto calm = sealer_.calm();
  const auto known = look(looked_at_);
  if (!known) return Step::failed;
  if (known->has_secrets && !sealer_.has(known->key)) {
    const auto read = sealer_.read();
    tell(read ? sealer_.lacks(known->key).text() : read.error().text());
    if (!sealer_.has(known->key)) return Step::failed;
  }
  if (known->old.empty() && std::exchange(looked_at_, std::nullopt)) return Step::failed;
  if (known->old.empty()) {
    tell("");
    if (known->key.empty() || sealer_.keys() < 2) return Step::is_done;
    // Somebody is about to change the key, and wakes this when that is done.
    if (!calm) return Step::is_done;
    const auto kept = sealer_.keep_only(known->key, *calm);
    if (!kept) log::warning("an old key of the secrets stays: {}", kept.error().text());
    return kept ? Step::is_done : Step::failed;
  }
  cluster::SecretsRewrapped done{.key = known->key, .secrets = {}};
  std::string why;
  for (const cluster::Secret& secret : known->old) {
    auto value = sealer_.open(core_.cluster_id(), secret);
    if (!value) {
      why = Error(value.error()).within("secret " + cluster::text_of(secret.id)).text();
      continue;
    }
    const Cleared cleared(*value);
    auto sealed = sealer_.seal(core_.cluster_id(), secret.id, known->key, *value);
    if (!sealed) {
      why = sealed.error().text();
      continue;
    }
    done.secrets.push_back({secret.id, secret.sealed, *std::move(sealed)});
  }
  if (!why.empty() || !looked_at_) tell(why);
  if (!why.empty() || looked_at_) looked_at_ = known->old.back().id;
  if (done.secrets.empty()) return Step::did_some;
  auto answer = std::make_shared<std::promise<bool>>();
  auto coming = answer->get_future();
  const bool taken =
      core_.happen(std::move(done), [answer](const auto& stored) { answer->set_value(stored.ok()); });
  if (!taken || coming.wait_for(core_patience) != std::future_status::ready || !coming.get())
    return Step::failed;
  return Step::did_some;
}

}  // namespace tutti::controller
