#include "control/controller/hub.hpp"

#include <nlohmann/json.hpp>

#include "base/log/log.hpp"
#include "control/wire/messages.hpp"

namespace tutti::controller {
namespace {

// A program may write any bytes; JSON takes only UTF-8.
std::string log_json(std::int32_t rank, const std::string& text) {
  return nlohmann::json{{"rank", rank}, {"text", text}}.dump(-1, ' ', false,
                                                             nlohmann::json::error_handler_t::replace);
}

std::string note_json(const std::string& text) { return nlohmann::json{{"text", text}}.dump(); }

}  // namespace

std::string event_text(std::string_view name, std::string_view data) {
  return "event: " + std::string(name) + "\ndata: " + std::string(data) + "\n\n";
}

// ---- agents

void Hub::add_agent(const std::shared_ptr<net::Socket>& socket, std::string remote) {
  const driver::Connection connection = next_id_++;
  auto agent = std::make_shared<Agent>(Agent{socket, "", std::move(remote), connection});
  agents_[connection] = agent;
  socket->on_message = [this, agent](const std::string& frame) { receive(*agent, frame); };
  socket->on_close = [this, agent](const std::string& why) { drop(*agent, why); };
}

Hub::Agent* Hub::speaker(const std::string& node) const {
  const auto connection = speakers_.of(node);
  const auto agent = connection ? agents_.find(*connection) : agents_.end();
  return agent == agents_.end() ? nullptr : agent->second.get();
}

void Hub::greet(Agent& agent, cluster::Hello hello) {
  agent.node = hello.node;
  if (hello.address.empty()) hello.address = agent.remote;
  const auto greeting = speakers_.greet(agent.node, agent.connection);
  if (!greeting.accepted) return refuse(agent, "a newer connection has spoken for " + agent.node);
  if (const auto replaced = agents_.find(greeting.replaced); replaced != agents_.end())
    replaced->second->socket->close();
  log::info("node {} at {} says hello with {} devices and {} ranks", hello.node, agent.remote,
            hello.inventory.devices.size(), hello.ranks.size());
  restart_followers(agent.node);
  core_.happen(std::move(hello), nullptr);
}

void Hub::refuse(const Agent& agent, const std::string& why) {
  log::warning("agent at {}: {}; it is disconnected", agent.remote, why);
  agent.socket->close();
}

void Hub::receive(Agent& agent, const std::string& frame) {
  auto message = wire::decode_agent_message(frame);
  auto* hello = message ? std::get_if<cluster::Hello>(&*message) : nullptr;
  if (!message) return refuse(agent, message.error().text());
  if (agent.node.empty() && hello == nullptr) return refuse(agent, "no Hello");
  if (hello != nullptr && !agent.node.empty() && hello->node != agent.node)
    return refuse(agent, "it was " + agent.node + " and now says " + hello->node);
  if (hello != nullptr) return greet(agent, std::move(*hello));
  if (!speakers_.speaks(agent.node, agent.connection)) return;
  if (const auto* beat = std::get_if<wire::Heartbeat>(&*message))
    return core_.happen(cluster::Heard{agent.node, beat->kept}, nullptr);
  if (auto* report = std::get_if<cluster::RankReport>(&*message)) {
    return core_.happen(cluster::Reported{agent.node, std::move(*report)}, nullptr);
  }
  if (const auto* chunk = std::get_if<wire::LogChunk>(&*message)) {
    const auto reader = readers_.find(chunk->stream);
    if (reader != readers_.end())
      reader->second.stream->write(event_text("log", log_json(chunk->rank, chunk->data)));
    return;
  }
  if (const auto* end = std::get_if<wire::LogEnd>(&*message)) {
    const auto reader = readers_.find(end->stream);
    if (reader == readers_.end()) return;
    reader->second.open.erase(agent.node);
    close_if_done(reader->second);
  }
}

// An agent that is back knows nothing of who read its logs. Their streams end; the readers come again and
// pass over what they have.
void Hub::restart_followers(const std::string& node) {
  for (auto& [id, reader] : readers_) {
    const auto asked = reader.asked.lower_bound({node, 0});
    const bool was_asked = asked != reader.asked.end() && asked->first == node;
    if (reader.follows && was_asked && !reader.open.contains(node)) reader.stream->close();
  }
}

void Hub::drop(const Agent& agent, const std::string& why) {
  agents_.erase(agent.connection);
  if (!speakers_.drop(agent.node, agent.connection)) return;
  log::info("node {} has disconnected: {}", agent.node, why);
  for (auto& [id, reader] : readers_) {
    if (reader.open.erase(agent.node) == 0) continue;
    reader.stream->write(event_text(
        "note", note_json("node " + agent.node + " cannot be reached: its logs are missing here")));
    close_if_done(reader);
  }
}

// ---- what a commit made visible

void Hub::deliver(driver::Delivery delivery) {
  for (auto& message : delivery.messages) {
    const Agent* agent = speaker(message.node);
    // A node that is away gets what it missed when it says Hello.
    if (agent == nullptr) continue;
    agent->socket->send(std::move(message.frame));
    if (!message.start) continue;
    for (auto& [id, reader] : readers_) {
      if (reader.request.job == message.job && reader.follows)
        ask_for_logs(reader, message.node, message.attempt);
    }
  }
  if (delivery.resync) {
    const std::string frame = wire::encode(wire::ControllerMessage(wire::Resync{}));
    for (const auto& [node, connection] : speakers_.all()) {
      if (const Agent* agent = speaker(node); agent != nullptr) agent->socket->send(frame);
    }
  }
  for (const auto& change : delivery.jobs) {
    const std::string text = event_text("job", change.json);
    for (auto& [id, stream] : watchers_) stream->write(text);
    for (auto& [id, reader] : readers_) {
      // Who does not know yet where the job stands is told the end by begin_reading().
      if (reader.request.job != change.job || !reader.follows || !reader.begun) continue;
      reader.stream->write(text);
      if (change.finished) finish_reading(reader);
    }
  }
  for (const auto& json : delivery.nodes) {
    const std::string text = event_text("node", json);
    for (auto& [id, stream] : watchers_) stream->write(text);
  }
}

void Hub::add_watcher(net::Exchange& exchange) {
  const std::uint64_t id = next_id_++;
  ++core_.watchers;
  auto stream = exchange.stream([this, id] {
    watchers_.erase(id);
    --core_.watchers;
  });
  stream->write(event_text("hello", "{}"));
  watchers_[id] = std::move(stream);
}

// ---- logs

void Hub::add_log_reader(net::Exchange& exchange, const LogRequest& request) {
  const std::uint64_t id = next_id_++;
  ++core_.watchers;
  auto stream = exchange.stream([this, id] { end_reading(id); });
  // It follows from now on: what happens between here and the answer to the question below is not missed.
  readers_[id] = {id, request, std::move(stream), {}, {}, false, request.follow};
  core_.ask([this, id, job = request.job](const cluster::State& state, const wire::StoreHealth&) {
    const auto found = state.jobs.find(job);
    std::optional<cluster::Job> copy;
    if (found != state.jobs.end()) copy = found->second;
    const std::string json = copy ? wire::job_json(state, *copy, false) : "{}";
    loop_.post([this, id, copy, json] {
      const auto reader = readers_.find(id);
      if (reader == readers_.end()) return;
      reader->second.stream->write(event_text("job", json));
      if (copy) return begin_reading(id, *copy);
      reader->second.stream->close();
    });
  });
}

void Hub::begin_reading(std::uint64_t id, const cluster::Job& job) {
  LogReader& reader = readers_.at(id);
  reader.begun = true;
  if (job.finished()) reader.follows = false;
  std::set<std::string> nodes;
  for (std::size_t rank = 0; rank < job.places.size(); ++rank) {
    if (reader.request.rank < 0 || static_cast<std::size_t>(reader.request.rank) == rank)
      nodes.insert(job.places[rank].node);
  }
  // The places may be those of the attempt before, while the next one waits.
  const std::int32_t attempt = job.placed() || job.finished() ? job.attempt : job.attempt - 1;
  for (const auto& node : nodes) ask_for_logs(reader, node, attempt);
  close_if_done(reader);
}

void Hub::ask_for_logs(LogReader& reader, const std::string& node, std::int32_t attempt) {
  if (attempt < 0 || !reader.asked.emplace(node, attempt).second) return;
  const Agent* agent = speaker(node);
  if (agent == nullptr) {
    reader.stream->write(
        event_text("note", note_json("node " + node + " cannot be reached: its logs are missing here")));
    return;
  }
  reader.open.insert(node);
  agent->socket->send(wire::encode(
      wire::ControllerMessage(wire::ReadLogs{reader.id, reader.request.job, attempt, reader.request.rank,
                                             reader.follows, reader.request.tail_lines})));
}

// The job is over; its logs may not be: a short job ends before anybody was asked for them.
void Hub::finish_reading(LogReader& reader) {
  reader.follows = false;
  wire::ReadLogs rest;
  rest.stream = reader.id;
  rest.finish = true;
  const std::string frame = wire::encode(wire::ControllerMessage(rest));
  for (const auto& node : reader.open) {
    if (const Agent* agent = speaker(node); agent != nullptr) agent->socket->send(frame);
  }
  close_if_done(reader);
}

void Hub::close_if_done(LogReader& reader) {
  if (!reader.follows && reader.open.empty()) reader.stream->close();
}

void Hub::end_reading(std::uint64_t id) {
  const auto reader = readers_.find(id);
  if (reader == readers_.end()) return;
  --core_.watchers;
  const std::string frame = wire::encode(wire::ControllerMessage(wire::StopLogs{id}));
  for (const auto& node : reader->second.open) {
    if (const Agent* agent = speaker(node); agent != nullptr) agent->socket->send(frame);
  }
  readers_.erase(reader);
}

}  // namespace tutti::controller
