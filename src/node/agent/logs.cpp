#include "node/agent/logs.hpp"

#include <algorithm>
#include <limits>

#include "node/agent/rank_names.hpp"
#include "node/agent/shim_processes.hpp"
#include "node/rank/log_segments.hpp"

namespace tutti::agent {
namespace {

constexpr std::int64_t piece_bytes = 128 << 10;
constexpr std::int64_t piece_bytes_min = 16;
constexpr std::size_t log_threads_max = 4;
constexpr Duration log_look_every = 50ms;
// Many readers of logs to which nothing is added are looked for less often, once a second at the least:
// thousands would take all of a CPU to find nothing.
constexpr std::size_t readers_few = 20;
constexpr Duration log_look_every_max = 1s;
// A log that takes longer to read is on a disk that does not answer.
constexpr Duration log_look_max = 10s;
constexpr Duration room_every = 2ms;
constexpr std::size_t tail_bytes_max = 1 << 20;

// How many bytes at the end are the beginning of a letter whose rest is still to come. In UTF-8 the first
// byte says how many follow; what is no UTF-8 has no such end.
std::size_t begun_letter_bytes(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t letter_bytes = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return letter_bytes > back ? back : 0;
  }
  return 0;
}

Duration quiet_look_every(std::size_t readers) {
  const auto times = static_cast<Duration::rep>(std::max<std::size_t>(1, readers / readers_few));
  return std::min(log_look_every_max, log_look_every * times);
}

// What the controller knows to have run here, and nobody finds any more.
std::string not_here(std::int32_t ranks, std::size_t found) {
  if (ranks <= 0 || found >= static_cast<std::size_t>(ranks)) return "";
  const std::size_t gone = static_cast<std::size_t>(ranks) - found;
  return (ranks == 1 ? "the log is" : std::to_string(gone) + " of " + std::to_string(ranks) + " logs are") +
         std::string(
             " not here any more: a node removes them after a while (--keep-logs and --keep-logs-max of "
             "its agent); or the rank never started");
}

}  // namespace

Logs::Logs(net::Loop& loop, std::string ranks_folder, Calls calls)
    : loop_(loop),
      ranks_folder_(std::move(ranks_folder)),
      calls_(std::move(calls)),
      lane_(loop, LaneLimits{.threads_max = log_threads_max}) {}

void Logs::read(const wire::ReadLogs& request) {
  if (request.finish) return finish(request);
  const Key key{request.stream, request.attempt};
  Reader& reader = readers_[key] = Reader{};
  reader.request = request;
  reader.credit_bytes = request.credit_bytes;
  reader.serial = next_serial_++;
  look(key);
  turn();
}

// A stream that is not here any more has sent its end already; it is sent again, which harms nobody.
void Logs::finish(const wire::ReadLogs& request) {
  const Key key{request.stream, request.attempt};
  const auto reader = readers_.find(key);
  if (reader == readers_.end()) return calls_.send(wire::LogEnd{request.stream, request.attempt});
  reader->second.request.follow = false;
  reader->second.begun = false;
  reader->second.request.tail_lines = 0;
  look(key);
}

void Logs::credit(const wire::LogCredit& credit) {
  const Key key{credit.stream, credit.attempt};
  const auto reader = readers_.find(key);
  if (reader == readers_.end()) return;
  reader->second.credit_bytes += credit.bytes;
  look(key);
}

void Logs::stop(std::uint64_t stream) {
  readers_.erase(readers_.lower_bound({stream, std::numeric_limits<std::int32_t>::min()}),
                 readers_.upper_bound({stream, std::numeric_limits<std::int32_t>::max()}));
}

void Logs::turn() {
  std::vector<Key> keys;
  for (const auto& [key, reader] : readers_) keys.push_back(key);
  const Duration quiet_every = quiet_look_every(keys.size());
  for (const Key& key : keys) {
    const Reader& reader = readers_.at(key);
    if (!is_stuck(reader)) {
      if (!reader.quiet || Clock::now() - reader.asked_at >= quiet_every) look(key);
      continue;
    }
    // Who reads it is told so, and does not wait for a disk.
    calls_.send(
        wire::LogEnd{key.first, key.second, reader.unread + "the disk that its log is on does not answer\n"});
    readers_.erase(key);
  }
  timer_.reset();
  if (!readers_.empty()) timer_ = loop_.after(log_look_every, [this] { turn(); });
}

// One look at a time for each reader. Without credit, or while the connection is busy, what there is waits on
// the disk.
void Logs::look(const Key& key) {
  const auto found = readers_.find(key);
  if (found == readers_.end()) return;
  Reader& reader = found->second;
  if (reader.looking || reader.credit_bytes < piece_bytes_min) return;
  if (!calls_.room()) {
    if (!room_timer_) {
      room_timer_ = loop_.after(room_every, [this] {
        room_timer_.reset();
        turn();
      });
    }
    return;
  }
  reader.looking = true;
  reader.asked_at = Clock::now();
  Look look;
  look.ranks_folder = ranks_folder_;
  look.request = reader.request;
  look.sources = reader.sources;
  look.running = calls_.running(reader.request.job, reader.request.attempt);
  look.credit_bytes = reader.credit_bytes;
  look.last_rank = reader.last_rank;
  look.first = !std::exchange(reader.begun, true);
  look.finds = look.first || reader.sources.empty() || reader.lacks_one || look.lacks_one();
  lane_.run(
      owner_of(reader.request.job),
      [this, key, serial = reader.serial, look = std::move(look)]() mutable -> Lane::Then {
        look.run();
        return
            [this, key, serial, look = std::move(look)]() mutable { looked(key, serial, std::move(look)); };
      },
      [this, key, serial = reader.serial](const std::string& why) { could_not_look(key, serial, why); });
}

// Looks at one job wait for each other: hundreds of readers in a line are no sign of a disk that does not
// answer, one look that does not come back is. Where such looks have taken all threads, the others wait in
// vain.
bool Logs::is_stuck(const Reader& reader) const {
  if (!reader.looking) return false;
  const bool in_vain = lane_.full() && Clock::now() - reader.asked_at > log_look_max;
  return in_vain || lane_.at_work(owner_of(reader.request.job)) > log_look_max;
}

void Logs::could_not_look(const Key& key, std::uint64_t serial, const std::string& why) {
  const auto found = readers_.find(key);
  if (found == readers_.end() || found->second.serial != serial) return;
  calls_.send(wire::LogEnd{key.first, key.second, found->second.unread + why + "\n"});
  readers_.erase(found);
}

void Logs::looked(const Key& key, std::uint64_t serial, Look look) {
  const auto found = readers_.find(key);
  if (found == readers_.end() || found->second.serial != serial) return;
  Reader& reader = found->second;
  reader.looking = false;
  reader.quiet = look.chunks.empty();
  reader.lacks_one = look.lacks_one();
  reader.sources = std::move(look.sources);
  reader.last_rank = look.last_rank;
  reader.unread = (reader.unread + look.unread).substr(0, wire::unread_bytes_max);
  for (auto& chunk : look.chunks) {
    reader.credit_bytes -= static_cast<std::int64_t>(chunk.data.size());
    calls_.send(std::move(chunk));
  }
  if (!look.chunks.empty()) return this->look(key);
  // What happened since the look began is seen by the next.
  const bool asked_since = !reader.begun || reader.request.follow != look.request.follow;
  const bool goes_on = look.request.follow && (reader.sources.empty() || look.runs_one());
  if (asked_since) return this->look(key);
  if (goes_on) return;
  calls_.send(wire::LogEnd{key.first, key.second,
                           reader.unread + not_here(reader.request.ranks, reader.sources.size())});
  readers_.erase(found);
}

bool Logs::Look::wants(std::int32_t rank) const { return request.rank < 0 || request.rank == rank; }

bool Logs::Look::runs_one() const {
  return std::any_of(running.begin(), running.end(), [&](std::int32_t rank) { return wants(rank); });
}

bool Logs::Look::lacks_one() const {
  return std::any_of(running.begin(), running.end(),
                     [&](std::int32_t rank) { return wants(rank) && !sources.contains(rank); });
}

// ---- on the lane

void Logs::Look::run() {
  if (finds) find();
  auto at = sources.upper_bound(last_rank);
  for (std::size_t count = 0; count < sources.size(); ++count, ++at) {
    if (credit_bytes < piece_bytes_min) return;
    if (at == sources.end()) at = sources.begin();
    if (!at->second.broken) read(at->first, at->second);
    last_rank = at->first;
  }
}

// A rank whose log was not there when the stream began is read from its beginning, whatever the tail.
void Logs::Look::find() {
  for (const auto& [rank, folder] : log_folders(ranks_folder, request.job, request.attempt)) {
    if (!wants(rank)) continue;
    const auto [source, added] = sources.try_emplace(rank, Source{folder});
    if (!added) continue;
    const auto end = rank::log_end(folder);
    if (end && !request.follow) source->second.end = *end;
    if (!first || request.tail_lines == 0) continue;
    if (request.tail_lines < 0) {
      if (end) source->second.offset = *end;
      continue;
    }
    const auto tail = rank::last_lines(folder, static_cast<std::size_t>(request.tail_lines), tail_bytes_max);
    if (tail && end) source->second.offset = *end - std::min<std::uint64_t>(*end, tail->size());
  }
}

void Logs::Look::read(std::int32_t rank, Source& source) {
  if (source.offset >= source.end) return;
  const auto wanted = static_cast<std::size_t>(
      std::min({static_cast<std::uint64_t>(piece_bytes), static_cast<std::uint64_t>(credit_bytes),
                source.end - source.offset}));
  auto chunk = rank::read_log(source.folder, source.offset, wanted);
  if (!chunk) {
    source.broken = true;
    unread += "rank " + std::to_string(rank) + ": " + chunk.error().text() + "\n";
    return;
  }
  // Pieces go on as JSON, which holds whole letters only.
  const bool cut = chunk->bytes.size() == wanted && source.offset + wanted < source.end;
  const bool goes_on = cut || running.contains(rank);
  if (goes_on) chunk->bytes.resize(chunk->bytes.size() - begun_letter_bytes(chunk->bytes));
  if (chunk->bytes.empty()) return;
  source.offset = chunk->offset + chunk->bytes.size();
  credit_bytes -= static_cast<std::int64_t>(chunk->bytes.size());
  chunks.push_back({request.stream, rank, std::move(chunk->bytes), request.attempt, chunk->offset});
}

}  // namespace tutti::agent
