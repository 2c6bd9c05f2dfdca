// The contents of shipped folders, by their hash.
#include <array>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "control/controller/call.hpp"

namespace tutti::controller {
namespace {

// Disks are slow, and hashes of 8 MiB take their time: neither may hold up the loop that hears the agents.
void beside_the_loop(const Call& call, void (*handle)(const Call& call)) {
  if (call.services().desk.run([call, handle] { handle(call); })) return;
  call.refuse(failed("too many blobs are on their way at once").remedy("try again in a moment"));
}

void list_missing_now(const Call& call) {
  const auto asked = nlohmann::json::parse(call.body(), nullptr, false);
  if (!asked.is_array()) return call.refuse(invalid("expected a list of hashes"));
  auto missing = nlohmann::json::array();
  for (const auto& hash : asked) {
    if (!hash.is_string()) return call.refuse(invalid("expected a list of hashes"));
    if (!call.services().blobs.use(hash.get<std::string>())) missing.push_back(hash);
  }
  call.answer(missing.dump());
}

void put_blob_now(const Call& call) {
  if (auto put = call.services().blobs.put(call.argument("hash"), as_bytes(call.body())); !put)
    return call.refuse(put.error());
  call.answer("{}");
}

void get_blob_now(const Call& call) {
  auto content = call.services().blobs.get(call.argument("hash"));
  if (!content) return call.refuse(content.error(), 404);
  call.exchange().answer({.status = 200, .body = std::move(*content), .type = "application/octet-stream"});
}

void list_missing(const Call& call) { beside_the_loop(call, list_missing_now); }
void put_blob(const Call& call) { beside_the_loop(call, put_blob_now); }
void get_blob(const Call& call) { beside_the_loop(call, get_blob_now); }

}  // namespace

std::span<const Route> blob_routes() {
  static const std::array table{
      Route{.method = "POST",
            .path = "/blobs/missing",
            .body_bytes_max = net::body_bytes_max,
            .request = {"a list of hashes"},
            .answer = {"a list of hashes"},
            .summary = "Which of these are not stored yet",
            .handle = list_missing},
      Route{.method = "PUT",
            .path = "/blobs/{hash}",
            .body_bytes_max = net::body_bytes_max,
            .request = {"bytes", Format::bytes},
            .answer = {"{}"},
            .summary = "Stores a chunk of a shipped file, 8 MiB at most, or a manifest under its SHA-256",
            .handle = put_blob},
      Route{.method = "GET",
            .path = "/blobs/{hash}",
            .caller = Caller::agent,
            .answer = {"bytes", Format::bytes},
            .summary = "What is stored under a SHA-256",
            .handle = get_blob},
  };
  return table;
}

}  // namespace tutti::controller
