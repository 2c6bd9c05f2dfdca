// A model that answers over HTTP: OpenAI's requests in, tokens out. It listens from the start, and answers
// 503 until its model is there.
//
//   loop (HTTP) ─▶ readers: read, template, tokens ─▶ loop ─▶ engine (its thread) ─▶ mailbox ─▶ loop
//                                                      │                       writers: what is large ─▶ loop
//                                                      └─▶ formers: its form, if it is new ─▶ loop
//
// Who asks for a form waits behind forms, and nobody else does. Addresses take turns.
// Every request is a Reply from its first byte to its last; whoever leaves takes his requests out of the
// engine. One thread runs it; start(), drain() and stop() from any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "serve/engine/engine.hpp"
#include "serve/load/load.hpp"
#include "serve/server/front.hpp"

namespace tutti::serve {

// One address has one less than there are. As many requests may wait for each of them as may be unfinished.
inline constexpr std::size_t reading_threads = 3;
inline constexpr std::size_t forming_threads = 2;
inline constexpr std::size_t writing_threads = 2;

struct ServerSettings : FrontSettings {
  BatchSettings batch;
};

class Server {
 public:
  // Refuses an address that others can reach without a key.
  static Result<std::unique_ptr<Server>> listen(const ServerSettings& settings);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // What it answers.
  static std::span<const Page> pages();
  std::uint16_t port() const;
  // The model is there: from now on it answers. Once.
  void start(Loaded loaded);
  // The first signal that asks the process to end drains, the second stops. Before run().
  void drain_when_asked();
  // That second signal, after run(); 0: there was none.
  int cut_short_by() const;

  // Until it is drained or stopped, or its model is lost for good and everybody has been told.
  void run();
  // What has ended it, if nobody asked for that; after run().
  std::optional<Error> problem() const;
  // Takes no more requests; run() returns when all are answered, or cancelled after drain_time_max.
  void drain();
  void stop();

  EngineCounts counts() const;

 private:
  class Core;
  explicit Server(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tutti::serve
