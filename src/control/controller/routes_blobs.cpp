// The contents of shipped folders, by their hash.
#include <array>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/clock/clock.hpp"
#include "base/json/parse.hpp"
#include "base/log/log.hpp"
#include "base/rate.hpp"
#include "control/controller/call.hpp"
#include "net/sync/digest.hpp"

namespace tutti::controller {
namespace {

constexpr int no_room_status = 507;
// As many as a body holds: 64 letters, quotes and a comma each.
constexpr std::size_t hashes_asked_max = net::body_bytes_max / 67;

// Nothing of what is no hash goes back, and each is looked for once.
Result<std::set<std::string>> hashes_in(const std::string& body) {
  // A list and what is in it, before anything is kept of it: millions of small values take far more room than
  // their text.
  if (auto scanned = tutti::json::scan(body, hashes_asked_max + 1); !scanned)
    return invalid(scanned.error().text()).within("a list of hashes");
  const auto listed = nlohmann::json::parse(body, nullptr, false);
  if (!listed.is_array()) return invalid("expected a list of hashes");
  if (listed.size() > hashes_asked_max)
    return invalid("a request asks for at most " + std::to_string(hashes_asked_max) +
                   " hashes, and this for " + std::to_string(listed.size()))
        .remedy("ask in several requests");
  std::set<std::string> hashes;
  for (const auto& entry : listed) {
    if (!entry.is_string() || !sync::is_hash(entry.get_ref<const std::string&>()))
      return invalid("expected a list of hashes, each of 64 digits and letters from a to f");
    if (!hashes.insert(entry.get<std::string>()).second)
      return invalid("hash " + entry.get<std::string>() + " is there twice").remedy("ask for each once");
  }
  return hashes;
}

void list_missing_now(const Call& call) {
  const auto asked = hashes_in(call.body());
  if (!asked) return call.refuse(asked.error());
  auto missing = nlohmann::json::array();
  for (const std::string& hash : *asked) {
    if (!call.services().blobs.use(hash)) missing.push_back(hash);
  }
  call.answer(missing.dump());
}

void put_blob_now(const Call& call) {
  sync::BlobStore& blobs = call.services().blobs;
  Janitor& janitor = call.services().janitor;
  const std::string& hash = call.argument("hash");
  const bool is_new = !blobs.has(hash);
  const Bytes more(is_new ? static_cast<std::int64_t>(call.body().size()) : 0);
  if (is_new) {
    if (auto room = janitor.make_room(more); !room) return call.refuse(room.error(), no_room_status);
  }
  if (auto put = blobs.put(hash, as_bytes(call.body())); !put) return call.refuse(put.error());
  if (is_new) janitor.stored(more);
  call.answer("{}");
}

// Agents ask again and again: a few lines tell as much as all of them.
void log_trouble(const Error& error) {
  static std::mutex mutex;
  static TokenBucket lines({.per_second = 0.1, .burst = 3}, now_steady());
  const std::lock_guard lock(mutex);
  if (lines.take(now_steady()) == Duration::zero()) log::error("shipped contents: {}", error.text());
}

// A disk in trouble is the fault of no job: only what is not there is told to be, and that ends the job.
void get_blob_now(const Call& call) {
  auto content = call.services().blobs.get(call.argument("hash"));
  const bool wrong = !content && content.error().code() == ErrorCode::invalid;
  if (wrong) return call.refuse(content.error(), 404);
  if (!content) {
    log_trouble(content.error());
    return call.refuse_for_now(content.error());
  }
  if (!*content) return call.refuse(failed("blob " + call.argument("hash") + " is not in the store"), 404);
  call.exchange().answer({.status = 200, .body = std::move(**content), .type = "application/octet-stream"});
}

// Disks are slow, and hashes of 8 MiB take their time: neither may hold up the loop that hears the agents,
// nor those who ship folders the nodes that fetch them.
void list_missing(const Call& call) {
  call.hand_to(call.services().desk, [call] { list_missing_now(call); });
}
void put_blob(const Call& call) {
  call.hand_to(call.services().desk, [call] { put_blob_now(call); });
}
void get_blob(const Call& call) {
  call.hand_to(call.services().nodes_desk, [call] { get_blob_now(call); });
}

}  // namespace

std::span<const Route> blob_routes() {
  static const std::array table{
      Route{.method = "POST",
            .path = "/blobs/missing",
            .need = Need::user,
            .body_bytes_max = net::body_bytes_max,
            .request = {"a list of hashes"},
            .answer = {"a list of hashes"},
            .summary = "Which of these are not stored yet",
            .handle = list_missing},
      Route{.method = "PUT",
            .path = "/blobs/{hash}",
            .need = Need::user,
            .body_bytes_max = net::body_bytes_max,
            .request = {"bytes", Format::bytes},
            .answer = {"{}"},
            .summary = "Stores a chunk of a shipped file, 8 MiB at most, or a manifest under its SHA-256",
            .handle = put_blob},
      Route{.method = "GET",
            .path = "/blobs/{hash}",
            .need = Need::agent,
            .answer = {"bytes", Format::bytes},
            .summary = "What is stored under a SHA-256",
            .handle = get_blob},
  };
  return table;
}

}  // namespace tutti::controller
