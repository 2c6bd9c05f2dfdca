// bench/services: what a gateway adds to an answer and how many requests it passes on with one core, in front
// of engines that only pretend; how soon streams go on when one of the engines is killed, and what it adds
// when a service wakes.
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "common/measure.hpp"
#include "common/options.hpp"
#include "common/report.hpp"
#include "gate/gateway/gateway.hpp"
#include "net/http/caller.hpp"
#include "net/http/client.hpp"
#include "net/http/server.hpp"

namespace tutti::bench {
namespace {

constexpr int streams = 256;
constexpr int events_of_a_stream = 64;
constexpr Duration event_every = 20ms;
constexpr Duration measured_for = 8s;
constexpr int killed_streams = 64;
constexpr int wakes = 10;

double now_ms() { return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count(); }

// A loop on a thread of its own.
class Runner {
 public:
  Runner() : thread_([this] { loop.run(); }) {}
  ~Runner() { stop(); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  void stop() {
    loop.stop();
    if (thread_.joinable()) thread_.join();
  }
  // On the loop, and back when it is done.
  template <class Task>
  auto on_loop(const Task& task) {
    std::promise<decltype(task())> done;
    loop.post([&] {
      if constexpr (std::is_void_v<decltype(task())>) {
        task();
        done.set_value();
      } else {
        done.set_value(task());
      }
    });
    return done.get_future().get();
  }
  net::Loop loop;

 private:
  std::thread thread_;
};

// Pretends to be an engine of tutti: a stream has an event every so often, which says when it was made; one
// that is resumed goes on behind its tokens.
class Engine {
 public:
  explicit Engine(Duration every) : every_(every) {
    auto listening =
        net::Server::listen(runner_.loop, {}, [this](const auto& exchange) { handle(exchange); });
    if (listening) server_ = std::move(*listening);
  }
  ~Engine() { kill(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::uint16_t port() const { return server_ ? server_->port() : 0; }
  // All its connections break off at once.
  void kill() {
    if (!server_) return;
    runner_.on_loop([this] {
      for (const auto& [number, told] : telling_) told->stream->cut();
      telling_.clear();
    });
    runner_.stop();
    server_.reset();
  }

 private:
  struct Telling {
    std::shared_ptr<net::Stream> stream;
    std::shared_ptr<net::Loop::Handle> timer;
    int next = 0;
  };

  void handle(const std::shared_ptr<net::Exchange>& exchange) {
    const net::Request& request = exchange->request();
    if (request.method == "GET")
      return exchange->answer({.body = R"({"object":"list","data":[{"id":"m","object":"model"}]})"});
    if (request.body.find("\"stream\":true") == std::string::npos)
      return exchange->answer({.body = R"({"id":"cmpl-1","choices":[{"text":"x"}]})"});
    const std::uint64_t number = ++last_;
    auto told = std::make_shared<Telling>();
    if (const auto tokens = request.body.find("\"tokens\":["); tokens != std::string::npos) {
      const auto end = request.body.find(']', tokens);
      const bool is_empty = request.body[tokens + 10] == ']';
      told->next = is_empty
                       ? 0
                       : 1 + static_cast<int>(std::count(request.body.begin() + static_cast<long>(tokens),
                                                         request.body.begin() + static_cast<long>(end), ','));
    }
    told->stream = exchange->stream([this, number] { telling_.erase(number); });
    telling_[number] = told;
    if (every_ == Duration::zero()) {
      while (told->next < events_of_a_stream) say(*told);
      return end(number);
    }
    told->timer = runner_.loop.every(every_, [this, number] {
      const auto found = telling_.find(number);
      if (found == telling_.end()) return;
      say(*found->second);
      if (found->second->next >= events_of_a_stream) end(number);
    });
  }
  static void say(Telling& told) {
    told.stream->write(": tutti " + std::to_string(told.next) +
                       "\ndata: {\"id\":\"cmpl-1\",\"created\":1,\"choices\":[{\"index\":0,\"text\":\"" +
                       std::to_string(now_ms()) + "\",\"finish_reason\":null}]}\n\n");
    ++told.next;
  }
  void end(std::uint64_t number) {
    const auto told = telling_.at(number);
    told->timer.reset();
    told->stream->write("data: [DONE]\n\n");
    told->stream->close();
  }

  const Duration every_;
  Runner runner_;
  std::unique_ptr<net::Server> server_;
  std::map<std::uint64_t, std::shared_ptr<Telling>> telling_;  // the loop's
  std::uint64_t last_ = 0;
};

// Pretends to be a controller with one service, which has a replica from when somebody waits for it.
class Controller {
 public:
  explicit Controller(std::uint16_t replica) : replica_(replica) {
    auto listening =
        net::Server::listen(runner_.loop, {}, [this](const auto& exchange) { handle(exchange); });
    if (listening) server_ = std::move(*listening);
  }
  ~Controller() {
    runner_.stop();
    server_.reset();
  }
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;
  std::uint16_t port() const { return server_ ? server_->port() : 0; }

 private:
  void handle(const std::shared_ptr<net::Exchange>& exchange) {
    const net::Request& request = exchange->request();
    if (request.method == "POST") {
      const auto waiting = request.body.find("\"waiting\":");
      is_awake_ = is_awake_ || (waiting != std::string::npos && request.body[waiting + 10] != '0');
      return exchange->answer({.body = "{}"});
    }
    const std::string replica =
        R"({"job":"1","attempt":0,"version":1,"url":"http://127.0.0.1:)" + std::to_string(replica_) + "\"}";
    exchange->answer({.body = std::string(R"({"revision":")") + (is_awake_ ? "awake" : "asleep") +
                              R"(","services":[{"name":"m","version":1,"replicas":[)" +
                              (is_awake_ ? replica : "") + "]}]}"});
  }

  const std::uint16_t replica_;
  bool is_awake_ = false;  // the loop's
  Runner runner_;
  std::unique_ptr<net::Server> server_;
};

// Asks again and again, so many at once.
class Crowd {
 public:
  struct Heard {
    std::uint64_t answers = 0;
    std::uint64_t events = 0;
    std::uint64_t failures = 0;
    std::vector<double> late_ms;        // of each event, since it was made
    std::vector<double> last_event_ms;  // of each place in the crowd
  };

  Crowd(std::uint16_t port, int places, bool streams) : streams_(streams) {
    heard_.last_event_ms.resize(static_cast<std::size_t>(places), 0);
    calls_.resize(static_cast<std::size_t>(places));
    runner_.on_loop([&] {
      auto made = net::Caller::make(runner_.loop, {.host = "127.0.0.1", .port = port, .who = "server"});
      caller_ = std::move(*made);
      for (std::size_t place = 0; place < calls_.size(); ++place) ask(place);
    });
  }
  ~Crowd() {
    runner_.on_loop([this] {
      is_over_ = true;
      calls_.clear();
      caller_.reset();
    });
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  Heard take() {
    return runner_.on_loop([this] {
      Heard taken = heard_;
      heard_.answers = heard_.events = heard_.failures = 0;
      heard_.late_ms.clear();
      return taken;
    });
  }

 private:
  void ask(std::size_t place) {
    if (is_over_) return;
    calls_[place] = caller_->call(
        {.path = "/v1/completions",
         .body = net::make_text(streams_ ? R"({"model":"m","prompt":"x","stream":true})"
                                         : R"({"model":"m","prompt":"x"})")},
        {.on_head = [this](const net::AnswerHead& head) { heard_.failures += head.status == 200 ? 0U : 1U; },
         .on_piece = [this, place](const std::string& piece) { hear(place, piece); },
         .over =
             [this, place](const Result<>& over) {
               ++(over ? heard_.answers : heard_.failures);
               runner_.loop.post([this, place] { ask(place); });
             }});
  }
  void hear(std::size_t place, const std::string& piece) {
    constexpr std::string_view mark = "\"text\":\"";
    const double now = now_ms();
    for (auto at = piece.find(mark); at != std::string::npos; at = piece.find(mark, at + 1)) {
      double made = 0;
      const char* const begin = piece.data() + at + mark.size();
      std::from_chars(begin, piece.data() + piece.size(), made);
      ++heard_.events;
      heard_.late_ms.push_back(now - made);
      heard_.last_event_ms[place] = now;
    }
  }

  const bool streams_;
  Runner runner_;
  std::unique_ptr<net::Caller> caller_;
  std::vector<std::unique_ptr<net::Call>> calls_;
  Heard heard_;
  bool is_over_ = false;
};

// A gateway on a thread of its own, and what that has used of a core.
class Before {
 public:
  static Result<std::unique_ptr<Before>> begin(const std::vector<std::uint16_t>& engines) {
    gate::GatewaySettings settings;
    for (const std::uint16_t port : engines)
      settings.backends.push_back({{.host = "127.0.0.1", .port = port, .who = "backend"}, ""});
    auto gateway = gate::Gateway::listen(settings);
    if (!gateway) return std::move(gateway).error();
    return std::make_unique<Before>(std::move(*gateway), engines.size());
  }
  Before(std::unique_ptr<gate::Gateway> gateway, std::size_t engines) : gateway_(std::move(gateway)) {
    auto left = std::make_shared<std::size_t>(engines);
    std::promise<void> ready;
    gateway_->when_turned([left, &ready](const gate::BackendView& view) {
      if (view.is_ready && *left > 0 && --*left == 0) ready.set_value();
    });
    thread_ = std::thread([this] {
      ::pthread_getcpuclockid(::pthread_self(), &clock_);
      gateway_->run();
    });
    ready.get_future().wait();
  }
  ~Before() {
    gateway_->stop();
    thread_.join();
  }
  Before(const Before&) = delete;
  Before& operator=(const Before&) = delete;

  std::uint16_t port() const { return gateway_->port(); }
  double cpu_seconds() const {
    timespec used{};
    ::clock_gettime(clock_, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
  }

 private:
  std::unique_ptr<gate::Gateway> gateway_;
  std::thread thread_;
  clockid_t clock_{};
};

Result<> check(const Crowd::Heard& heard) {
  if (heard.failures == 0) return {};
  return failed(std::to_string(heard.failures) + " requests were not answered");
}

// From the moment at which an event is made to its reader, of all streams together.
Result<std::vector<double>> lateness(std::uint16_t port) {
  Crowd crowd(port, streams, true);
  std::this_thread::sleep_for(2s);
  crowd.take();
  std::this_thread::sleep_for(measured_for);
  auto heard = crowd.take();
  if (auto fine = check(heard); !fine) return std::move(fine).error();
  return std::move(heard.late_ms);
}

Result<> measure_added(Report& report) {
  Engine engine(event_every);
  auto before = Before::begin({engine.port()});
  if (!before) return std::move(before).error();
  auto direct = lateness(engine.port());
  if (!direct) return std::move(direct).error();
  const double cpu_before = (*before)->cpu_seconds();
  auto passed = lateness((*before)->port());
  if (!passed) return std::move(passed).error();
  const double cores = ((*before)->cpu_seconds() - cpu_before) / in_seconds(measured_for + 2s);
  report.add({.name = "added_p99",
              .what = "256 streams of 50 events/s: what is added, p99",
              .unit = "ms",
              .tutti = percentile_99(*passed) - percentile_99(*direct),
              .peer = {},
              .peer_name = "",
              .bar = Bar{Bar::Kind::value_at_most, 2},
              .note = "one core of " + std::to_string(cores).substr(0, 4)});
  report.add({.name = "added_median",
              .what = "  median",
              .unit = "ms",
              .tutti = median(*passed) - median(*direct),
              .peer = {},
              .peer_name = "",
              .bar = {},
              .note = ""});
  return {};
}

// Passed on in a second of the gateway's own core, whatever the clients and engines take of the others.
Result<> measure_requests(Report& report, bool in_streams) {
  Engine engine(Duration::zero());
  auto before = Before::begin({engine.port()});
  if (!before) return std::move(before).error();
  Crowd crowd((*before)->port(), streams, in_streams);
  std::this_thread::sleep_for(1s);
  crowd.take();
  const double used = (*before)->cpu_seconds();
  std::this_thread::sleep_for(measured_for);
  const auto heard = crowd.take();
  const double cpu = (*before)->cpu_seconds() - used;
  if (auto fine = check(heard); !fine) return fine;
  report.add({.name = in_streams ? "streams_per_core" : "requests_per_core",
              .what = in_streams ? "streams of 64 events, 256 at once, a second of one core"
                                 : "requests, 256 at once, a second of one core",
              .unit = "/s",
              .tutti = static_cast<double>(heard.answers) / cpu,
              .peer = {},
              .peer_name = "",
              .bar = in_streams ? std::optional<Bar>() : Bar{Bar::Kind::value_at_least, 5'000},
              .note = std::to_string(
                          static_cast<int>(static_cast<double>(heard.answers) / in_seconds(measured_for))) +
                      "/s while it shares the machine"});
  return {};
}

// One of two engines is killed under 64 streams: until each of them has moved again.
Result<> measure_kill(Report& report) {
  double worst = 0;
  for (int times = 0; times < 3; ++times) {
    Engine stays(event_every);
    auto goes = std::make_unique<Engine>(event_every);
    auto before = Before::begin({stays.port(), goes->port()});
    if (!before) return std::move(before).error();
    Crowd crowd((*before)->port(), killed_streams, true);
    std::this_thread::sleep_for(1s);
    const double killed = now_ms();
    goes->kill();
    for (;;) {
      const auto heard = crowd.take();
      if (auto fine = check(heard); !fine) return fine;
      const double slowest = *std::ranges::min_element(heard.last_event_ms);
      if (slowest > killed + in_seconds(event_every) * 1e3) {
        worst = std::max(worst, slowest - killed);
        break;
      }
      if (now_ms() - killed > 20'000) return failed("a stream did not go on");
      std::this_thread::sleep_for(5ms);
    }
  }
  report.add({.name = "killed",
              .what = "engine killed under 64 streams: until all move again, worst of 3",
              .unit = "s",
              .tutti = worst / 1e3,
              .peer = {},
              .peer_name = "",
              .bar = Bar{Bar::Kind::value_at_most, 3},
              .note = ""});
  return {};
}

// What is added to the time in which a replica of a service that slept begins to answer: here that is none at
// all.
Result<> measure_wake(Report& report) {
  std::vector<double> waited_ms;
  for (int times = 0; times < wakes; ++times) {
    Engine engine(event_every);
    Controller controller(engine.port());
    gate::GatewaySettings settings;
    settings.controller.emplace();
    settings.controller->target = {.host = "127.0.0.1", .port = controller.port()};
    auto gateway = gate::Gateway::listen(settings);
    if (!gateway) return std::move(gateway).error();
    std::thread thread([&] { (*gateway)->run(); });
    {
      net::Client client({.host = "127.0.0.1", .port = (*gateway)->port(), .who = "gateway"}, "");
      bool knows_services = false;
      while (!knows_services) {
        const auto health = client.request("GET", "/health");
        knows_services = health && health->status == 200;
      }
      const double asked = now_ms();
      double heard = 0;
      auto done = client.events(
          "POST", "/v1/completions", R"({"model":"m","prompt":"x","stream":true})",
          [&](std::string_view, std::string_view) {
            heard = now_ms();
            return false;
          },
          [] { return true; });
      if (done && heard > 0) waited_ms.push_back(heard - asked);
    }
    (*gateway)->stop();
    thread.join();
  }
  if (waited_ms.size() != static_cast<std::size_t>(wakes)) return failed("a request was not answered");
  report.add({.name = "wake",
              .what = "a service wakes at once: first token of who waited, worst of 10",
              .unit = "s",
              .tutti = *std::ranges::max_element(waited_ms) / 1e3,
              .peer = {},
              .peer_name = "",
              .bar = Bar{Bar::Kind::value_at_most, 0.5},
              .note = "median " + std::to_string(median(waited_ms) / 1e3).substr(0, 5) + " s"});
  return {};
}

Result<> measure(const Options& options) {
  Report report("");
  report.print_head();
  if (options.wants("added")) {
    if (auto done = measure_added(report); !done) return done;
  }
  if (options.wants("requests")) {
    for (const bool in_streams : {false, true}) {
      if (auto done = measure_requests(report, in_streams); !done) return done;
    }
  }
  if (options.wants("killed")) {
    if (auto done = measure_kill(report); !done) return done;
  }
  if (options.wants("wake")) {
    if (auto done = measure_wake(report); !done) return done;
  }
  return report.end(options);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  const auto options =
      tutti::bench::parse_options({words + 1, words + count}, {"added", "requests", "killed", "wake"});
  if (!options) return tutti::bench::exit_code("bench_services", options.error());
  return tutti::bench::exit_code("bench_services", tutti::bench::measure(*options));
}
