// What the HTTP of every engine has in common, whatever its model answers: where it listens, who may ask, how
// large a request may be, and how it drains. Its pages are those of the model. One thread runs its loop;
// drain() and what is said to be atomic aside, all of it is for that thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http/server.hpp"
#include "serve/server/pages.hpp"

namespace tutti::serve {

inline constexpr std::size_t bodies_bytes_max = std::size_t{256}
                                                << 20;  // of all requests that are not answered yet
inline constexpr int retry_after_seconds = 1;

// Who stands before an engine says with this for whom he asks, where he is believed
// (FrontSettings::names_askers).
inline constexpr const char* asker_header = "tutti-asker";
inline constexpr std::size_t asker_bytes_max = 128;

struct FrontSettings {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: the system picks one
  std::string key;         // empty: everybody on this machine may ask
  // Whether one that is not `key` may ask, too; null: none may. On the loop.
  std::function<bool(const std::string& key)> takes_key = nullptr;
  std::string tls_certificate;
  std::string tls_key;
  std::optional<net::ServerIdentity> identity = std::nullopt;  // in place of these files
  Duration drain_time_max = 30s;
  std::size_t connections_max = 2'048;  // half of them for one address
  Duration stalled_time = 60s;          // then a stream is cut whose reader takes nothing
  // All who ask are gateways of the cluster: the order is fair between those for whom they ask.
  bool names_askers = false;
};

// Whether only programs of this machine reach the address.
bool is_loopback(const std::string& address);

// Whether a page that a browser shows may have sent it from elsewhere: a Host that is no name of this
// machine's loopback (a name that somebody lets point there), or an Origin that is none.
bool is_of_another_page(const net::Request& head);

// Without so many files to open it does not begin: its loop and its port, its model, some connections.
inline constexpr std::size_t files_min = 24;
Result<> check_files();

// Why it does not answer now.
Error not_ready(bool draining);

class Front {
 public:
  // The pages outlive it. `headers` are those that the pages look at, in lower case.
  Front(const FrontSettings& settings, Pages& pages, std::vector<std::string> headers = {});
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // Refuses an address that others can reach without a key.
  Result<> listen();
  std::uint16_t port() const { return http_->port(); }
  net::Loop& loop() { return loop_; }

  // The first signal that asks the process to end drains, the second stops. Before the loop runs.
  void drain_when_asked();
  void drain();
  // The signal that has ended it before it was drained; 0: none has.
  int cut_short_by() const { return cut_short_by_; }
  bool is_draining() const { return is_draining_; }  // atomic
  // Between whom the order is fair: the address it comes from, or who is named. Any thread.
  std::string asker(const net::Request& request) const;
  // To be told after each answer.
  void stop_if_drained();

 private:
  bool may_ask(const std::string& key) const;
  net::Admission admit(const net::Request& head);
  void handle(std::shared_ptr<net::Exchange> exchange);

  const FrontSettings settings_;
  Pages& pages_;
  std::vector<std::string> headers_;
  net::Loop loop_;
  std::unique_ptr<net::Server> http_;
  std::shared_ptr<net::Loop::Handle> signals_;
  std::shared_ptr<net::Loop::Handle> drain_timer_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<int> cut_short_by_ = 0;
};

}  // namespace tutti::serve
