// Says that the disk of the store hangs, and answers for it: while one commit does not come back nobody else
// has a turn, and whoever asks would wait without a word. On the network loop, beside the core's thread.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "control/controller/watched_store.hpp"
#include "net/http/http.hpp"

namespace tutti::controller {

constexpr Duration watchdog_looks_every = 1s;
constexpr Duration disk_wait_told_after = 3s;         // in the log
constexpr Duration disk_wait_told_again_after = 30s;  // and once more, if it goes on
constexpr Duration request_waits_max = 5s;            // for a disk that hangs
constexpr int disk_retry_seconds = 5;

class Watchdog {
 public:
  // Has it run on the network loop, later.
  using Post = std::function<void(std::function<void()> task)>;

  // `path` is the store's.
  Watchdog(const WatchedStore& store, std::string path, WatchedStore::Clock clock, Post post);

  // The same exchange, which is answered with a refusal if the disk keeps it waiting: an answer that comes
  // later is dropped.
  std::shared_ptr<net::Exchange> watch(std::shared_ptr<net::Exchange> exchange);

  // From time to time. What is to be logged; "": nothing.
  std::string look();

 private:
  class Watched;
  struct Asked {
    std::weak_ptr<Watched> exchange;
    Instant at;
  };

  std::string text(Instant now, Instant since) const;
  void refuse_those_who_wait(Instant now, const std::string& why);

  const WatchedStore& store_;
  std::string path_;
  WatchedStore::Clock clock_;
  Post post_;
  std::list<Asked> asked_;  // in the order of time; as many as there are connections
  Instant told_of_;         // the wait that was logged last, by its beginning; zero: none goes on
  bool told_again_ = false;
};

}  // namespace tutti::controller
