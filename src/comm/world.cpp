#include "comm/world.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "comm/frame.hpp"
#include "comm/process.hpp"

namespace tutti::comm {
namespace {

// Over this time an inquest looks at what a process does.
constexpr auto sample_time = std::chrono::milliseconds(100);
// The hub's verdict, or another rank's, is worth waiting for.
constexpr auto verdict_time = std::chrono::milliseconds(1500);
// An operation that takes this long is worth a question.
constexpr auto slow_time = std::chrono::seconds(2);
constexpr auto closed_time = std::chrono::milliseconds(1000);
constexpr std::size_t addresses_max = 64;
// Ranks that are still making groups lose their meeting point with rank 0. None of them needs it for longer,
// however long its operations may take.
constexpr Duration hub_linger_max = std::chrono::seconds(30);

enum class Round : std::uint64_t { members = 1, segment = 2, ready = 3 };

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::uint64_t tag(std::uint64_t group, Round round) { return mix(group, static_cast<std::uint64_t>(round)); }

std::string encode(const Member& member, const Cookie& cookie) {
  Writer writer;
  writer.text(member.node).number(static_cast<std::int64_t>(member.pid)).text(member.address.host);
  writer.number(member.address.port).number(static_cast<std::uint32_t>(member.address.addresses.size()));
  for (const std::string& address : member.address.addresses) writer.text(address);
  writer.number(cookie[0]).number(cookie[1]);
  return writer.take();
}

Result<Member> decode(std::string_view bytes, int rank, Cookie& cookie) {
  Reader reader(bytes);
  Member member;
  member.node = reader.text();
  member.pid = static_cast<pid_t>(reader.number<std::int64_t>());
  member.address.rank = rank;
  member.address.host = reader.text();
  member.address.port = reader.number<std::uint16_t>();
  const auto count = std::min<std::size_t>(reader.number<std::uint32_t>(), addresses_max);
  for (std::size_t i = 0; i < count && reader.ok(); ++i) member.address.addresses.emplace_back(reader.text());
  cookie = {reader.number<std::uint64_t>(), reader.number<std::uint64_t>()};
  if (!reader.complete())
    return failed("rank " + std::to_string(rank) + " introduces itself in words that are not tutti's");
  return member;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

Result<Socket> hub_listener(const Options& options) {
  if (options.hub_listener >= 0) return Socket(options.hub_listener);
  auto endpoints = Endpoint::resolve(options.master_address, options.master_port);
  if (!endpoints) return std::move(endpoints).error();
  auto listener = listen_on(endpoints->front());
  if (!listener && !is_loopback(options.master_address)) {
    // The name may be one that others know this host by, and not an address of its own.
    auto everywhere = Endpoint::of("::", options.master_port);
    if (everywhere) listener = listen_on(*everywhere);
  }
  return listener;
}

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t hash = (a ^ (b + 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ULL;
  return hash ^ hash >> 29;
}

// Agents name a file for the verdict in the environment of their ranks.
World::World(Options options)
    : options_(std::move(options)), fault_([] {
        const char* const file = std::getenv("TUTTI_VERDICT_FILE");
        return std::string(file != nullptr ? file : "");
      }()) {
  watchdog_.emplace(fault_,
                    Watchdog::Duties{
                        .started = [this](auto record, auto now) { recorder_.started(record, now); },
                        .ended = [this](auto record, auto now) { recorder_.ended(record, now); },
                        .blame =
                            [this](const OperationRecord& operation, auto waited, const Outcome& outcome) {
                              Question question = question_about(operation);
                              question.waited_ns = waited;
                              question.final = true;
                              static_cast<void>(blame(question, outcome));
                            },
                    });
}

World::~World() {
  watchdog_.reset();
  // The control thread looks at this object, and at control_ in it: it ends before any of that is gone.
  links_.reset();
  if (control_) control_->leave();
  control_.reset();
  hub_.reset();
}

Result<std::shared_ptr<World>> World::connect(const Options& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return invalid("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
                   " cannot be");
  }
  std::shared_ptr<World> world(new World(options));
  if (world->options_.node.empty()) world->options_.node = node_name();
  if (options.size == 1) {
    world->members_ = {{.node = world->options_.node, .pid = getpid(), .address = {}}};
    return world;
  }
  const auto deadline = Clock::now() + options.connect_timeout;
  if (auto opened = world->open_hub(deadline); !opened) return std::move(opened).error();
  if (auto met = world->meet(deadline); !met) {
    // Nobody waits for a world that does not come to be, the hub least of all.
    world->control_->abort(met.error().text());
    return std::move(met).error();
  }
  return world;
}

Result<> World::open_hub(Clock::time_point deadline) {
  if (options_.rank == 0) {
    auto listener = hub_listener(options_);
    if (!listener) {
      return std::move(listener)
          .error()
          .within("the port at which the ranks meet")
          .remedy("set MASTER_PORT to a free port");
    }
    auto hub = Hub::start(std::move(*listener), options_.size, std::min(options_.deadline, hub_linger_max),
                          options_.secret);
    if (!hub) return std::move(hub).error();
    hub_ = std::move(*hub);
  }
  auto control =
      Control::connect(options_.master_address, options_.master_port,
                       {options_.rank, options_.size, options_.node, options_.secret}, deadline, fault_);
  if (!control) return std::move(control).error();
  control_ = std::move(*control);
  return {};
}

Result<> World::meet(Clock::time_point deadline) {
  auto met_at = control_->local_address();
  if (!met_at) return std::move(met_at).error();
  const auto addresses = addresses_beside(*met_at, own_addresses());
  // A world on loopback is on this host as a whole.
  auto links = Links::start(is_loopback(options_.master_address) ? std::vector<std::string>() : addresses);
  if (!links) return std::move(links).error();
  links_ = std::move(*links);
  std::random_device random;
  const auto secret = [&] { return static_cast<std::uint64_t>(random()) << 32 | random(); };
  const Member mine{.node = options_.node,
                    .pid = getpid(),
                    .address = {options_.rank, host_identity(), addresses, links_->port()}};
  Control::Missing missing;
  auto told = control_->exchange(tag(0, Round::members), static_cast<std::uint32_t>(options_.size),
                                 static_cast<std::uint32_t>(options_.rank),
                                 encode(mine, {secret(), secret()}), deadline, &missing);
  if (!told) {
    if (missing.indices.empty()) return std::move(told).error();
    std::string who;
    for (std::size_t i = 0; i < std::min<std::size_t>(missing.indices.size(), 16); ++i) {
      who += (i > 0 ? ", " : "") + std::to_string(missing.indices[i]);
    }
    return failed(std::to_string(missing.indices.size()) + " of " + std::to_string(options_.size) +
                  " ranks have not come within " + format_duration(options_.connect_timeout) + ": " + who);
  }
  Cookie cookie{};
  for (int rank = 0; rank < options_.size; ++rank) {
    Cookie theirs{};
    auto member = decode((*told)[static_cast<std::size_t>(rank)], rank, theirs);
    if (!member) return std::move(member).error();
    if (rank == 0) cookie = theirs;
    members_.push_back(std::move(*member));
  }
  links_->open(options_.rank, mine.address.host, cookie);
  control_->begin({.answer = [this](const Question& question) { return answer(question); },
                   .watch = [this] { watch(); },
                   .heard =
                       [this](const std::string& text) {
                         if (wondered_) fault_.note(text);
                       }});
  return {};
}

bool World::shares_memory(int a, int b) const {
  if (options_.transport == Transport::tcp) return a == b;
  return members_[static_cast<std::size_t>(a)].address.host ==
         members_[static_cast<std::size_t>(b)].address.host;
}

Result<std::unique_ptr<Collectives>> World::establish(std::uint64_t group, const std::string& name,
                                                      const std::vector<int>& ranks,
                                                      Clock::time_point deadline) {
  {
    const std::lock_guard lock(groups_mutex_);
    groups_[group] = {name, ranks};
  }
  const int me = static_cast<int>(std::find(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  std::vector<std::string> hosts;
  std::vector<Address> addresses;
  for (const int rank : ranks) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    const bool alone = options_.transport == Transport::tcp;
    hosts.push_back(alone ? std::to_string(rank) : member.address.host);
    addresses.push_back(member.address);
  }
  Layout layout = Layout::of(hosts, me);
  if (layout.size == 1) return std::make_unique<Collectives>(layout, nullptr, nullptr);
  if (options_.transport == Transport::shm && layout.hosts.size() > 1) {
    return invalid("ranks of several hosts share no memory").remedy("leave the transport automatic");
  }
  for (const auto& members : layout.hosts) {
    if (members.size() > static_cast<std::size_t>(SharedMemory::members_max)) {
      return invalid(std::to_string(members.size()) + " ranks of one group on one host are too many");
    }
  }
  const auto& neighbours = layout.hosts[layout.my_host()];
  const bool leads = layout.local_rank() == 0;
  // What goes wrong here is told to all: nobody waits for a rank that has given up.
  std::string trouble;
  const auto note = [&](const Error& error) { trouble = text_of(options_.rank) + ": " + error.text(); };
  Segment segment;
  Cost mine{};
  if (leads && neighbours.size() > 1) {
    auto made =
        Segment::create("tutti-comm", SharedMemory::segment_bytes(static_cast<int>(neighbours.size())));
    if (made) {
      segment = std::move(*made);
    } else {
      note(made.error());
    }
  }
  if (leads && layout.hosts.size() > 1) {
    const int next = layout.hosts[(layout.my_host() + 1) % layout.hosts.size()].front();
    auto route = links_->route(addresses[static_cast<std::size_t>(next)], deadline, fault_);
    if (route) {
      mine = route->cost;
    } else {
      note(route.error());
    }
  }
  Writer telling;
  telling.number(segment.descriptor()).number(mine.latency_s).number(mine.message_s).number(mine.bytes_per_s);
  const auto count = static_cast<std::uint32_t>(ranks.size());
  const auto index = static_cast<std::uint32_t>(me);
  Control::Missing missing;
  auto told =
      control_->exchange(tag(group, Round::segment), count, index, telling.take(), deadline, &missing);
  if (!told) return failed(missing_text(missing, ranks, told.error()));

  // All must decide alike, so the slowest road counts for everyone.
  Cost cost{.bytes_per_s = 1e12};
  std::vector<int> descriptors;
  for (const std::string& one : *told) {
    Reader reader(one);
    descriptors.push_back(reader.number<int>());
    const auto latency = reader.number<double>();
    const auto message = reader.number<double>();
    const auto bandwidth = reader.number<double>();
    if (latency <= 0) continue;  // no leader, nothing measured
    cost = {std::max(cost.latency_s, latency), std::max(cost.message_s, message),
            std::min(cost.bytes_per_s, bandwidth)};
  }
  std::unique_ptr<SharedMemory> local;
  if (neighbours.size() > 1) {
    std::vector<pid_t> pids;
    for (const int member : neighbours) {
      pids.push_back(members_[static_cast<std::size_t>(ranks[static_cast<std::size_t>(member)])].pid);
    }
    if (!leads && trouble.empty()) {
      const auto first = static_cast<std::size_t>(neighbours.front());
      auto opened = Segment::open(pids.front(), descriptors[first],
                                  SharedMemory::segment_bytes(static_cast<int>(neighbours.size())));
      if (opened) segment = std::move(*opened);
      if (!opened) note(opened.error());
    }
    if (trouble.empty()) {
      // The ranks of the world on this host share its CPUs, whatever group they are in.
      int on_host = 0;
      for (int rank = 0; rank < options_.size; ++rank) on_host += shares_memory(rank, options_.rank) ? 1 : 0;
      local = std::make_unique<SharedMemory>(std::move(segment), pids, layout.local_rank(),
                                             Patience::for_ranks(on_host));
    }
  }
  // Nobody goes on, and perhaps away, before all have opened what it shares.
  auto ready = control_->exchange(tag(group, Round::ready), count, index, trouble, deadline, &missing);
  if (!ready) return failed(missing_text(missing, ranks, ready.error()));
  for (const std::string& one : *ready) {
    if (!one.empty()) return failed(one);
  }
  std::unique_ptr<Network> network;
  if (layout.hosts.size() > 1) network = std::make_unique<Network>(*links_, group, addresses, me, cost);
  return std::make_unique<Collectives>(std::move(layout), std::move(local), std::move(network));
}

std::string World::missing_text(const Control::Missing& missing, const std::vector<int>& ranks,
                                const Error& error) const {
  if (missing.indices.empty()) return error.text();
  const int rank = ranks[missing.indices.front()];
  return text_of(rank) + " did not come to make a group with the others";
}

std::string World::text_of(int rank) const {
  return rank_text(rank, members_[static_cast<std::size_t>(rank)].node);
}

Question World::question_about(const OperationRecord& pending) {
  const std::lock_guard lock(groups_mutex_);
  const GroupName& group = groups_[pending.group];
  return {.group = pending.group,
          .group_name = group.name,
          .members = group.ranks,
          .asker = options_.rank,
          .waited_ns = now_ns() - pending.started_ns,
          .final = false,
          .operation = pending};
}

// On the control thread.
Report World::answer(const Question& question) {
  Report report{.rank = options_.rank, .number = question.number};
  std::vector<std::pair<int, ProcessSample>> before;
  for (int rank = 0; rank < options_.size; ++rank) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    if (member.address.host != members_[static_cast<std::size_t>(options_.rank)].address.host) continue;
    before.emplace_back(rank, sample_process(member.pid));
  }
  const auto begin = Clock::now();
  std::this_thread::sleep_for(sample_time);
  const double seconds = seconds_since(begin);
  const auto ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  for (const auto& [rank, sample] : before) {
    const ProcessSample after = sample_process(members_[static_cast<std::size_t>(rank)].pid);
    const double used = static_cast<double>(after.cpu_ticks - sample.cpu_ticks) / ticks_per_s / seconds;
    report.processes.push_back({rank, after.state, static_cast<int>(std::lround(used * 100))});
  }
  // Looked up last, so that who was only a little late is there.
  const auto is_asked = [&](const OperationRecord& record) {
    return record.group == question.group && record.sequence == question.operation.sequence;
  };
  for (const OperationRecord& record : recorder_.records()) {
    // Put on a stream whose device is still busy with something else.
    if (record.on_device && record.started_ns == 0) continue;
    std::uint64_t& last = report.sequences[record.group];
    last = std::max(last, record.sequence);
    if (is_asked(record)) report.same = record;
  }
  for (const OperationRecord& record : recorder_.pending()) {
    if (!is_asked(record) && report.waits.size() < Report::waits_max)
      report.waits.push_back(question_about(record));
  }
  return report;
}

// On the control thread: an operation that takes long is looked into before its deadline, so that people who
// look at the job see who keeps it waiting.
void World::watch() {
  const auto pending = recorder_.pending();
  const bool slow =
      !pending.empty() && now_ns() - pending.front().started_ns > std::chrono::nanoseconds(slow_time).count();
  if (!slow) {
    if (wondered_) fault_.note("");
    wondered_.reset();
    return;
  }
  const std::pair what(pending.front().group, pending.front().sequence);
  if (wondered_ == what) return;
  wondered_ = what;
  control_->wonder(question_about(pending.front()));
}

// Another rank's fault is there before its garbage is, but this rank's own word of it may still be on its
// way.
Result<> World::check() {
  if (!fault_.raised() && watchdog_->poisoned() && !control_->wait_fault(Clock::now() + closed_time))
    fail("another rank has given up and has not said why");
  if (fault_.raised()) return fault_.error();
  return {};
}

// Here first: what comes back from the hub says that this rank aborted.
void World::fail(const std::string& text) {
  fault_.raise(text);
  control_->abort(text);
}

Error World::blame(const Question& question, const Outcome& outcome) {
  const auto now = Clock::now();
  const auto member_text = [&] {
    const auto index = static_cast<std::size_t>(outcome.member);
    return outcome.member >= 0 && index < question.members.size() ? text_of(question.members[index])
                                                                  : "a rank";
  };
  if (!control_) {  // a world of one has nobody to ask
    const bool late = outcome.kind == Outcome::Kind::late;
    fault_.raise(late ? std::string(name_of(question.operation.operation)) + " did not finish in time"
                      : outcome.text);
    return fault_.error();
  }
  switch (outcome.kind) {
    case Outcome::Kind::done:
      TUTTI_CHECK(false, "nobody is to blame");
    case Outcome::Kind::fault:
      break;
    case Outcome::Kind::failed:
      fail(outcome.text);
      break;
    case Outcome::Kind::closed:
      // The hub knows whether it died; if it only left, nobody else says so.
      if (!control_->wait_fault(now + closed_time)) {
        const bool dialled = !outcome.text.empty();
        const std::string text =
            member_text() +
            (dialled ? " cannot be reached in " : " closed its connection in the middle of ") +
            std::string(name_of(question.operation.operation)) + " #" +
            std::to_string(question.operation.sequence) + (dialled ? ": " + outcome.text : "");
        fail(text);
      }
      break;
    case Outcome::Kind::late:
    case Outcome::Kind::mismatch:
      if (!control_->ask(question, now + verdict_time)) {
        fault_.raise(member_text() + " did not come to " +
                     std::string(name_of(question.operation.operation)) + " #" +
                     std::to_string(question.operation.sequence) + " (group " + question.group_name +
                     "), and rank 0, which would find out why, does not answer");
      }
      break;
  }
  return fault_.error();
}

}  // namespace tutti::comm
