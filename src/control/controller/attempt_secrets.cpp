#include "control/controller/attempt_secrets.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <span>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/log/log.hpp"
#include "control/controller/random_text.hpp"
#include "control/controller/tokens.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t key_bytes = 32;

// A full disk keeps no controller from starting.
Result<std::string> key_of(const std::string& folder) {
  const std::string file = folder + "/ranks.key";
  const auto made = make_token(file, false);
  auto key = made ? read_token(file) : Result<std::string>(made.error());
  if (key) return key;
  log::warning("{}; a gang that is half started when this controller ends may not meet", key.error().text());
  return random_hex(key_bytes);
}

std::string keyed_hash(const std::string& key, const std::string& words) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned int bytes = 0;
  const auto* const made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(words.data()), words.size(), hash.data(), &bytes);
  TUTTI_CHECK(made != nullptr, "OpenSSL has SHA-256");
  return to_hex(std::as_bytes(std::span(hash.data(), bytes)));
}

}  // namespace

Result<driver::AttemptSecret> attempt_secrets(const std::string& folder) {
  auto key = key_of(folder);
  if (!key) return std::move(key).error();
  return driver::AttemptSecret([key = *std::move(key)](const std::string& cluster, const cluster::Job& job) {
    return keyed_hash(key,
                      "tutti attempt 1 " + cluster + " " + job.id.text() + " " + std::to_string(job.attempt));
  });
}

}  // namespace tutti::controller
