// Those who answer: what each of them serves, whether it can be asked now, and who of them is asked next.
// Each is looked at all the time; who fails in between is left alone for a while (gate/balance). Used by the
// gateway's loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "gate/balance/balance.hpp"
#include "net/http/caller.hpp"
#include "net/http/loop.hpp"

namespace tutti::gate {

inline constexpr std::size_t backends_max = 4'096;
inline constexpr std::size_t models_max = 4'096;         // of one of them
inline constexpr std::size_t models_known_max = 65'536;  // of all at any time

// How they are looked at.
struct Looking {
  Duration every = 2s;
  Duration again_after = 500ms;  // at one that cannot be asked
  // Whoever answers no such question in that time does not go on with anything else, either.
  Duration time_max = 5s;
};

struct BackendSettings {
  net::Target target;
  std::string key;
};

// What is asked for.
enum class Protocol { openai, inference };

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

  // `changed` runs when somebody can be asked who could not be before, `gone` when one could be and cannot.
  Backends(net::Loop& loop, const Looking& looking, std::function<void()> changed,
           std::function<void(BackendId)> gone);
  ~Backends();
  Backends(const Backends&) = delete;
  Backends& operator=(const Backends&) = delete;

  Result<> add(const BackendSettings& settings);
  // From now on they are looked at; `turned` hears of each that can be asked, or cannot be any more.
  void begin(Turned turned);

  // All models that are served now, by whom it may be.
  std::map<std::string, std::string> models() const;  // and the JSON that tells of each
  // Whether one of that name is, or was, served here; of "", whether it is plain which one is meant.
  bool knows(Protocol protocol, const std::string& model) const;
  bool is_any_ready() const;
  std::vector<BackendView> views() const;

  // Who is to be asked, and has the request until done(). Nobody can be now, but for those in `but`.
  struct Turn {
    BackendId backend;
    std::int64_t weight = 0;
  };
  std::optional<Turn> choose(Protocol protocol, const std::string& model, const Burden& burden,
                             const std::set<BackendId>& but);
  void done(const Turn& turn);
  std::unique_ptr<net::Call> call(BackendId backend, net::Outgoing outgoing, net::CallListener listener);
  // He could not be reached, or broke off.
  void failed(BackendId backend, const std::string& problem);
  void worked(BackendId backend);
  std::string name(BackendId backend) const;

 private:
  struct Backend {
    std::string name;
    std::string key;
    std::unique_ptr<net::Caller> caller;
    bool is_seen = false;  // it was looked at
    bool is_ready = false;
    std::string problem = "it was not looked at yet";
    Protocol protocol = Protocol::openai;
    std::map<std::string, std::string> models;  // with what it says of each
    std::uint64_t failures = 0;
    std::unique_ptr<net::Call> look;
    std::shared_ptr<net::Loop::Handle> next_look;
  };
  // Who can be asked for it; kept until something changes.
  const std::vector<BackendId>& serving(Protocol protocol, const std::string& model);
  static bool serves(const Backend& backend, Protocol protocol, const std::string& model);
  void look(BackendId id);
  void look_at(BackendId id, Protocol protocol);
  void seen(BackendId id, Protocol protocol, int status, const std::string& body);
  void set_ready(BackendId id, bool is_ready, const std::string& problem);
  BackendView view_of(BackendId id) const;
  void look_later(BackendId id);

  net::Loop& loop_;
  const Looking looking_;
  const std::function<void()> changed_;
  const std::function<void(BackendId)> gone_;
  Turned turned_;
  Balance balance_;
  std::map<BackendId, Backend> backends_;
  std::set<std::string> models_known_;  // served by anybody at any time
  std::map<std::pair<Protocol, std::string>, std::vector<BackendId>> serving_;
  std::shared_ptr<net::Loop::Handle> rested_;
};

Instant steady_instant();

}  // namespace tutti::gate
