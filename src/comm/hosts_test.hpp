// Hosts for tests: network namespaces that the test makes itself, joined by a bridge.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace tutti::comm {

class Hosts {
 public:
  // ok() is false where the test may not make namespaces.
  explicit Hosts(int count) : count_(count), prefix_("tutti" + std::to_string(getpid()) + "-") {
    ok_ = geteuid() == 0 && run("ip netns add " + prefix_ + "switch") &&
          run("ip -n " + prefix_ + "switch link add bridge type bridge") &&
          run("ip -n " + prefix_ + "switch link set bridge up");
    for (int host = 0; host < count && ok_; ++host) ok_ = add(host);
  }
  ~Hosts() {
    for (int host = 0; host < count_; ++host) run("ip netns del " + name(host));
    run("ip netns del " + prefix_ + "switch");
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  bool ok() const { return ok_; }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }

  // Moves this process to the host.
  bool enter(int host) const {
    const int descriptor = open(("/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = descriptor >= 0 && setns(descriptor, CLONE_NEWNET) == 0;
    if (descriptor >= 0) close(descriptor);
    return entered;
  }

  // Pulls its cable.
  bool cut(int host) const { return run("ip -n " + name(host) + " link set eth0 down"); }

 private:
  std::string name(int host) const { return prefix_ + std::to_string(host); }

  bool add(int host) const {
    const std::string port = "port" + std::to_string(host);
    return run("ip netns add " + name(host)) && run("ip -n " + name(host) + " link set lo up") &&
           run("ip -n " + prefix_ + "switch link add " + port + " type veth peer name eth0 netns " +
               name(host)) &&
           run("ip -n " + prefix_ + "switch link set " + port + " master bridge up") &&
           run("ip -n " + name(host) + " addr add " + address(host) + "/24 dev eth0") &&
           run("ip -n " + name(host) + " link set eth0 up");
  }

  static bool run(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

  int count_;
  std::string prefix_;
  bool ok_ = false;
};

}  // namespace tutti::comm
