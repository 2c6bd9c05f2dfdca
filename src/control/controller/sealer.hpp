// Seals the values of secrets, and opens them: AES-256-GCM under a key of the cluster, with a random nonce
// for each, bound to the cluster and to whose secret it is, so that none stands in the place of another. The
// keys are in a file of the controller's folder and nowhere else: the store has what is sealed. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/secrets.hpp"

namespace tutti::controller {

constexpr std::size_t secret_keys_max = 64;

class Sealer {
 public:
  explicit Sealer(const std::string& folder) : file_(folder + "/secrets.key") {}
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  const std::string& file() const { return file_; }

  // ---- the keys; each of these may wait for the disk
  // Those of the file are known as well from now on; one that is not there has none.
  Result<> read();
  // What is known and is not in the file is written to it again; true if there was any.
  Result<bool> restore();
  // One more, which is on the disk when this returns. settle() says that it is stored whether it is in use.
  Result<std::string> make();
  void settle();
  // The one that was made last, of those that are known; where there is none, one is made.
  Result<std::string> first();
  // Nothing while somebody makes one; else a number that changes when somebody does.
  std::optional<std::uint64_t> calm() const;
  // All but this one are removed from the file. Not if one was made since it was as calm as that.
  Result<> keep_only(const std::string& key, std::uint64_t since);

  // ---- without the disk
  bool has(const std::string& key) const;
  std::size_t keys() const;
  Result<std::string> seal(const std::string& cluster, const cluster::SecretId& id, const std::string& key,
                           std::string_view value) const;
  Result<std::string> open(const std::string& cluster, const cluster::Secret& secret) const;
  // That this key is not here.
  Error lacks(const std::string& key) const;

 private:
  static constexpr std::size_t key_bytes = 32;
  using Bytes = std::array<unsigned char, key_bytes>;
  struct Key {
    std::string id;  // follows from its bytes: a wrong one is none of that id
    Bytes bytes{};
  };

  Result<std::vector<Key>> keys_in_file() const;
  std::vector<Key> with_known(std::vector<Key> in_file) const;
  Result<std::vector<Key>> all_keys() const;
  Result<> write(const std::vector<Key>& keys);
  Result<std::string> make_one();
  std::optional<Bytes> find(const std::string& key) const;
  static std::string id_of(const Bytes& bytes);
  static void forget(std::vector<Key>& keys);

  const std::string file_;
  // Of the file: who changes it has read it before.
  std::mutex file_mutex_;
  mutable std::mutex mutex_;
  std::vector<Key> keys_;  // in the order in which they were made
  std::uint64_t made_ = 0;
  int unsettled_ = 0;
};

}  // namespace tutti::controller
