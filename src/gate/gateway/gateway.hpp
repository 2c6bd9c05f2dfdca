// Many engines behind one address: each request goes to whoever can begin with it soonest, and to another one
// where he cannot be reached, is full or dies. It keeps nothing, so that several can stand side by side.
//
//   loop (HTTP) ─▶ ask: which model ─▶ backends: who ─▶ passage ══▶ an engine
//        ▲                                  │ dies, full          ║
//        └────── story: whole events ◀──────┴─▶ another one ◀═════╝
//
// Its backends are named, or are the replicas of a cluster's services, as its controller says them (follow).
// One thread runs it; drain() and stop() from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "gate/gateway/backends.hpp"
#include "gate/gateway/follow.hpp"
#include "serve/server/front.hpp"

namespace tutti::gate {

struct GatewaySettings : serve::FrontSettings {
  std::vector<BackendSettings> backends;
  std::optional<ControllerSettings> controller;  // whose services are backends, too
  std::string keys_file;  // of those who may ask beside `key`, each within its limits; "": there are none
  Duration look_at_keys_every = 1s;
  Looking looking;
  Duration wait_time_max = 60s;       // that a request waits until somebody can be asked
  std::size_t requests_max = 10'000;  // that are not answered yet
  std::size_t backend_requests_max = requests_per_backend_max;  // that one backend has at once
};

class Gateway {
 public:
  // Refuses an address that others can reach without a key.
  static Result<std::unique_ptr<Gateway>> listen(const GatewaySettings& settings);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // What it answers.
  static std::span<const serve::Page> pages();
  std::uint16_t port() const;
  // Hears on the loop of each backend that can be asked, or cannot be any more. Before run().
  void when_turned(Backends::Turned turned);
  // Hears on the loop what is wrong with the controller or with the file of keys. Before run().
  void when_wrong(Follow::Say say);
  // The first signal that asks the process to end drains, the second stops. Before run().
  void drain_when_asked();
  // That second signal, after run(); 0: there was none.
  int cut_short_by() const;

  void run();
  void drain();
  void stop();

 private:
  class Core;
  explicit Gateway(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tutti::gate
