// The REST API as data: each request that the controller answers is a row, with who may send it, its limits,
// its words and its handler. Dispatch, the OpenAPI page, `tutti api` and the table of docs/api.md are all
// made of these rows. A family of requests keeps its rows and handlers in a file of its own,
// routes_FAMILY.cpp. Pure functions: any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/people/role.hpp"
#include "net/http/pattern.hpp"

namespace tutti::controller {

class Call;

// Every path of the API begins with this.
constexpr std::string_view api_prefix = "/api/v1";

// Bodies that hold a few fields; what takes more says so in its row.
constexpr std::size_t small_body_bytes_max = 64 << 10;
// One job with the longest command and environment, escaped as such text is.
constexpr std::size_t one_job_body_bytes_max = 4 << 20;

// What it takes to be let in: nothing, the join token of agents, being somebody who is known, or a role in
// some queue at least (control/people). Which queue, and whose job, is looked at later, by what is asked for.
// The cluster's own token, the admin token, opens everything.
enum class Need { nothing, agent, person, viewer, user, queue_admin, operate, admin };
// The role; none where none is needed.
std::optional<people::Role> role_of(Need need);
// Which of the limits by address a request counts against.
enum class RateClass { open_pages, logins, joins, requests };
enum class Format { json, bytes, events, websocket };

std::string_view name_of(Need need);
std::string_view name_of(RateClass rate);
std::string_view name_of(Format format);

struct Message {
  std::string_view name;  // of proto/tutti.proto, or what it is in words; "" for none
  Format format = Format::json;
};

// The value of a parameter that is there or not. Any other word than these is refused before its page is
// asked.
constexpr std::string_view flag_value = "1";
constexpr bool is_yes(std::string_view value) { return value == flag_value || value == "true"; }
constexpr bool is_no(std::string_view value) { return value == "0" || value == "false"; }

// One of the query: ?NAME=VALUE.
struct Parameter {
  std::string_view name;
  std::string_view value;  // as people read it: 1, N, ID
  std::string_view meaning;
};

struct Route {
  std::string_view method;
  std::string_view path;  // below the prefix; a part in braces is an argument: "/jobs/{id}"
  Need need = Need::admin;
  RateClass rate = RateClass::requests;
  std::size_t body_bytes_max = small_body_bytes_max;
  bool spreads = false;      // a short body may stand for many jobs
  bool is_question = false;  // nobody needs the answer once who asked has gone
  std::vector<Parameter> query = {};
  Message request = {};
  Message answer = {};
  std::string_view summary = {};  // one line
  void (*handle)(const Call& call) = nullptr;
};

// Every row, family by family.
std::span<const Route> routes();

using net::Arguments;

// The rows of one path, a row for each method that it takes; none where there is no such page.
struct Page {
  std::vector<const Route*> routes;
  Arguments arguments;

  // Null if the page does not take the method.
  const Route* route(std::string_view method) const;
  // "GET, PUT"
  std::string methods() const;
};

// `parts` are those of the whole path, each decoded. Where two patterns fit, the one with more literal parts
// is meant:
// "/blobs/missing" is no hash.
Page find_page(std::span<const Route> table, std::span<const std::string> parts);

// The description of the API, as OpenAPI 3 in JSON.
std::string openapi_json();

// The families, in the order of the table.
std::span<const Route> cluster_routes();
std::span<const Route> login_routes();
std::span<const Route> job_routes();
std::span<const Route> explain_routes();
std::span<const Route> node_routes();
std::span<const Route> join_routes();
std::span<const Route> authority_routes();
std::span<const Route> queue_routes();
std::span<const Route> people_routes();
std::span<const Route> fabric_routes();
std::span<const Route> blob_routes();
std::span<const Route> audit_routes();
std::span<const Route> secret_routes();
std::span<const Route> service_routes();

}  // namespace tutti::controller
