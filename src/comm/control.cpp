#include "comm/control.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "base/check.hpp"
#include "comm/frame.hpp"
#include "comm/proof.hpp"

namespace tutti::comm {
namespace {

constexpr int watch_interval_ms = 500;
constexpr auto send_time = std::chrono::seconds(5);
constexpr auto dial_pause_max = std::chrono::milliseconds(100);
constexpr const char* hub_died = "rank 0, which the ranks meet at, died: its connection was closed";

// Tries every address again and again: rank 0 may not listen yet.
Result<Socket> dial_hub(const std::string& host, std::uint16_t port, Clock::time_point deadline) {
  std::string why = "no time to dial";
  auto pause = std::chrono::milliseconds(1);
  while (Clock::now() < deadline) {
    auto endpoints = Endpoint::resolve(host, port);
    if (!endpoints) {
      why = endpoints.error().text();
    } else {
      for (const Endpoint& endpoint : *endpoints) {
        auto socket = dial(endpoint, std::min(deadline, Clock::now() + std::chrono::seconds(5)));
        if (socket) return socket;
        why = socket.error().text();
      }
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - Clock::now()));
    pause = std::min<std::chrono::milliseconds>(pause * 2, dial_pause_max);
  }
  return failed("rank 0 cannot be reached at " + host + " port " + std::to_string(port) + ": " + why)
      .remedy("MASTER_ADDR and MASTER_PORT must name the host of rank 0 and a port that is free there");
}

}  // namespace

Control::Control(Socket socket, Fault& fault)
    : socket_(std::move(socket)), fault_(fault), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TUTTI_CHECK(stop_ >= 0, "out of file descriptors");
}

Result<std::unique_ptr<Control>> Control::connect(const std::string& host, std::uint16_t port,
                                                  const Seat& seat, Clock::time_point deadline,
                                                  Fault& fault) {
  auto socket = dial_hub(host, port, deadline);
  if (!socket) return std::move(socket).error();
  std::unique_ptr<Control> control(new Control(std::move(*socket), fault));
  if (auto known = control->introduce(seat, deadline); !known)
    return std::move(known).error().within("the meeting of the ranks at " + host + " port " +
                                           std::to_string(port));
  control->thread_ = std::thread([self = control.get()] { self->run(); });
  return control;
}

Control::~Control() {
  leave();
  close(stop_);
}

void Control::leave() {
  if (!thread_.joinable()) return;
  send(FrameKind::goodbye, "");
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stop_, &one, sizeof one);
  thread_.join();
}

void Control::begin(Duties duties) {
  const std::lock_guard lock(mutex_);
  duties_ = std::move(duties);
}

void Control::send(FrameKind kind, std::string_view content) {
  const std::lock_guard lock(send_mutex_);
  // A line that does not take the bytes is a dead one; the reading side says so.
  [[maybe_unused]] const auto sent = send_all(socket_, wire_form(kind, content), Clock::now() + send_time);
}

// Each side shows the other that it has the secret: who listens here may have taken the port of rank 0.
Result<> Control::introduce(const Seat& seat, Clock::time_point deadline) {
  Introduction introduction{
      .hubs = {}, .ranks = fresh_bytes(), .rank = seat.rank, .size = seat.size, .node = seat.node};
  for (;;) {
    auto frame = next_frame(deadline);
    if (!frame) return std::move(frame).error();
    if (frame->kind == FrameKind::fault) {
      fault_.raise(frame->content);
      return fault_.error();
    }
    if (frame->kind == FrameKind::challenge && introduction.hubs.empty()) {
      introduction.hubs = frame->content;
      Writer hello;
      hello.number(static_cast<std::int32_t>(seat.rank)).number(static_cast<std::int32_t>(seat.size));
      hello.text(seat.node).text(introduction.ranks);
      hello.text(seat.secret.empty() ? "" : proof_of_rank(seat.secret, introduction));
      send(FrameKind::hello, hello.take());
      continue;
    }
    const bool welcome = frame->kind == FrameKind::welcome && !introduction.hubs.empty();
    if (welcome &&
        (seat.secret.empty() || is_same_secret(proof_of_hub(seat.secret, introduction), frame->content)))
      return {};
    return failed("who listens there is not rank 0 of this attempt")
        .remedy(
            "all nodes of a gang need the same version of tutti; another program may have taken the port");
  }
}

Result<Frame> Control::next_frame(Clock::time_point deadline) {
  std::array<char, 4096> buffer;
  Frame frame;
  for (;;) {
    switch (reader_.next(frame)) {
      case FrameReader::Next::frame:
        return frame;
      case FrameReader::Next::broken:
        return failed("what listens there is no rank 0");
      case FrameReader::Next::more:
        break;
    }
    pollfd entry{socket_.get(), POLLIN, 0};
    const int left = milliseconds_until(deadline);
    if (left == 0) return failed("rank 0 does not answer");
    poll(&entry, 1, left);
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) {
      fault_.raise(hub_died);
      return fault_.error();
    }
    reader_.add({buffer.data(), static_cast<std::size_t>(got)});
  }
}

void Control::handle_frames() {
  Frame frame;
  while (reader_.next(frame) == FrameReader::Next::frame) handle(frame.kind, frame.content);
}

void Control::run() {
  std::array<char, 65536> buffer;
  handle_frames();  // what came with the welcome
  for (;;) {
    std::array<pollfd, 2> entries{pollfd{stop_, POLLIN, 0}, pollfd{socket_.get(), POLLIN, 0}};
    const int ready = poll(entries.data(), entries.size(), watch_interval_ms);
    if (ready < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    if (ready == 0) look();
    if (entries[1].revents == 0) continue;
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got > 0) reader_.add({buffer.data(), static_cast<std::size_t>(got)});
    handle_frames();
    if (got > 0) continue;
    {
      const std::lock_guard lock(mutex_);
      if (!hub_gone_) fault_.raise(hub_died);
      hub_gone_ = true;
    }
    changed_.notify_all();
    return;
  }
}

void Control::handle(FrameKind kind, std::string_view content) {
  switch (kind) {
    case FrameKind::exchanged:
      handle_exchanged(content);
      break;
    case FrameKind::missing:
      handle_missing(content);
      break;
    case FrameKind::fault:
      fault_.raise(std::string(content));
      break;
    case FrameKind::goodbye: {
      const std::lock_guard lock(mutex_);
      hub_gone_ = true;
      break;
    }
    case FrameKind::question: {
      const Duties duties = current_duties();
      const auto question = Question::decode(content);
      if (question && duties.answer) send(FrameKind::report, duties.answer(*question).encode());
      break;
    }
    case FrameKind::verdict:
      if (const Duties duties = current_duties(); duties.heard) duties.heard(std::string(content));
      break;
    case FrameKind::hello:
    case FrameKind::exchange:
    case FrameKind::abort:
    case FrameKind::ask:
    case FrameKind::report:
    case FrameKind::challenge:
    case FrameKind::welcome:
      break;
  }
  changed_.notify_all();
}

void Control::handle_exchanged(std::string_view content) {
  Reader reader(content);
  const auto tag = reader.number<std::uint64_t>();
  const auto count = reader.number<std::uint32_t>();
  std::vector<std::string> told;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) told.emplace_back(reader.text());
  if (!reader.complete()) return;
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(tag);
  if (found != waiting_.end()) found->second = {.done = true, .told = std::move(told), .missing = {}};
}

void Control::handle_missing(std::string_view content) {
  Reader reader(content);
  const auto tag = reader.number<std::uint64_t>();
  const auto count = reader.number<std::uint32_t>();
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) missing.push_back(reader.number<std::uint32_t>());
  if (!reader.complete()) return;
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(tag);
  if (found != waiting_.end()) found->second = {.done = true, .told = {}, .missing = std::move(missing)};
}

Result<std::vector<std::string>> Control::exchange(std::uint64_t tag, std::uint32_t count,
                                                   std::uint32_t index, std::string_view told,
                                                   Clock::time_point deadline, Missing* missing) {
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.emplace(tag, Answered{}).second) return failed("two groups of one rank have the same name");
  }
  Writer frame;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  frame.number(tag).number(count).number(index).number(static_cast<std::int64_t>(left)).text(told);
  send(FrameKind::exchange, frame.take());

  // The hub says who is missing at the deadline; if it is silent too, the wait ends without it.
  const auto patience = deadline + std::chrono::seconds(1);
  std::unique_lock lock(mutex_);
  for (;;) {
    Answered& answered = waiting_.at(tag);
    if (answered.done && answered.missing.empty()) {
      auto all = std::move(answered.told);
      waiting_.erase(tag);
      return all;
    }
    if (answered.done) {
      std::string who;
      for (const std::uint32_t one : answered.missing) who += (who.empty() ? "" : ", ") + std::to_string(one);
      if (missing != nullptr) missing->indices = answered.missing;
      waiting_.erase(tag);
      return failed("still missing: " + who);
    }
    if (fault_.raised()) {
      waiting_.erase(tag);
      return fault_.error();
    }
    if (hub_gone_ || Clock::now() >= patience) {
      waiting_.erase(tag);
      return failed(hub_gone_ ? "rank 0 has left" : "rank 0 does not answer");
    }
    changed_.wait_until(lock, std::min(patience, Clock::now() + std::chrono::milliseconds(50)));
  }
}

void Control::abort(std::string_view why) {
  Writer frame;
  frame.text(why);
  send(FrameKind::abort, frame.take());
}

void Control::wonder(const Question& question) { send(FrameKind::ask, question.encode()); }

void Control::look() {
  if (const Duties duties = current_duties(); duties.watch) duties.watch();
}

Control::Duties Control::current_duties() {
  const std::lock_guard lock(mutex_);
  return duties_;
}

bool Control::ask(const Question& question, Clock::time_point deadline) {
  send(FrameKind::ask, question.encode());
  return wait_fault(deadline);
}

bool Control::wait_fault(Clock::time_point deadline) {
  pollfd entry{fault_.event(), POLLIN, 0};
  while (!fault_.raised()) {
    const int left = milliseconds_until(deadline);
    if (left == 0) return false;
    poll(&entry, 1, left);
  }
  return true;
}

}  // namespace tutti::comm
