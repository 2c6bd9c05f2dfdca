// What the controller says of its services becomes who is asked, and what becomes of their requests is told
// to the controller. While it is away, for however long, what is known holds. Used by the gateway's loop
// only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/result.hpp"
#include "base/time.hpp"
#include "gate/gateway/backends.hpp"
#include "gate/route/route.hpp"
#include "gate/route/tallies.hpp"
#include "net/http/caller.hpp"
#include "net/http/loop.hpp"

namespace tutti::gate {

struct ControllerSettings {
  net::Target target;
  std::string token;
  Duration ask_every = 500ms;
  Duration hurried_every = 100ms;  // both, while somebody waits for a replica
  Duration tell_every = 1s;
  Duration time_max = 5s;  // for an answer
};

class Follow {
 public:
  // How many requests wait for each service.
  using Waiting = std::function<std::map<std::string, std::size_t>()>;
  // Hears whether the controller answers, when that changes, and what is wrong with what it says.
  using Say = std::function<void(const std::string& words)>;

  Follow(net::Loop& loop, const ControllerSettings& settings, Backends& backends, Tallies& tallies,
         Waiting waiting);
  Follow(const Follow&) = delete;
  Follow& operator=(const Follow&) = delete;

  // Reads the files of the target.
  Result<> open();
  // From now on it asks and tells, as one that clients reach at this URL.
  void begin(const std::string& url, Say say);
  // Somebody waits for a service that has no replica: the controller hears of it now.
  void hurry();

 private:
  // One request at a time, of each kind.
  struct Asking {
    std::unique_ptr<net::Call> call;
    std::shared_ptr<net::Loop::Handle> next;
    Instant begun_at;
    int status = 0;
    std::string body;
  };
  void send(Asking& asking, net::Outgoing outgoing, std::function<void(const Result<>&)> over);
  void hurry(Asking& asking, void (Follow::*again)());
  void ask();
  void asked(const Result<>& over);
  void take(const RouteList& routes);
  void take_replicas(const std::vector<RouteService>& services);
  std::optional<BackendId> add(const RouteService& service, const RouteReplica& replica);
  void tell();
  std::vector<Told> words() const;
  void told();
  void note(const std::string& problem);

  net::Loop& loop_;
  const ControllerSettings settings_;
  Backends& backends_;
  Tallies& tallies_;
  const Waiting waiting_;
  Say say_;
  std::string id_;
  std::string url_;
  std::unique_ptr<net::Caller> caller_;
  Asking asking_;
  Asking telling_;
  bool is_hurried_ = false;  // while a word is under way
  std::string revision_;
  std::string problem_;  // as it was said last; "": there is none
  std::map<std::tuple<std::string, std::string, RouteReplica>, BackendId>
      replicas_;  // by service and its key
};

}  // namespace tutti::gate
