#include "net/sync/digest.hpp"

#include <fcntl.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"

namespace tutti::sync {
namespace {

constexpr std::size_t digest_bytes = 32;
constexpr std::size_t buffer_bytes = 64 << 10;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    TUTTI_CHECK(context_ != nullptr);
    TUTTI_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void add(std::span<const std::byte> bytes) {
    TUTTI_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }

  std::string finish() {
    std::array<unsigned char, digest_bytes> digest;
    TUTTI_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    return to_hex(std::as_bytes(std::span(digest)));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, FreeContext> context_;
};

bool is_hash_digit(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
}

}  // namespace

bool is_hash(std::string_view text) {
  return text.size() == 2 * digest_bytes && std::all_of(text.begin(), text.end(), is_hash_digit);
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

Result<std::string> hash_descriptor(int file, const std::string& path, Bytes bytes_max) {
  Sha256 hash;
  std::array<std::byte, buffer_bytes> buffer;
  for (auto left = static_cast<std::size_t>(bytes_max.count()); left > 0;) {
    const auto count =
        files::read_some(file, std::span(buffer).first(std::min(left, buffer.size())), files::shown(path));
    if (!count) return count.error();
    if (*count == 0) break;
    hash.add(std::span(buffer).first(*count));
    left -= *count;
  }
  return hash.finish();
}

Result<std::string> hash_file(const std::string& path) {
  const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return failed_errno("cannot read " + files::shown(path), errno);
  return hash_descriptor(file.get(), path);
}

}  // namespace tutti::sync
