#include "net/pki/pki.hpp"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <set>

#include "net/pki/openssl.hpp"

namespace tutti::pki {
namespace {

const Instant now(std::chrono::seconds(1'800'000'000));

PublicKey new_key() {
  auto key = read_request(*make_request(*make_key()));
  EXPECT_TRUE(key.ok());
  return *key;
}

// A request of any key, as other programs make them.
std::string request_of(EVP_PKEY* key, EVP_PKEY* signer) {
  const Request request(X509_REQ_new());
  X509_REQ_set_version(request.get(), 0);
  X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(request.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("root"), -1, -1, 0);
  X509_REQ_set_pubkey(request.get(), key);
  const bool plain = EVP_PKEY_base_id(signer) == EVP_PKEY_ED25519;
  X509_REQ_sign(request.get(), signer, plain ? nullptr : EVP_sha256());
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(bio.get(), request.get());
  return text_of(bio.get());
}

Key ed25519() { return Key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")); }
Key rsa(std::size_t bits) { return Key(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", bits)); }
// Such a signature takes a hundred times as long to verify.
Key rsa_of_long_exponent() {
  const Number exponent(BN_new());
  BN_set_bit(exponent.get(), 100);
  BN_set_bit(exponent.get(), 0);
  const KeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_RSA, nullptr));
  EVP_PKEY* key = nullptr;
  EXPECT_EQ(EVP_PKEY_keygen_init(context.get()), 1);
  EXPECT_EQ(EVP_PKEY_CTX_set_rsa_keygen_bits(context.get(), 2048), 1);
  EXPECT_EQ(EVP_PKEY_CTX_set1_rsa_keygen_pubexp(context.get(), exponent.get()), 1);
  EXPECT_EQ(EVP_PKEY_keygen(context.get(), &key), 1);
  return Key(key);
}
Key ec(const char* curve) { return Key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", curve)); }

TEST(Pki, ANodeGetsACertificateThatSaysWhoItIs) {
  const auto authority = make_authority("ab12", now);
  ASSERT_TRUE(authority.ok());
  const PublicKey key = new_key();
  const auto certificate =
      sign(*authority, key, {.name = {.cluster = "ab12", .node = "gpu-17"}}, {.now = now});
  ASSERT_TRUE(certificate.ok()) << certificate.error().text();
  const auto identity = read_certificate(*certificate);
  ASSERT_TRUE(identity.ok()) << identity.error().text();
  EXPECT_EQ(to_uri(identity->name), "tutti://ab12/node/gpu-17");
  EXPECT_EQ(identity->key_id, key.id);
  EXPECT_EQ(identity->signed_at, now);
  EXPECT_EQ(identity->until, now + node_life);
  EXPECT_TRUE(check_time(*identity, now - clock_slack).ok());
  EXPECT_FALSE(check_time(*identity, now - clock_slack - 1s).ok());
  EXPECT_FALSE(check_time(*identity, now + node_life).ok());
}

// What a disk has done to it: nobody would be signed by what comes of that.
TEST(Pki, AnAuthorityIsReadAsItWasMadeOrNotAtAll) {
  const auto made = make_authority("ab12", now);
  ASSERT_TRUE(made.ok());
  const std::string text = made->key + made->certificate;
  const auto sound = read_authority(text);
  ASSERT_TRUE(sound.ok()) << sound.error().text();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const auto read = read_authority(damaged);
    if (!read.ok()) ++refused;
    if (!read.ok()) continue;
    EXPECT_EQ(read->key, sound->key) << at;
    EXPECT_EQ(read->certificate, sound->certificate) << at;
  }
  EXPECT_GT(refused, text.size() / 2);
}

// What OpenSSL says of the chain, as an X509_V_ERR_... or X509_V_OK.
int verdict(const Authority& by, X509* certificate, int purpose) {
  const Certificate root = certificate_in(by.certificate);
  X509_STORE* store = X509_STORE_new();
  X509_STORE_add_cert(store, root.get());
  X509_STORE_CTX* context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, certificate, nullptr);
  X509_STORE_CTX_set_purpose(context, purpose);
  X509_STORE_CTX_set_time(context, 0,
                          std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count());
  X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(context), X509_V_FLAG_X509_STRICT);
  X509_verify_cert(context);
  const int found = X509_STORE_CTX_get_error(context);
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return found;
}

TEST(Pki, OpenSslTakesTheChainOfAControllerAsThatOfAServer) {
  const auto authority = make_authority("ab12", now);
  const auto other = make_authority("ab12", now);
  const auto text = sign(*authority, new_key(),
                         {.name = {.cluster = "ab12", .role = Role::controller},
                          .addresses = {"127.0.0.1", "::1", "head.example"}},
                         {.now = now});
  ASSERT_TRUE(text.ok()) << text.error().text();
  const Certificate certificate = certificate_in(*text);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "::1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "127.0.0.2", 0), 0);
  EXPECT_EQ(X509_check_host(certificate.get(), "head.example", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(certificate.get(), "tutti controller", 0, 0, nullptr), 0);
  EXPECT_EQ(verdict(*authority, certificate.get(), X509_PURPOSE_SSL_SERVER), X509_V_OK);
  EXPECT_EQ(verdict(*authority, certificate.get(), X509_PURPOSE_SSL_CLIENT), X509_V_ERR_INVALID_PURPOSE);
  EXPECT_EQ(verdict(*other, certificate.get(), X509_PURPOSE_SSL_SERVER),
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
}

// Whoever has a token for a node chooses its name: also that of the controller's host.
TEST(Pki, ANodesCertificateIsNoServersWhateverItIsCalled) {
  const auto authority = make_authority("ab12", now);
  const auto text =
      sign(*authority, new_key(), {.name = {.cluster = "ab12", .node = "head.example"}}, {.now = now});
  ASSERT_TRUE(text.ok()) << text.error().text();
  const Certificate certificate = certificate_in(*text);
  EXPECT_EQ(verdict(*authority, certificate.get(), X509_PURPOSE_SSL_CLIENT), X509_V_OK);
  EXPECT_EQ(verdict(*authority, certificate.get(), X509_PURPOSE_SSL_SERVER), X509_V_ERR_INVALID_PURPOSE);
  EXPECT_EQ(X509_check_host(certificate.get(), "head.example", 0, 0, nullptr), 0)
      << "nor by its subject, at which some look where no host is named";
}

TEST(Pki, WhoHasSignedACertificateIsLookedAt) {
  const auto authority = make_authority("ab12", now);
  const auto other = make_authority("ab12", now);
  const auto text = sign(*authority, new_key(), {.name = {.cluster = "ab12", .node = "n1"}}, {.now = now});
  EXPECT_TRUE(check_signer(*text, other->certificate + authority->certificate).ok());
  EXPECT_FALSE(check_signer(*text, other->certificate).ok());
  EXPECT_FALSE(check_signer(*text, *text).ok()) << "a node signs nothing";
  EXPECT_FALSE(check_signer(*text, "").ok());
  EXPECT_FALSE(check_signer("", authority->certificate).ok());
}

TEST(Pki, SerialsAreNotRepeatedAndHaveTheirBits) {
  const auto authority = make_authority("ab12", now);
  const PublicKey key = new_key();
  std::set<std::string> serials;
  std::size_t digits = 0;
  for (int round = 0; round < 32; ++round) {
    const auto text = sign(*authority, key, {.name = {.cluster = "ab12", .node = "n1"}}, {.now = now});
    const auto identity = read_certificate(*text);
    serials.insert(identity->serial);
    digits = std::max(digits, identity->serial.size());
  }
  EXPECT_EQ(serials.size(), 32u);
  EXPECT_EQ(digits, 32u);  // of 128 bits
}

TEST(Pki, ACertificateEndsWithItsAuthority) {
  const auto authority = make_authority("ab12", now);
  const Subject subject{.name = {.cluster = "ab12", .node = "n1"}};
  const auto last = sign(*authority, new_key(), subject, {.now = now + authority_life - 1h});
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(read_certificate(*last)->until, now + authority_life);
  const auto late = sign(*authority, new_key(), subject, {.now = now + authority_life});
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().remedy().find("controller init"), std::string::npos);
}

TEST(Pki, OfARequestOnlySoundKeysAreTaken) {
  for (const auto& key : {ed25519(), rsa(2048), ec("P-256")})
    EXPECT_TRUE(read_request(request_of(key.get(), key.get())).ok());
  for (const auto& key : {rsa(1024), rsa_of_long_exponent(), ec("P-384"), ec("secp256k1")}) {
    const auto refused = read_request(request_of(key.get(), key.get()));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().remedy().find("P-256"), std::string::npos);
  }
}

TEST(Pki, WhoeverAsksHasToHaveTheKey) {
  const Key mine = ec("P-256");
  const Key foreign = ec("P-256");
  const auto refused = read_request(request_of(foreign.get(), mine.get()));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("has not signed"), std::string::npos);
}

TEST(Pki, WhatARequestWishesForIsNotLookedAt) {
  const auto authority = make_authority("ab12", now);
  const Key mine = ec("P-256");
  const auto key = read_request(request_of(mine.get(), mine.get()));  // "CN=root"
  const auto text = sign(*authority, *key, {.name = {.cluster = "ab12", .node = "n1"}}, {.now = now});
  const Certificate certificate = certificate_in(*text);
  std::array<char, 64> name{};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name.data(),
                            static_cast<int>(name.size()));
  EXPECT_STREQ(name.data(), "tutti node n1");
}

TEST(Pki, RequestsThatAreNoneAreRefused) {
  EXPECT_FALSE(read_request("").ok());
  EXPECT_FALSE(read_request(*make_key()).ok());
  EXPECT_FALSE(
      read_request("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n").ok());
  std::string request = *make_request(*make_key());
  EXPECT_FALSE(read_request(request.substr(0, request.size() / 2)).ok());
  request.insert(request.size() / 2, request_bytes_max, 'A');
  EXPECT_FALSE(read_request(request).ok());
}

TEST(Pki, NamesHaveOneForm) {
  for (const char* good : {"tutti://ab12", "tutti://ab12/controller", "tutti://ab12/node/gpu-17.rack_2"}) {
    const auto name = parse_uri(good);
    ASSERT_TRUE(name.ok()) << good;
    EXPECT_EQ(to_uri(*name), good);
  }
  const std::string long_name = "tutti://ab12/node/" + std::string(name_bytes_max + 1, 'a');
  for (const std::string& bad :
       {std::string("tutti://"), std::string("tutti:///node/n1"), std::string("tutti://ab12/"),
        std::string("tutti://ab12/node/"), std::string("tutti://ab12/node/../n1"),
        std::string("tutti://ab12/node/.n1"), std::string("tutti://ab12/node/n1/n2"),
        std::string("TUTTI://ab12/node/n1"), std::string("tutti://ab12/node/n%31"),
        std::string("tutti://ab12/node/n1\0", 21), std::string("https://ab12/node/n1"), long_name})
    EXPECT_FALSE(parse_uri(bad).ok()) << bad;
}

TEST(Pki, NobodyIsSignedUnderANameThatIsNone) {
  const auto authority = make_authority("ab12", now);
  const PublicKey key = new_key();
  for (const Subject& subject :
       {Subject{.name = {.cluster = "ab12", .node = "../n1"}}, Subject{.name = {.cluster = "", .node = "n1"}},
        Subject{.name = {.cluster = "ab12", .role = Role::authority}},
        Subject{.name = {.cluster = "ab12", .node = "n1"}, .addresses = {"a b"}},
        Subject{.name = {.cluster = "ab12", .node = "n1"},
        .addresses = std::vector<std::string>(addresses_max + 1, "h")}})
    EXPECT_FALSE(sign(*authority, key, subject, {.now = now}).ok());
}

TEST(Pki, FingerprintsTellAuthoritiesApart) {
  const auto one = make_authority("ab12", now);
  const auto two = make_authority("ab12", now);
  EXPECT_TRUE(is_fingerprint(*fingerprint(one->certificate)));
  EXPECT_NE(*fingerprint(one->certificate), *fingerprint(two->certificate));
  EXPECT_FALSE(is_fingerprint("sha256:12"));
  EXPECT_FALSE(is_fingerprint("sha256:" + std::string(64, 'G')));
  const auto all = split_certificates("one\n" + one->certificate + "two\n" + two->certificate);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(*all, (std::vector{one->certificate, two->certificate}));
}

TEST(Pki, AnAuthorityIsReadAsItWasWritten) {
  const auto authority = make_authority("ab12", now);
  const auto other = make_authority("ab12", now);
  const auto read = read_authority(authority->key + authority->certificate);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->certificate, authority->certificate);
  EXPECT_EQ(read->key, authority->key);
  EXPECT_FALSE(read_authority(other->key + authority->certificate).ok());
  EXPECT_FALSE(read_authority(authority->certificate).ok());
  EXPECT_FALSE(read_authority("").ok());
  const PublicKey key = new_key();
  const std::string node_key = *make_key();
  const auto node = sign(*authority, *read_request(*make_request(node_key)),
                         {.name = {.cluster = "ab12", .node = "n1"}}, {.now = now});
  EXPECT_FALSE(read_authority(node_key + *node).ok());
}

TEST(Pki, WhoSharesASecretTrustsWhatItsOwnersSign) {
  const auto one = authority_of_secret("a secret of both", now);
  const auto other = authority_of_secret("a secret of both", now + 1h);
  const auto stranger = authority_of_secret("a secret of others", now);
  ASSERT_TRUE(one && other && stranger);
  const auto server = server_of_secret("a secret of both", "10.0.0.1", now + 1h);
  ASSERT_TRUE(server) << server.error().text();
  EXPECT_TRUE(check_signer(server->certificate, one->certificate));
  EXPECT_TRUE(check_signer(server->certificate, other->certificate));
  EXPECT_FALSE(check_signer(server->certificate, stranger->certificate));
  EXPECT_EQ(one->key, other->key);
  EXPECT_NE(server->key, one->key);
}

}  // namespace
}  // namespace tutti::pki
