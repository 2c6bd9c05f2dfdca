// Looks now and again what devices the node has, on a thread of its own: a driver in trouble may take minutes
// to answer. What it finds is told on the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "control/cluster/model.hpp"
#include "net/http/loop.hpp"

namespace tutti::agent {

struct DevicePace {
  Duration every = 60s;
  Duration again = 5s;  // at the earliest, also if ranks fail one after another
};

class DeviceWatch {
 public:
  using Look = std::function<std::vector<cluster::Device>()>;
  using Found = std::function<void(const std::vector<cluster::Device>&)>;

  // Without a `look` nothing ever happens.
  DeviceWatch(net::Loop& loop, Look look, Found found, DevicePace pace = DevicePace());
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;
  // Does not wait for a driver that does not answer.
  ~DeviceWatch();

  // Something went wrong that a device may have caused.
  void look_soon();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);
  static std::optional<std::vector<cluster::Device>> looked(const Look& look);

  std::shared_ptr<Shared> shared_;
};

}  // namespace tutti::agent
