// Those who answer: what each of them serves, whether it can be asked now, and who of them is asked next.
// Each is looked at all the time; who fails in between is left alone for a while (gate/balance). They come
// and go: who is removed finishes what he has. Some are the replicas of a service, of one of its versions.
// Used by the gateway's loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "gate/balance/balance.hpp"
#include "gate/balance/draw.hpp"
#include "net/http/caller.hpp"
#include "net/http/loop.hpp"

namespace tutti::gate {

inline constexpr std::size_t backends_max = 16'384;
inline constexpr std::size_t models_max = 4'096;         // of one of them
inline constexpr std::size_t models_known_max = 65'536;  // of all at any time, of model_bytes_max each

// How they are looked at.
struct Looking {
  Duration every = 2s;
  Duration again_after = 500ms;  // at one that cannot be asked
  // Whoever answers no such question in that time does not go on with anything else, either, unless it is
  // seen that he does.
  Duration time_max = 5s;
};

struct BackendSettings {
  net::Target target;
  std::string key;
  std::string service = {};  // whose replica it is; "": nobody's
  std::int64_t version = 0;  // of that service
};

// Which versions of a service there are, and who is asked.
struct ServiceVersions {
  std::int64_t serving = 0;
  std::int64_t next = 0;          // 0: there is none
  std::int32_t canary_share = 0;  // of the requests are the next version's; 0: both are asked alike

  friend bool operator==(const ServiceVersions&, const ServiceVersions&) = default;
};

// What is asked for.
enum class Protocol { openai, inference };

struct Wanted {
  Protocol protocol = Protocol::openai;
  std::string model;
  std::int64_t version = 0;      // of the service, if it has that name; 0: any
  bool is_only_version = false;  // what another one says is no answer
};

// What a version of a service has to do, as far as it is this gateway's.
struct ServiceLoad {
  std::size_t running = 0;
  std::size_t waiting = 0;  // in the queues of its replicas
  std::size_t replicas = 0;
  double cache_used = 0;  // on average
};

// One of them, as people see it.
struct BackendView {
  std::string name;
  bool is_ready = false;
  std::string problem;  // of one that is not
  std::set<std::string> models;
  std::size_t requests = 0;
  std::int64_t outstanding_tokens = 0;
  std::uint64_t failures = 0;
};

class Backends {
 public:
  using Turned = std::function<void(const BackendView&)>;

  // `changed` runs when somebody can be asked who could not be before, `gone` again and again while one who
  // has requests answers no looks, once that has lasted for Looking::time_max.
  Backends(net::Loop& loop, const Looking& looking, std::size_t requests_max, std::function<void()> changed,
           std::function<void(BackendId)> gone);
  ~Backends();
  Backends(const Backends&) = delete;
  Backends& operator=(const Backends&) = delete;

  Result<BackendId> add(const BackendSettings& settings);
  // Nobody asks him any more; he is gone when he has answered what he was asked.
  void remove(BackendId backend);
  // From now on they are looked at; `turned` hears of each that can be asked, or cannot be any more.
  void begin(Turned turned);

  // All services that there are. Who asks for one waits while it has no replica.
  void set_services(const std::map<std::string, ServiceVersions>& services);
  // Of each service, and each version of it that has replicas here.
  std::map<std::pair<std::string, std::int64_t>, ServiceLoad> loads() const;
  // The service that is asked for with this name, and its version for those that have no replica; "": none.
  std::pair<std::string, std::int64_t> service_of(const std::string& model) const;
  bool has_replica(const std::string& service) const;

  // All models that are served now, by whom it may be.
  std::map<std::string, std::string> models() const;  // and the JSON that tells of each
  // Whether one of that name is, or was, served here; of "", whether it is plain which one is meant.
  bool knows(Protocol protocol, const std::string& model) const;
  bool is_any_ready() const;
  // Before that nobody can tell whether something is served here.
  bool is_settled() const { return has_services_ || is_any_ready(); }
  std::vector<BackendView> views() const;

  // Of a service with a canary: the version that the next request is for; 0: any.
  std::int64_t draw(const std::string& model);
  // Whether somebody of that version is there, or may come.
  bool may_come(const Wanted& wanted) const;
  // Who is to be asked, and has the request until done(). Nobody can be now, but for those in `but`.
  struct Turn {
    BackendId backend;
    std::int64_t weight = 0;
    std::string service = {};
    std::int64_t version = 0;
  };
  std::optional<Turn> choose(const Wanted& wanted, const Burden& burden, const std::set<BackendId>& but);
  void done(const Turn& turn);
  std::unique_ptr<net::Call> call(BackendId backend, net::Outgoing outgoing, net::CallListener listener);
  // He could not be reached, or broke off.
  void failed(BackendId backend, const std::string& problem);
  void worked(BackendId backend);
  const Looking& looking() const { return looking_; }
  // It was removed: what becomes of it says nothing about others.
  bool is_leaving(BackendId backend) const;

 private:
  struct Backend {
    std::string name;
    std::string key;
    std::string service;
    std::int64_t version = 0;
    std::unique_ptr<net::Caller> caller;
    bool is_seen = false;  // it was looked at
    bool is_ready = false;
    bool is_leaving = false;
    Instant looked_at;                    // when the last look began
    std::optional<Instant> silent_since;  // when the first of the looks began that have failed in a row
    std::string problem = "it was not looked at yet";
    Protocol protocol = Protocol::openai;
    std::map<std::string, std::string> models;  // with what it says of each
    std::uint64_t failures = 0;
    // Of a replica, as it has said last, whoever asked for it:
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    double cache_used = 0;
    std::unique_ptr<net::Call> look;
    std::shared_ptr<net::Loop::Handle> next_look;
  };
  struct Service {
    ServiceVersions versions;
    Draw draw;
    std::optional<Protocol> protocol;  // that its replicas speak, once one was seen
  };
  struct Seen {
    int status = 0;
    std::string body;
  };

  // Who can be asked for it; kept until something changes.
  const std::vector<BackendId>& serving(Protocol protocol, const std::string& model, std::int64_t version);
  bool serves(const Backend& backend, Protocol protocol, const std::string& model,
              const std::string& service) const;
  bool has_plain(Protocol protocol) const;
  // Whose model it is; "": no service's.
  std::string owner_of(const std::string& model) const;
  void look(BackendId id);
  void ask(BackendId id, const std::string& path, std::function<void(const Seen&)> seen);
  void look_at(BackendId id, Protocol protocol);
  void look_at_load(BackendId id);
  void seen(BackendId id, Protocol protocol, int status, const std::string& body);
  void seen_load(BackendId id, int status, const std::string& body);
  void keep_models(Backend& backend, std::map<std::string, std::string> models);
  void set_ready(BackendId id, bool is_ready, const std::string& problem);
  BackendView view_of(BackendId id) const;
  void look_later(BackendId id);
  void tell_of_room();
  void sweep_later();
  void sweep();

  net::Loop& loop_;
  const Looking looking_;
  const std::function<void()> changed_;
  const std::function<void(BackendId)> gone_;
  Turned turned_;
  bool is_begun_ = false;
  Balance balance_;
  std::map<BackendId, Backend> backends_;
  std::uint64_t last_id_ = 0;
  std::map<std::string, Service> services_;
  bool has_services_ = false;                  // it was told which there are
  std::map<std::string, std::string> owners_;  // of models that have not the name of their service
  std::set<std::string> models_known_;         // served by anybody else at any time
  std::map<std::tuple<Protocol, std::string, std::int64_t>, std::vector<BackendId>> serving_;
  std::shared_ptr<net::Loop::Handle> rested_;
  std::shared_ptr<net::Loop::Handle> room_;
  std::shared_ptr<net::Loop::Handle> sweeping_;
};

Instant steady_instant();

}  // namespace tutti::gate
