#include "comm/hub.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/frame.hpp"
#include "comm/proof.hpp"
#include "comm/verdict.hpp"

namespace tutti::comm {
namespace {

// Ranks that do not answer the inquest in this time are silent.
constexpr auto inquest_time = std::chrono::milliseconds(600);
// Connections that may knock without being a rank yet.
constexpr std::size_t strangers_max = 64;
constexpr auto farewell_time = std::chrono::milliseconds(200);
constexpr int reads_of_turn = 16;

struct Connection {
  Socket socket;
  FrameReader reader{};
  std::string outgoing{};
  int rank = -1;
  std::string challenge{};
  bool left = false;
  bool closed = false;
  Clock::time_point since{};
};

// What `count` ranks tell one another under one tag: all get all, once all are there.
struct Exchange {
  std::vector<std::optional<std::string>> told;
  std::vector<Connection*> from;
  std::size_t there = 0;
  Clock::time_point deadline = Clock::time_point::max();
};

struct Inquest {
  Question question;
  std::vector<Report> reports;
  Clock::time_point deadline;
  std::vector<Connection*> askers;
};

class Server {
 public:
  Server(Socket listener, int stop, int ranks, Duration linger, std::string secret)
      : listener_(std::move(listener)),
        stop_(stop),
        linger_(linger),
        secret_(std::move(secret)),
        attendance_(static_cast<std::size_t>(ranks)),
        ranks_(ranks) {}

  void run() {
    while (!over()) {
      wait();
      for (auto& connection : connections_) flush(*connection);
      expire();
      std::erase_if(connections_, [](const auto& one) { return one->closed && one->rank < 0; });
    }
    say_goodbye();
  }

 private:
  bool over() const {
    if (!stopped_) return false;
    const bool alone = std::all_of(connections_.begin(), connections_.end(),
                                   [](const auto& one) { return one->rank < 0 || one->closed || one->left; });
    return alone || !fault_.empty() || Clock::now() >= stay_until_;
  }

  // So that the ranks which go on do not take the end of the hub for a death.
  void say_goodbye() {
    const auto deadline = Clock::now() + farewell_time;
    for (const auto& one : connections_) {
      if (one->rank < 0 || one->closed || one->left) continue;
      queue(*one, FrameKind::goodbye, "");
      [[maybe_unused]] const auto sent = send_all(one->socket, one->outgoing, deadline);
    }
  }

  void wait() {
    const short until_stopped = stopped_ ? 0 : POLLIN;
    std::vector<pollfd> entries{{stop_, until_stopped, 0}, {listener_.get(), POLLIN, 0}};
    for (const auto& one : connections_) {
      if (one->closed) continue;
      entries.push_back(
          {one->socket.get(), static_cast<short>(POLLIN | (one->outgoing.empty() ? 0 : POLLOUT)), 0});
    }
    if (poll(entries.data(), entries.size(), timeout_ms()) < 0) return;
    if (entries[0].revents != 0 && !stopped_) {
      stopped_ = true;
      stay_until_ = Clock::now() + linger_;
    }
    std::size_t at = 2;
    for (const auto& one : connections_) {
      if (one->closed) continue;
      const short events = entries[at++].revents;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read(*one);
    }
    if (entries[1].revents != 0) accept_all();
  }

  int timeout_ms() const {
    auto next = Clock::now() + std::chrono::seconds(10);
    for (const auto& [tag, exchange] : exchanges_) next = std::min(next, exchange.deadline);
    if (inquest_) next = std::min(next, inquest_->deadline);
    if (stopped_) next = std::min(next, stay_until_);
    return milliseconds_until(next);
  }

  void accept_all() {
    for (;;) {
      Socket socket = accept_from(listener_);
      if (!socket.valid()) return;
      const auto strangers = std::count_if(connections_.begin(), connections_.end(),
                                           [](const auto& one) { return one->rank < 0; });
      if (static_cast<std::size_t>(strangers) >= strangers_max + static_cast<std::size_t>(ranks_)) continue;
      connections_.push_back(std::make_unique<Connection>(Connection{.socket = std::move(socket)}));
      connections_.back()->since = Clock::now();
      connections_.back()->challenge = fresh_bytes();
      queue(*connections_.back(), FrameKind::challenge, connections_.back()->challenge);
    }
  }

  void read(Connection& connection) {
    std::array<char, 65536> buffer;
    // So many bytes a turn: one rank does not keep the hub from the others.
    for (int turn = 0; turn < reads_of_turn && !connection.closed; ++turn) {
      const ssize_t got = recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return lost(connection);
      connection.reader.add({buffer.data(), static_cast<std::size_t>(got)});
      handle_frames(connection);
    }
  }

  void handle_frames(Connection& connection) {
    Frame frame;
    while (!connection.closed) {
      switch (connection.reader.next(frame)) {
        case FrameReader::Next::more:
          return;
        case FrameReader::Next::broken:
          lost(connection);
          return;
        case FrameReader::Next::frame:
          break;
      }
      if (!handle(connection, frame)) lost(connection);
    }
  }

  // False for what no rank would send.
  bool handle(Connection& connection, const Frame& frame) {
    if (connection.rank < 0) return frame.kind == FrameKind::hello && hello(connection, frame.content);
    switch (frame.kind) {
      case FrameKind::exchange:
        return exchange(connection, frame.content);
      case FrameKind::goodbye:
        connection.left = true;
        attendance_[static_cast<std::size_t>(connection.rank)].left = true;
        return true;
      case FrameKind::abort:
        return abort(connection, frame.content);
      case FrameKind::ask:
        return ask(connection, frame.content);
      case FrameKind::report:
        return report(connection, frame.content);
      case FrameKind::hello:
      case FrameKind::exchanged:
      case FrameKind::missing:
      case FrameKind::question:
      case FrameKind::verdict:
      case FrameKind::fault:
      case FrameKind::challenge:
      case FrameKind::welcome:
        return false;
    }
    return false;
  }

  bool hello(Connection& connection, std::string_view content) {
    Reader reader(content);
    const auto rank = reader.number<std::int32_t>();
    const auto size = reader.number<std::int32_t>();
    const std::string node(reader.text());
    const std::string ranks_part(reader.text());
    const std::string_view proof = reader.text();
    if (!reader.complete()) return false;
    const Introduction introduction{connection.challenge, ranks_part, rank, size, node};
    // Before anything is said of who is there.
    if (!secret_.empty() && !is_same_secret(proof_of_rank(secret_, introduction), proof)) {
      refuse(connection, "whoever came as rank " + std::to_string(rank) +
                             " has not the secret of this attempt (TUTTI_WORLD_SECRET)");
      return true;
    }
    if (size != ranks_ || rank < 0 || rank >= ranks_) {
      refuse(connection, "a rank " + std::to_string(rank) + " of " + std::to_string(size) +
                             " came to a world of " + std::to_string(ranks_) + " ranks");
      return true;
    }
    const bool twice = std::any_of(connections_.begin(), connections_.end(),
                                   [&](const auto& one) { return one->rank == rank; });
    if (twice) {
      refuse(connection,
             "rank " + std::to_string(rank) + " is already there: two processes have the same RANK");
      return true;
    }
    connection.rank = rank;
    attendance_[static_cast<std::size_t>(rank)].node = node;
    queue(connection, FrameKind::welcome, proof_of_hub(secret_, introduction));
    if (!fault_.empty()) queue(connection, FrameKind::fault, fault_);
    return true;
  }

  void refuse(Connection& connection, const std::string& why) {
    queue(connection, FrameKind::fault, why);
    flush(connection);
    connection.closed = true;
  }

  bool exchange(Connection& connection, std::string_view content) {
    Reader reader(content);
    const auto tag = reader.number<std::uint64_t>();
    const auto count = reader.number<std::uint32_t>();
    const auto index = reader.number<std::uint32_t>();
    const auto milliseconds = reader.number<std::int64_t>();
    const std::string told(reader.text());
    if (!reader.complete() || count == 0 || count > static_cast<std::uint32_t>(ranks_) || index >= count)
      return false;
    Exchange& all = exchanges_[tag];
    if (all.told.empty()) {
      all.told.resize(count);
      all.from.resize(count, nullptr);
    }
    if (all.told.size() != count || all.told[index]) {
      raise(text_of(connection.rank) +
            " makes a group that the others do not make: split() must be called by all, " +
            "in the same order");
      return true;
    }
    all.told[index] = told;
    all.from[index] = &connection;
    const auto limit = std::chrono::milliseconds(std::clamp<std::int64_t>(milliseconds, 1, 86'400'000));
    all.deadline = std::min(all.deadline, Clock::now() + limit);
    if (++all.there < count) return true;
    Writer answer;
    answer.number(tag).number(count);
    for (const auto& one : all.told) answer.text(*one);
    const std::string bytes = answer.take();
    for (Connection* one : all.from) queue(*one, FrameKind::exchanged, bytes);
    exchanges_.erase(tag);
    return true;
  }

  bool abort(const Connection& connection, std::string_view content) {
    Reader reader(content);
    const std::string why(reader.text());
    if (!reader.complete()) return false;
    raise(text_of(connection.rank) + " aborted: " + why);
    return true;
  }

  bool ask(Connection& connection, std::string_view content) {
    auto question = Question::decode(content);
    if (!question) return false;
    if (!fault_.empty()) return true;
    // A rank whose time is up counts for more than one that only wonders, and asks something else.
    const bool takes_over = inquest_ && question->final && !inquest_->question.final;
    if (inquest_ && !takes_over) {
      inquest_->askers.push_back(&connection);
      return true;
    }
    question->number = ++questions_;
    inquest_ = Inquest{std::move(*question), {}, Clock::now() + inquest_time, {&connection}};
    const std::string bytes = inquest_->question.encode();
    for (const auto& one : connections_) {
      if (one->rank >= 0 && !one->closed) queue(*one, FrameKind::question, bytes);
    }
    return true;
  }

  bool report(const Connection& connection, std::string_view content) {
    auto report = Report::decode(content);
    if (!report || report->rank != connection.rank) return false;
    if (!inquest_ || report->number != inquest_->question.number) return true;
    inquest_->reports.push_back(std::move(*report));
    const auto alive = std::count_if(connections_.begin(), connections_.end(),
                                     [](const auto& one) { return one->rank >= 0 && !one->closed; });
    if (inquest_->reports.size() >= static_cast<std::size_t>(alive)) close_inquest();
    return true;
  }

  void close_inquest() {
    const Verdict verdict = judge(inquest_->question, inquest_->reports, attendance_);
    if (inquest_->question.final || verdict.hopeless) {
      raise(verdict.text);
    } else {
      for (Connection* asker : inquest_->askers) {
        if (!asker->closed) queue(*asker, FrameKind::verdict, verdict.text);
      }
    }
    inquest_.reset();
  }

  void expire() {
    const auto now = Clock::now();
    if (inquest_ && now >= inquest_->deadline) close_inquest();
    for (auto one = exchanges_.begin(); one != exchanges_.end();) {
      if (now < one->second.deadline) {
        ++one;
        continue;
      }
      tell_missing(one->first, one->second);
      one = exchanges_.erase(one);
    }
    for (const auto& one : connections_) {
      if (one->rank < 0 && now > one->since + hello_time) one->closed = true;
    }
  }

  void tell_missing(std::uint64_t tag, const Exchange& exchange) {
    Writer answer;
    answer.number(tag);
    std::vector<std::uint32_t> missing;
    for (std::uint32_t i = 0; i < exchange.told.size(); ++i) {
      if (!exchange.told[i]) missing.push_back(i);
    }
    answer.number(static_cast<std::uint32_t>(missing.size()));
    for (const std::uint32_t index : missing) answer.number(index);
    const std::string bytes = answer.take();
    for (Connection* one : exchange.from) {
      if (one != nullptr && !one->closed) queue(*one, FrameKind::missing, bytes);
    }
  }

  void lost(Connection& connection) {
    if (connection.closed) return;
    connection.closed = true;
    if (connection.rank >= 0 && !connection.left)
      raise(text_of(connection.rank) + " died: its connection was closed");
  }

  void raise(const std::string& text) {
    if (!fault_.empty()) return;
    fault_ = text;
    for (const auto& one : connections_) {
      if (one->rank >= 0 && !one->closed) queue(*one, FrameKind::fault, text);
    }
  }

  std::string text_of(int rank) const {
    return rank_text(rank, attendance_[static_cast<std::size_t>(rank)].node);
  }

  static void queue(Connection& connection, FrameKind kind, std::string_view content) {
    connection.outgoing += wire_form(kind, content);
  }

  void flush(Connection& connection) {
    while (!connection.closed && !connection.outgoing.empty()) {
      const ssize_t sent =
          send(connection.socket.get(), connection.outgoing.data(), connection.outgoing.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        connection.outgoing.erase(0, static_cast<std::size_t>(sent));
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != EINTR) {
        lost(connection);
      }
    }
  }

  Socket listener_;
  int stop_;
  bool stopped_ = false;
  Duration linger_;
  const std::string secret_;
  Clock::time_point stay_until_{};
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Attendance> attendance_;
  int ranks_;
  std::map<std::uint64_t, Exchange> exchanges_;
  std::optional<Inquest> inquest_;
  std::uint32_t questions_ = 0;
  std::string fault_;
};

}  // namespace

Result<std::unique_ptr<Hub>> Hub::start(Socket listener, int ranks, Duration linger,
                                        const std::string& secret) {
  std::unique_ptr<Hub> hub(new Hub);
  hub->stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (hub->stop_ < 0) return failed_errno("eventfd", errno);
  auto server = std::make_shared<Server>(std::move(listener), hub->stop_, ranks, linger, secret);
  hub->thread_ = std::thread([server] { server->run(); });
  return hub;
}

Hub::~Hub() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stop_, &one, sizeof one);
  thread_.join();
  close(stop_);
}

}  // namespace tutti::comm
