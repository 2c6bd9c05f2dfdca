#include "control/controller/random_text.hpp"

#include <openssl/rand.h>

#include <vector>

#include "base/bytes.hpp"

namespace tutti::controller {

Result<std::string> random_hex(std::size_t bytes) {
  std::vector<std::byte> random(bytes);
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(random.size())) != 1)
    return failed("the system gives no random bytes");
  return to_hex(random);
}

}  // namespace tutti::controller
