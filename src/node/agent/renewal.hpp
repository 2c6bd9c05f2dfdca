// Keeps a node's certificate good: gets a new one in time, and tries again until that has worked. On the
// agent's loop; the work has a thread of its own.
#pragma once

#include <memory>
#include <string>

#include "base/time.hpp"
#include "net/http/client.hpp"
#include "net/http/loop.hpp"
#include "node/agent/lane.hpp"

namespace tutti::agent {

class Renewal {
 public:
  // Where the controller is spoken to without a certificate there is nothing to do.
  Renewal(net::Target controller, std::string folder, net::Loop& loop)
      : controller_(std::move(controller)), folder_(std::move(folder)), loop_(loop), lane_(loop, 1) {}

  void start();
  // The controller wants it, of all nodes at once: each within a small part of its certificate's life.
  void renew_soon();

 private:
  void look();
  void wait(Duration time);

  const net::Target controller_;
  const std::string folder_;
  net::Loop& loop_;
  Lane lane_;
  std::shared_ptr<net::Loop::Handle> timer_;
  // Of the controller, before it is due.
  enum class Wish { none, asked, its_turn } wish_ = Wish::none;
};

}  // namespace tutti::agent
