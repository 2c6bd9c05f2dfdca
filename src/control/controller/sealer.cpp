#include "control/controller/sealer.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "net/sync/digest.hpp"

namespace tutti::controller {
namespace {

constexpr std::string_view first_line = "tutti secrets 1";
constexpr std::size_t file_bytes_max = 64 << 10;
constexpr std::size_t nonce_bytes = 12;
constexpr std::size_t tag_bytes = 16;
constexpr std::size_t id_digits = 16;
// So that the id of a key is the hash of nothing else.
constexpr std::string_view id_words = "tutti secret key\n";

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string word_of(cluster::SecretId::Of of) {
  switch (of) {
    case cluster::SecretId::Of::person:
      return "person";
    case cluster::SecretId::Of::queue:
      return "queue";
    case cluster::SecretId::Of::service:
      return "service";
  }
  return "";
}

// Each word with its length: no two lists of words are the same bytes.
std::string bound_to(const std::string& cluster, const cluster::SecretId& id, const std::string& key) {
  std::string words = "tutti secret 1";
  for (const std::string& word : {cluster, word_of(id.of), id.owner, id.name, key})
    words += " " + std::to_string(word.size()) + ":" + word;
  return words;
}

// A digit of a text that to_hex() has written; nothing for any other.
std::optional<unsigned char> half_byte(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<unsigned char>(digit - '0');
  if (digit >= 'a' && digit <= 'f') return static_cast<unsigned char>(digit - 'a' + 10);
  return std::nullopt;
}

template <class Bytes>
bool read_hex(std::string_view text, Bytes& bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const auto high = half_byte(text[2 * at]);
    const auto low = half_byte(text[2 * at + 1]);
    if (!high || !low) return false;
    bytes[at] = static_cast<unsigned char>(*high << 4 | *low);
  }
  return true;
}

Error no_cipher() { return failed("the cipher of secrets does not work on this machine"); }

}  // namespace

Sealer::~Sealer() { forget(keys_); }

void Sealer::forget(std::vector<Key>& keys) {
  for (Key& key : keys) OPENSSL_cleanse(key.bytes.data(), key.bytes.size());
  keys.clear();
}

std::string Sealer::id_of(const Bytes& bytes) {
  std::string words(id_words);
  words.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string id = sync::hash_bytes(as_bytes(words)).substr(0, id_digits);
  OPENSSL_cleanse(words.data(), words.size());
  return id;
}

Result<std::vector<Sealer::Key>> Sealer::keys_in_file() const {
  auto text = files::read_file(file_, file_bytes_max);
  if (!text) return std::move(text).error().within("the keys of the secrets");
  std::vector<Key> keys;
  if (!*text) return keys;
  bool sound = true;
  bool is_first = true;
  for (const auto line : split(trim(**text), '\n')) {
    if (std::exchange(is_first, false)) {
      sound = line == first_line;
      continue;
    }
    const std::size_t space = std::min(line.find(' '), line.size());
    Key key{std::string(line.substr(0, space)), {}};
    sound = sound && space < line.size() && read_hex(line.substr(space + 1), key.bytes) &&
            id_of(key.bytes) == key.id && keys.size() < secret_keys_max;
    if (!sound) break;
    keys.push_back(key);
  }
  OPENSSL_cleanse((*text)->data(), (*text)->size());
  if (sound && !is_first) return keys;
  forget(keys);
  return failed("it does not hold the keys of secrets, or not as they were written")
      .within(file_)
      .remedy(
          "put it back from a copy of the folder; it is never written over. Where there is no copy and the "
          "controller has not ended since, move it away: the next secret that is set writes it again");
}

// Somebody may have removed the file or put an older copy in its place: what is known here may be the last
// copy of a key, and stays until it is not needed.
std::vector<Sealer::Key> Sealer::with_known(std::vector<Key> in_file) const {
  const std::lock_guard lock(mutex_);
  std::erase_if(in_file, [this](const Key& key) {
    return std::any_of(keys_.begin(), keys_.end(), [&](const Key& known) { return known.id == key.id; });
  });
  in_file.insert(in_file.end(), keys_.begin(), keys_.end());
  return in_file;
}

Result<std::vector<Sealer::Key>> Sealer::all_keys() const {
  auto keys = keys_in_file();
  if (!keys) return std::move(keys).error();
  return with_known(*std::move(keys));
}

Result<> Sealer::write(const std::vector<Key>& keys) {
  if (keys.size() > secret_keys_max)
    return failed("there would be " + std::to_string(keys.size()) + " keys in " + file_)
        .remedy("wait until what is sealed under the older ones has been sealed anew");
  std::string text = std::string(first_line) + "\n";
  for (const Key& key : keys)
    text += key.id + " " + to_hex({reinterpret_cast<const std::byte*>(key.bytes.data()), key.bytes.size()}) +
            "\n";
  auto written = files::replace_file(file_, text, {.mode = 0600, .durable = true});
  OPENSSL_cleanse(text.data(), text.size());
  if (!written) return written;
  const std::lock_guard lock(mutex_);
  forget(keys_);
  keys_ = keys;
  return {};
}

Result<> Sealer::read() {
  const std::lock_guard one_at_a_time(file_mutex_);
  auto keys = all_keys();
  if (!keys) return std::move(keys).error();
  const std::lock_guard lock(mutex_);
  std::swap(keys_, *keys);
  forget(*keys);
  return {};
}

Result<bool> Sealer::restore() {
  const std::lock_guard one_at_a_time(file_mutex_);
  auto keys = keys_in_file();
  if (!keys) return std::move(keys).error();
  const std::size_t before = keys->size();
  const std::vector<Key> all = with_known(*std::move(keys));
  if (all.size() == before) return false;
  if (auto written = write(all); !written) return std::move(written).error();
  return true;
}

// What is there by now stays, whoever has put it there.
Result<std::string> Sealer::make_one() {
  auto keys = all_keys();
  if (!keys) return std::move(keys).error();
  Key key;
  if (RAND_bytes(key.bytes.data(), static_cast<int>(key.bytes.size())) != 1)
    return failed("the system gives no random bytes");
  key.id = id_of(key.bytes);
  keys->push_back(key);
  if (auto written = write(*keys); !written) return std::move(written).error();
  return key.id;
}

Result<std::string> Sealer::make() {
  const std::lock_guard one_at_a_time(file_mutex_);
  {
    const std::lock_guard lock(mutex_);
    ++made_;
    ++unsettled_;
  }
  auto made = make_one();
  if (!made) settle();
  return made;
}

void Sealer::settle() {
  const std::lock_guard lock(mutex_);
  --unsettled_;
}

Result<std::string> Sealer::first() {
  const std::lock_guard one_at_a_time(file_mutex_);
  auto keys = all_keys();
  if (!keys) return std::move(keys).error();
  if (keys->empty()) return make_one();
  std::string newest = keys->back().id;
  const std::lock_guard lock(mutex_);
  std::swap(keys_, *keys);
  forget(*keys);
  return newest;
}

std::optional<std::uint64_t> Sealer::calm() const {
  const std::lock_guard lock(mutex_);
  return unsettled_ == 0 ? std::optional(made_) : std::nullopt;
}

Result<> Sealer::keep_only(const std::string& key, std::uint64_t since) {
  const std::lock_guard one_at_a_time(file_mutex_);
  if (calm() != since) return {};
  auto keys = all_keys();
  if (!keys) return std::move(keys).error();
  const std::size_t before = keys->size();
  std::erase_if(*keys, [&](const Key& one) { return one.id != key; });
  // Without the one that is to stay nothing goes.
  if (keys->empty() || keys->size() == before) return {};
  return write(*keys);
}

bool Sealer::has(const std::string& key) const { return find(key).has_value(); }

std::size_t Sealer::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_.size();
}

std::optional<Sealer::Bytes> Sealer::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const Key& one) { return one.id == key; });
  return found == keys_.end() ? std::nullopt : std::optional(found->bytes);
}

Error Sealer::lacks(const std::string& key) const {
  return failed("the key " + key + " of the secrets is not in " + file_)
      .remedy("put that file back from a copy of the folder");
}

// The nonce, what is sealed, the tag.
Result<std::string> Sealer::seal(const std::string& cluster, const cluster::SecretId& id,
                                 const std::string& key, std::string_view value) const {
  auto bytes = find(key);
  if (!bytes) return lacks(key);
  std::string sealed(nonce_bytes + value.size() + tag_bytes, '\0');
  if (RAND_bytes(bytes_of(sealed), nonce_bytes) != 1) return failed("the system gives no random bytes");
  const std::string bound = bound_to(cluster, id, key);
  const Context context(EVP_CIPHER_CTX_new());
  int count = 0;
  const bool done =
      context != nullptr &&
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes->data(), bytes_of(sealed)) == 1 &&
      EVP_EncryptUpdate(context.get(), nullptr, &count, bytes_of(bound), static_cast<int>(bound.size())) ==
          1 &&
      EVP_EncryptUpdate(context.get(), bytes_of(sealed) + nonce_bytes, &count, bytes_of(value),
                        static_cast<int>(value.size())) == 1 &&
      EVP_EncryptFinal_ex(context.get(), bytes_of(sealed) + nonce_bytes + value.size(), &count) == 1 &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, tag_bytes,
                          sealed.data() + nonce_bytes + value.size()) == 1;
  OPENSSL_cleanse(bytes->data(), bytes->size());
  if (!done) return no_cipher();
  return sealed;
}

Result<std::string> Sealer::open(const std::string& cluster, const cluster::Secret& secret) const {
  auto bytes = find(secret.key);
  if (!bytes) return lacks(secret.key);
  const Error damaged = failed("what is stored of it is damaged").remedy("set it again: `tutti secret set`");
  if (secret.sealed.size() < nonce_bytes + tag_bytes) return damaged;
  std::string tag = secret.sealed.substr(secret.sealed.size() - tag_bytes);
  const std::string_view body =
      std::string_view(secret.sealed).substr(nonce_bytes, secret.sealed.size() - nonce_bytes - tag_bytes);
  std::string value(body.size(), '\0');
  const std::string bound = bound_to(cluster, secret.id, secret.key);
  const Context context(EVP_CIPHER_CTX_new());
  int count = 0;
  const bool done = context != nullptr &&
                    EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes->data(),
                                       bytes_of(std::string_view(secret.sealed))) == 1 &&
                    EVP_DecryptUpdate(context.get(), nullptr, &count, bytes_of(bound),
                                      static_cast<int>(bound.size())) == 1 &&
                    EVP_DecryptUpdate(context.get(), bytes_of(value), &count, bytes_of(body),
                                      static_cast<int>(body.size())) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, tag_bytes, tag.data()) == 1 &&
                    EVP_DecryptFinal_ex(context.get(), bytes_of(value) + body.size(), &count) == 1;
  OPENSSL_cleanse(bytes->data(), bytes->size());
  if (done && static_cast<std::size_t>(secret.bytes) == value.size()) return value;
  OPENSSL_cleanse(value.data(), value.size());
  return damaged;
}

}  // namespace tutti::controller
