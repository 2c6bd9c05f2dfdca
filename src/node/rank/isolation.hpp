// What keeps a rank apart from those of others on its node, where its agent does not run all of them as
// itself. In the rank's specification, and so known to its shim. A value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "node/rank/account.hpp"
#include "node/rank/private_mounts.hpp"

namespace tutti::rank {

struct Isolation {
  Account account;
  std::optional<PrivatePlaces> places;  // nothing where this node cannot have them
  bool filters_devices = false;         // false where this node cannot do it
  std::vector<std::string> gpus;        // that it may open, as in CUDA_VISIBLE_DEVICES

  friend bool operator==(const Isolation&, const Isolation&) = default;
};

}  // namespace tutti::rank
