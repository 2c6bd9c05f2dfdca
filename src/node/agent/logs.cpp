#include "node/agent/logs.hpp"

#include <algorithm>

#include "node/rank/log_segments.hpp"

namespace tutti::agent {
namespace {

constexpr std::size_t piece_bytes = 128 << 10;
constexpr Duration look_every = 50ms;
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

}  // namespace

void Logs::read(const wire::ReadLogs& request) {
  if (request.finish) return finish(request.stream);
  // The same stream asks again when the next attempt lands here: what it read before is over.
  Reader& reader = readers_[request.stream] = Reader{request, {}};
  find_sources(reader);
  turn();
}

// A stream that is not here any more has sent its end already; it is sent again, which harms nobody.
void Logs::finish(std::uint64_t stream) {
  const auto reader = readers_.find(stream);
  if (reader == readers_.end()) return calls_.send(wire::LogEnd{stream});
  reader->second.request.follow = false;
  find_sources(reader->second);
  turn();
}

void Logs::find_sources(Reader& reader) {
  const auto& request = reader.request;
  for (auto& [rank, folder] : calls_.folders(request.job, request.attempt)) {
    if (request.rank >= 0 && request.rank != rank) continue;
    const bool added = reader.sources.try_emplace(rank, Source{folder, 0}).second;
    if (!added || request.tail_lines <= 0) continue;
    const auto tail = rank::last_lines(folder, static_cast<std::size_t>(request.tail_lines), tail_bytes_max);
    const auto end = rank::log_end(folder);
    if (tail && end) reader.sources[rank].offset = *end - std::min<std::uint64_t>(*end, tail->size());
  }
}

bool Logs::send_piece(const Reader& reader, std::int32_t rank, Source& source) {
  auto chunk = rank::read_log(source.folder, source.offset, piece_bytes);
  if (!chunk) return false;
  // Pieces go on as JSON, which holds whole letters only.
  const bool goes_on = chunk->bytes.size() == piece_bytes ||
                       calls_.running({reader.request.job, reader.request.attempt, rank});
  if (goes_on) chunk->bytes.resize(chunk->bytes.size() - begun_letter_bytes(chunk->bytes));
  if (chunk->bytes.empty()) return false;
  source.offset = chunk->offset + chunk->bytes.size();
  calls_.send(wire::LogChunk{reader.request.stream, rank, std::move(chunk->bytes)});
  return true;
}

bool Logs::send_some(Reader& reader) {
  bool sent = false;
  for (auto& [rank, source] : reader.sources) sent = send_piece(reader, rank, source) || sent;
  return sent;
}

// One piece of every log, and again soon: a long log does not keep the loop from its other work.
void Logs::turn() {
  bool busy = false;
  for (auto at = readers_.begin(); at != readers_.end();) {
    Reader& reader = at->second;
    const bool sent = send_some(reader);
    busy = busy || sent;
    // A shipped folder is fetched before its ranks start: their logs are still to come.
    if (reader.sources.empty()) find_sources(reader);
    if (sent || goes_on(reader)) {
      ++at;
      continue;
    }
    calls_.send(wire::LogEnd{reader.request.stream});
    at = readers_.erase(at);
  }
  timer_.reset();
  if (!readers_.empty()) timer_ = loop_.after(busy ? Duration(2ms) : look_every, [this] { turn(); });
}

bool Logs::goes_on(const Reader& reader) const {
  if (!reader.request.follow) return false;
  return reader.sources.empty() ||
         std::any_of(reader.sources.begin(), reader.sources.end(), [&](const auto& source) {
           return calls_.running({reader.request.job, reader.request.attempt, source.first});
         });
}

// With the last rank's end goes the end of the stream: a job that is over then waits for no log.
void Logs::flush(const RankKey& key) {
  for (auto at = readers_.begin(); at != readers_.end();) {
    Reader& reader = (at++)->second;
    if (reader.request.job != key.job || reader.request.attempt != key.attempt) continue;
    find_sources(reader);
    const auto source = reader.sources.find(key.rank);
    if (source == reader.sources.end()) continue;
    while (send_piece(reader, key.rank, source->second)) continue;
    if (goes_on(reader)) continue;
    const std::uint64_t stream = reader.request.stream;
    calls_.send(wire::LogEnd{stream});
    readers_.erase(stream);
  }
}

}  // namespace tutti::agent
