#include "control/controller/hub.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock/clock.hpp"
#include "base/log/log.hpp"
#include "control/cluster/authorize.hpp"
#include "control/controller/turn_events.hpp"
#include "control/wire/replies.hpp"

namespace tutti::controller {
namespace {

// All that a reader may have waiting here, of all nodes, and all readers together: far below what would cut
// them off, as JSON too.
constexpr std::int64_t reader_bytes_max = 8 << 20;
constexpr std::int64_t readers_bytes_max = 64 << 20;
constexpr std::int64_t window_bytes_max = 1 << 20;
constexpr std::int64_t window_bytes_min = 4 << 10;
constexpr Duration feed_look_every = 500ms;
// Readers hear this often that the controller is there, also when nothing happens.
constexpr Duration alive_every = 5s;
// A node that says nothing at all for so long does not answer, and one that sends no log although it could
// for so long cannot read it.
constexpr Duration node_silence_max = 2 * cluster::lease;
constexpr Duration feed_silence_max = 20s;
constexpr int seat_retry_after_seconds = 5;

static_assert(wire::message_bytes_max < net::frame_bytes_max);

// A program may write any bytes; JSON takes only UTF-8.
std::string log_json(const wire::LogChunk& chunk) {
  return nlohmann::json{{"rank", chunk.rank},
                        {"attempt", chunk.attempt},
                        {"offset", chunk.offset},
                        {"bytes", chunk.data.size()},
                        {"text", chunk.data}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// What is missing, and of which attempt.
std::string note_event(const std::string& text, std::int32_t attempt) {
  return event_text("note", nlohmann::json{{"text", text}, {"missing", true}, {"attempt", attempt}}.dump(
                                -1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Follower follower(const net::Exchange& exchange, const Identity& by) {
  return {exchange.request().remote, by.caller && !by.caller->root ? by.caller->name : ""};
}

std::string unreachable(const std::string& node) {
  return "node " + node + " cannot be reached: its logs are missing here";
}

}  // namespace

Hub::Hub(net::Loop& loop, Core& core, Clock clock)
    : loop_(loop),
      core_(core),
      clock_(clock ? std::move(clock) : now_steady),
      awake_(loop.every(driver::awake_every, [this] {
        // Behind what was read already and waits for its turn on the loop.
        loop_.post([this] {
          if (is_awake()) core_.awake();
          shut_expired(now_on_the_wall());
        });
      })) {}

// ---- agents

void Hub::add_agent(const std::shared_ptr<net::Socket>& socket, std::string remote, Papers papers) {
  const driver::Connection connection = next_id_++;
  auto agent = std::make_shared<Agent>(Agent{.socket = socket,
                                             .remote = remote,
                                             .connection = connection,
                                             .heard_at = clock_(),
                                             .papers = std::move(papers)});
  if (!agent->papers.refused.empty()) {
    log::warning("agent at {} is refused: {}", remote, agent->papers.refused);
    note_refusal(*agent, agent->papers.node, agent->papers.refused);
    return send_away(*agent, agent->papers.refused);
  }
  if (agent->papers.is_behind) tell(*agent, wire::RenewCertificate{});
  agents_[connection] = agent;
  listener_.open(connection, std::move(remote), agent->papers.node);
  socket->on_message = [this, agent](const std::string& frame) { receive(*agent, frame); };
  socket->on_close = [this, agent](const std::string& why) { drop(*agent, why); };
}

// Whoever has shown a certificate that is good is called by it, and else is nobody.
void Hub::note_refusal(const Agent& agent, const std::string& node, const std::string& why) {
  const bool is_known = agent.papers.refused.empty() && !agent.papers.node.empty();
  core_.happen(cluster::Noted{.verb = "connect",
                              .object = node.empty() ? "a node" : "node " + node,
                              .what = {},
                              .who = is_known ? "node " + agent.papers.node : "",
                              .refused = why},
               nullptr, std::nullopt, agent.remote);
}

void Hub::send_away(const Agent& agent, const std::string& why) {
  tell(agent, wire::Notice{why, true});
  agent.socket->on_message = nullptr;
  agent.socket->close();
}

void Hub::send_away(const driver::Delivery& delivery) {
  if (delivery.members.empty() && !delivery.all_members) return;
  std::vector<std::shared_ptr<Agent>> unwanted;
  for (const auto& [connection, agent] : agents_) {
    const Papers& papers = agent->papers;
    if (papers.node.empty()) continue;
    const auto changed = delivery.members.find(papers.node);
    if (changed == delivery.members.end() && !delivery.all_members) continue;
    const auto* member = changed == delivery.members.end() || !changed->second ? nullptr : &*changed->second;
    if (member != nullptr && !member->revoked && member->key == papers.key) continue;
    unwanted.push_back(agent);
  }
  for (const auto& agent : unwanted) {
    const std::string& node = agent->papers.node;
    log::warning("node {} at {} is sent away: its certificate is good no more", node, agent->remote);
    send_away(*agent, "the certificate of node '" + node + "' is good no more");
    drop(*agent, "its certificate is good no more");
  }
}

void Hub::ask_to_renew() {
  for (const auto& [connection, agent] : agents_) {
    if (!agent->papers.node.empty()) tell(*agent, wire::RenewCertificate{});
  }
}

void Hub::tell(const Agent& agent, const wire::ControllerMessage& message) {
  agent.socket->send(wire::encode(message));
}

bool Hub::is_awake() {
  std::vector<driver::Hearing::Line> lines;
  lines.reserve(agents_.size());
  for (const auto& [connection, agent] : agents_) {
    const std::string& node = listener_.node_of(connection);
    const bool speaks = listener_.speaker(node) == connection;
    lines.push_back({.connection = connection,
                     .heard_at = agent->heard_at,
                     .reads = agent->socket->reads(),
                     .node = speaks ? std::string_view(node) : std::string_view(),
                     .has_unread = [socket = agent->socket.get()] { return socket->has_unread(); }});
  }
  const auto verdict = hearing_.judge(lines, clock_());
  for (const std::string& node : verdict.excused)
    core_.happen(cluster::Reported(node, std::vector<cluster::RankReport>()), nullptr);
  return verdict.awake;
}

void Hub::start() { listener_.expect(core_.cluster_id(), core_.agents_known(), clock_()); }

Hub::Agent* Hub::agent_of(driver::Connection connection) const {
  const auto agent = agents_.find(connection);
  return agent == agents_.end() ? nullptr : agent->second.get();
}

Hub::Agent* Hub::speaker(const std::string& node) const {
  const auto connection = listener_.speaker(node);
  return connection ? agent_of(*connection) : nullptr;
}

void Hub::receive(Agent& agent, const std::string& frame) {
  agent.heard_at = clock_();
  auto heard = listener_.receive(agent.connection, frame, agent.heard_at);
  for (const auto& message : heard.answers) tell(agent, message);
  if (const Agent* first = agent_of(heard.first); first != nullptr) tell(*first, heard.to_the_first);
  if (!heard.note.empty()) log::warning("agent at {}: {}", agent.remote, heard.note);
  if (!heard.refused.empty()) {
    log::warning("agent at {} is refused: {}", agent.remote, heard.refused);
    if (!heard.claimed.empty()) note_refusal(agent, heard.claimed, heard.refused);
    return agent.socket->close();
  }
  agent.socket->become_known();
  const std::string& node = listener_.node_of(agent.connection);
  if (const Agent* replaced = agent_of(heard.replaced); replaced != nullptr) {
    replaced->socket->close();
    end_feeds(node);
  }
  if (heard.log) pass_on(node, *heard.log);
  if (!heard.event) return;
  if (const auto* hello = std::get_if<cluster::Hello>(&*heard.event)) {
    log::info("node {} at {} says hello with {} devices and {} ranks", hello->node, agent.remote,
              hello->inventory.devices.size(), hello->ranks.size());
    restart_followers(hello->node);
  }
  Core::Reply reply;
  if (heard.echo != 0) {
    reply = [socket = agent.socket, echo = heard.echo](const auto&) {
      socket->send(wire::encode(wire::ControllerMessage(wire::Echo{echo})));
    };
  }
  core_.happen(std::move(*heard.event), std::move(reply));
}

// A piece of a log, or its end, to whoever reads it.
void Hub::pass_on(const std::string& node, const wire::AgentMessage& message) {
  if (const auto* chunk = std::get_if<wire::LogChunk>(&message)) pass_on(node, *chunk);
  if (const auto* end = std::get_if<wire::LogEnd>(&message)) end_feed(node, *end);
}

// An agent that is back knows nothing of who read its logs. Their streams end; the readers come again and
// pass over what they have.
void Hub::restart_followers(const std::string& node) {
  for (auto& [id, reader] : readers_) {
    const auto asked = reader.asked.lower_bound({node, 0});
    const bool was_asked = asked != reader.asked.end() && asked->first == node;
    const auto open = reader.open.lower_bound({node, 0});
    const bool is_open = open != reader.open.end() && open->first.first == node;
    if (reader.follows && was_asked && !is_open) reader.stream->close();
  }
}

void Hub::drop(const Agent& agent, const std::string& why) {
  agents_.erase(agent.connection);
  const auto node = listener_.close(agent.connection);
  if (!node) return;
  log::info("node {} has disconnected: {}", *node, why);
  end_feeds(*node);
}

// What was under way on a connection that has ended does not come any more.
void Hub::end_feeds(const std::string& node) {
  for (auto& entry : readers_) {
    LogReader& reader = entry.second;
    std::erase_if(reader.open, [&](const auto& feed) {
      if (feed.first.first != node) return false;
      miss(reader, feed.first);
      return true;
    });
    close_if_done(reader);
  }
}

// As long as the job runs, the agent may only be connecting again: then the stream begins anew and has all of
// it (restart_followers).
void Hub::miss(LogReader& reader, const FeedKey& key) {
  if (reader.follows) {
    reader.unreached.insert(key);
  } else {
    reader.stream->write(note_event(unreachable(key.first), key.second));
  }
}

void Hub::tell_missed(LogReader& reader, std::int32_t attempt) {
  std::erase_if(reader.unreached, [&](const FeedKey& key) {
    if (key.second >= attempt) return false;
    reader.stream->write(note_event(unreachable(key.first), key.second));
    return true;
  });
}

// ---- what a commit made visible

template <class Visit>
void Hub::visit_readers(cluster::JobId job, Visit visit) {
  const auto readers = readers_of_.find(job);
  if (readers == readers_of_.end()) return;
  for (const std::uint64_t id : readers->second) visit(readers_.at(id));
}

void Hub::shut(const people::DoorChanges& changes) {
  if (changes.empty()) return;
  std::set<people::TokenId> tokens;
  std::set<people::Name> persons;
  for (const auto& [id, token] : changes.tokens) tokens.insert(id);
  for (const auto& [name, roles] : changes.persons) persons.insert(name);
  close_streams([&](const people::Credential& by, const people::Caller& caller) {
    return !by.root && (changes.all || tokens.contains(by.token) || persons.contains(caller.name));
  });
}

void Hub::shut_expired(Instant date) {
  close_streams([date](const people::Credential&, const people::Caller& caller) {
    return caller.until != Instant() && date >= caller.until;
  });
}

template <class IsShut>
void Hub::close_streams(IsShut is_shut) {
  // A stream that is closed is taken out of these as it goes.
  std::vector<std::shared_ptr<net::Stream>> streams;
  for (const auto& [id, watcher] : watchers_) {
    if (is_shut(watcher.credential, watcher.caller)) streams.push_back(watcher.stream);
  }
  for (const auto& [id, reader] : readers_) {
    if (is_shut(reader.by, reader.caller)) streams.push_back(reader.stream);
  }
  for (const auto& stream : streams) stream->close();
}

void Hub::deliver(driver::Delivery delivery) {
  shut(delivery.doors);
  std::map<cluster::JobId, std::size_t> starts;
  for (const auto& message : delivery.messages) starts[message.job] += message.start ? 1 : 0;
  for (auto& message : delivery.messages) {
    const Agent* agent = speaker(message.node);
    // A node that is away gets what it missed when it says Hello.
    if (agent == nullptr) continue;
    agent->socket->send(std::move(message.frame));
    if (!message.start) continue;
    visit_readers(message.job, [&](LogReader& reader) {
      // A stream that begins anew has the logs of the last attempt alone.
      tell_missed(reader, message.attempt);
      // The whole log of what only starts now, whatever tail was asked for.
      if (reader.follows) ask_for_logs(reader, {message.node, message.attempt}, 0, starts[message.job]);
    });
  }
  if (delivery.resync) {
    const net::Text frame = net::make_text(wire::encode(wire::ControllerMessage(wire::Resync{})));
    for (const auto& [node, connection] : listener_.speakers()) {
      if (const Agent* agent = agent_of(connection); agent != nullptr) agent->socket->send(frame);
    }
  }
  send_away(delivery);
  tell_readers(delivery);
  tell_watchers(delivery);
}

void Hub::tell_readers(const driver::Delivery& delivery) {
  for (const auto& change : delivery.jobs) {
    net::Text text;
    visit_readers(change.job, [&](LogReader& reader) {
      // Who does not know yet where the job stands is told the end by begin_reading().
      if (!reader.follows || !reader.begun) return;
      if (!text) text = net::make_text(event_text("job", change.json));
      reader.stream->write(text);
      if (change.finished) finish_reading(reader);
    });
  }
}

void Hub::tell_watchers(const driver::Delivery& delivery) {
  if (watchers_.empty() || (delivery.jobs.empty() && delivery.nodes.empty())) return;
  TurnEvents events(delivery);
  for (auto& [id, watcher] : watchers_) events.tell(watcher.caller, *watcher.stream);
}

bool Hub::seat(net::Exchange& exchange, const Follower& who) {
  switch (audience_.enter(who)) {
    case Audience::Answer::welcome:
      ++core_.watchers;
      return true;
    case Audience::Answer::address_is_full:
      refuse_seat(exchange, 429, "too many follow events or logs from this address");
      return false;
    case Audience::Answer::person_is_full:
      refuse_seat(exchange, 429, "too many follow events or logs as this user");
      return false;
    case Audience::Answer::full:
      refuse_seat(exchange, 503, "too many follow events or logs");
      return false;
  }
  return false;
}

void Hub::refuse_seat(net::Exchange& exchange, int status, const char* why) {
  exchange.answer(
      {.status = status,
       .body = wire::error_json(failed(why).remedy("close some, or come again in a moment")) + "\n",
       .retry_after_seconds = seat_retry_after_seconds});
}

void Hub::unseat(const Follower& who) {
  audience_.leave(who);
  --core_.watchers;
}

void Hub::add_watcher(net::Exchange& exchange, const Identity& by) {
  const Follower who = follower(exchange, by);
  if (!seat(exchange, who)) return;
  const std::uint64_t id = next_id_++;
  auto stream = exchange.stream([this, id, who] {
    watchers_.erase(id);
    unseat(who);
  });
  stream->write(event_text("hello", "{}"));
  watchers_[id] = {by.credential, by.caller.value_or(people::Caller()), std::move(stream)};
}

// ---- logs

void Hub::add_log_reader(net::Exchange& exchange, const LogRequest& request, const Identity& by) {
  const Follower who = follower(exchange, by);
  if (!seat(exchange, who)) return;
  const std::uint64_t id = next_id_++;
  if (!ask_where_it_stands(id, who.address, request, by.credential)) {
    unseat(who);
    return refuse_seat(exchange, 503, "too many pages are asked for at once");
  }
  auto stream = exchange.stream([this, id, who] {
    end_reading(id);
    unseat(who);
  });
  // It follows from now on: what happens between here and the answer, which comes on this loop, is not
  // missed.
  readers_[id] = {.id = id,
                  .request = request,
                  .by = by.credential,
                  .caller = by.caller.value_or(people::Caller()),
                  .stream = std::move(stream),
                  .asked = {},
                  .open = {},
                  .follows = request.follow};
  readers_of_[request.job].insert(id);
  if (look_timer_) return;
  looked_at_ = clock_();
  look_timer_ = loop_.every(feed_look_every, [this] { look_at_feeds(); });
}

bool Hub::ask_where_it_stands(std::uint64_t id, const std::string& address, const LogRequest& request,
                              const people::Credential& by) {
  return core_.look(
      address, [this, id, request, by](const cluster::State& state, const wire::StoreHealth& health) {
        if (!health.state_is_stored) return loop_.post([this, id] { cut_off(id); });
        const auto caller = cluster::identify(state, now_on_the_wall(), by);
        // One that he may not see is as one that is not there.
        const cluster::Job* seen = caller ? cluster::visible_job(state, *caller, request.job) : nullptr;
        std::shared_ptr<const Standing> job;
        if (seen != nullptr) job = std::make_shared<const Standing>(standing_of(state, *seen, request.rank));
        loop_.post([this, id, job] {
          const auto reader = readers_.find(id);
          if (reader == readers_.end()) return;
          reader->second.stream->write(event_text("job", job ? job->json : "{}"));
          if (job) return begin_reading(reader->second, *job);
          reader->second.stream->close();
        });
      });
}

// Without a word of the job, of which nothing is known now: the reader comes again.
void Hub::cut_off(std::uint64_t id) {
  const auto reader = readers_.find(id);
  if (reader != readers_.end()) reader->second.stream->close();
}

// On the core's thread: of a large gang only what is needed goes along.
Hub::Standing Hub::standing_of(const cluster::State& state, const cluster::Job& job, std::int32_t rank) {
  Standing standing{.json = wire::job_json(state, job, false), .finished = job.finished()};
  // The places may be those of the attempt before, while the next one waits.
  standing.attempt = job.placed() || job.finished() ? job.attempt : job.attempt - 1;
  for (std::size_t at = 0; at < job.places.size(); ++at) {
    if (rank >= 0 && static_cast<std::size_t>(rank) != at) continue;
    const cluster::RankStatus& status = job.ranks[at];
    Standing::Ranks& there = standing.nodes[job.places[at].node];
    // One that is assigned may run, and nobody has said so yet.
    if (status.node_fault) continue;
    there.may_have_run = true;
    there.have_run += status.state != cluster::RankState::assigned ? 1 : 0;
  }
  return standing;
}

void Hub::begin_reading(LogReader& reader, const Standing& job) {
  reader.begun = true;
  if (job.finished) reader.follows = false;
  for (const auto& [node, ranks] : job.nodes) {
    // What never ran has printed nothing, whoever speaks for the node.
    if (!ranks.may_have_run && speaker(node) == nullptr) continue;
    ask_for_logs(reader, {node, job.attempt}, reader.request.tail_lines, job.nodes.size(), ranks.have_run);
  }
  close_if_done(reader);
}

void Hub::ask_for_logs(LogReader& reader, const FeedKey& key, std::int64_t tail_lines, std::size_t nodes,
                       std::int32_t ranks) {
  const auto& [node, attempt] = key;
  if (attempt < 0 || !reader.asked.insert(key).second) return;
  const Agent* agent = speaker(node);
  if (agent == nullptr) return miss(reader, key);
  Feed& feed = reader.open[key];
  feed.heard_at = clock_();
  const auto readers = static_cast<std::int64_t>(readers_.size());
  const std::int64_t share = std::min(reader_bytes_max, readers_bytes_max / readers);
  feed.window_bytes = std::clamp(share / static_cast<std::int64_t>(std::max<std::size_t>(1, nodes)),
                                 window_bytes_min, window_bytes_max);
  wire::ReadLogs read{reader.id,           reader.request.job, attempt,
                      reader.request.rank, reader.follows,     tail_lines};
  read.credit_bytes = feed.window_bytes;
  read.ranks = ranks;
  agent->socket->send(wire::encode(wire::ControllerMessage(read)));
}

// The reader gets it at its own pace, and the node may send more when it has it.
void Hub::pass_on(const std::string& node, const wire::LogChunk& chunk) {
  const auto reader = readers_.find(chunk.stream);
  if (reader == readers_.end()) return;
  const FeedKey key{node, chunk.attempt};
  const auto feed = reader->second.open.find(key);
  if (feed == reader->second.open.end()) return;
  const auto bytes = static_cast<std::int64_t>(chunk.data.size());
  feed->second.unwritten_bytes += bytes;
  feed->second.heard_at = clock_();
  reader->second.stream->write(event_text("log", log_json(chunk)),
                               [this, id = chunk.stream, key, bytes] { took(id, key, bytes); });
}

void Hub::took(std::uint64_t id, const FeedKey& key, std::int64_t bytes) {
  const auto reader = readers_.find(id);
  if (reader == readers_.end()) return;
  const auto found = reader->second.open.find(key);
  if (found == reader->second.open.end()) return;
  Feed& feed = found->second;
  feed.unwritten_bytes -= bytes;
  feed.owed_bytes += bytes;
  feed.heard_at = clock_();
  const Agent* agent = speaker(key.first);
  if (agent == nullptr || feed.owed_bytes < feed.window_bytes / 4) return;
  agent->socket->send(wire::encode(
      wire::ControllerMessage(wire::LogCredit{id, key.second, std::exchange(feed.owed_bytes, 0)})));
}

void Hub::end_feed(const std::string& node, const wire::LogEnd& end) {
  const auto reader = readers_.find(end.stream);
  if (reader == readers_.end() || reader->second.open.erase({node, end.attempt}) == 0) return;
  if (!end.unread.empty())
    reader->second.stream->write(note_event("node " + node + ": " + end.unread, end.attempt));
  close_if_done(reader->second);
}

void Hub::look_at_feeds() {
  const Instant now = clock_();
  // Who was not listening cannot say that nobody spoke.
  const bool was_asleep = now - std::exchange(looked_at_, now) > 2 * feed_look_every;
  if (readers_.empty()) return look_timer_.reset();
  for (auto& [connection, agent] : agents_) {
    if (was_asleep) agent->heard_at = now;
  }
  const bool tells = now - told_alive_at_ >= alive_every;
  if (tells) told_alive_at_ = now;
  const net::Text alive = net::make_text(event_text("alive", "{}"));
  for (auto& [id, reader] : readers_) {
    if (tells) reader.stream->write(alive);
    for (auto at = reader.open.begin(); at != reader.open.end();) {
      auto& [key, feed] = *at;
      if (was_asleep || feed.unwritten_bytes > 0) feed.heard_at = now;
      const Agent* agent = speaker(key.first);
      const bool silent = agent == nullptr || now - agent->heard_at > node_silence_max;
      // While it follows, the job's own end or restart tells what becomes of the node.
      if (reader.follows || (!silent && now - feed.heard_at <= feed_silence_max)) {
        ++at;
        continue;
      }
      reader.stream->write(
          note_event("node " + key.first + " does not answer: its logs are missing here", key.second));
      if (agent != nullptr) agent->socket->send(wire::encode(wire::ControllerMessage(wire::StopLogs{id})));
      at = reader.open.erase(at);
    }
    close_if_done(reader);
  }
}

// The job is over; its logs may not be: a short job ends before anybody was asked for them.
void Hub::finish_reading(LogReader& reader) {
  reader.follows = false;
  tell_missed(reader, std::numeric_limits<std::int32_t>::max());
  for (auto& [key, feed] : reader.open) {
    const Agent* agent = speaker(key.first);
    if (agent == nullptr) continue;
    feed.heard_at = clock_();
    wire::ReadLogs rest;
    rest.stream = reader.id;
    rest.attempt = key.second;
    rest.finish = true;
    agent->socket->send(wire::encode(wire::ControllerMessage(rest)));
  }
  close_if_done(reader);
}

void Hub::close_if_done(LogReader& reader) {
  if (reader.begun && !reader.follows && reader.open.empty()) reader.stream->close();
}

void Hub::end_reading(std::uint64_t id) {
  const auto reader = readers_.find(id);
  if (reader == readers_.end()) return;
  const net::Text frame = net::make_text(wire::encode(wire::ControllerMessage(wire::StopLogs{id})));
  std::set<std::string> nodes;
  for (const auto& [key, feed] : reader->second.open) nodes.insert(key.first);
  for (const auto& node : nodes) {
    if (const Agent* agent = speaker(node); agent != nullptr) agent->socket->send(frame);
  }
  const auto same_job = readers_of_.find(reader->second.request.job);
  same_job->second.erase(id);
  if (same_job->second.empty()) readers_of_.erase(same_job);
  readers_.erase(reader);
}

}  // namespace tutti::controller
