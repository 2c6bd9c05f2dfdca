// The OpenAPI page: the rows of the table, as JSON for machines.
#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "base/version/version.hpp"
#include "control/controller/routes.hpp"

namespace tutti::controller {
namespace {

using nlohmann::json;

std::string content_type(Format format) {
  switch (format) {
    case Format::json:
      return "application/json";
    case Format::bytes:
    case Format::websocket:
      return "application/octet-stream";
    case Format::events:
      return "text/event-stream";
  }
  return "";
}

json content(const Message& message) { return {{content_type(message.format), json::object()}}; }

json parameters(const Route& route) {
  const json text{{"type", "string"}};
  json all = json::array();
  for (const auto name : net::argument_names(route.path))
    all.push_back({{"name", name}, {"in", "path"}, {"required", true}, {"schema", text}});
  for (const auto& parameter : route.query) {
    all.push_back({{"name", parameter.name},
                   {"in", "query"},
                   {"description", std::string(parameter.value) + ": " + std::string(parameter.meaning)},
                   {"schema", text}});
  }
  return all;
}

// Which tokens open it; none are needed where the list is empty.
json security(Need need) {
  const json admin{{"admin", json::array()}};
  const json join{{"join", json::array()}};
  const json person{{"person", json::array()}};
  if (need == Need::nothing) return json::array();
  return need == Need::agent ? json::array({admin, join}) : json::array({admin, person});
}

json responses(const Route& route) {
  json all;
  const auto add = [&](const char* status, const std::string& meaning) {
    all[status] = {{"description", meaning}};
  };
  const bool upgrades = route.answer.format == Format::websocket;
  add(upgrades ? "101" : "200", std::string(route.answer.name));
  if (!upgrades) all["200"]["content"] = content(route.answer);
  add("400", "the request is wrong: {error: {message, context, remedy}}");
  if (route.need != Need::nothing) add("401", "no token, or a wrong one");
  if (role_of(route.need)) add("403", "that takes the role " + std::string(name_of(route.need)) + ", there");
  if (!net::argument_names(route.path).empty()) add("404", "what the path names is not there");
  add("405", "the page takes other methods: see Allow");
  if (route.request.name == "SubmitRequest") add("409", "the shipped folder of a job is not here as a whole");
  add("412", "the request names another cluster in the header tutti-cluster");
  add("413", "the body has more than " + std::to_string(route.body_bytes_max) + " bytes");
  add("429", "too often from one address: see Retry-After");
  add("503", "it cannot be done now: see Retry-After");
  return all;
}

json operation(const Route& route) {
  json described{
      {"summary", route.summary}, {"security", security(route.need)}, {"responses", responses(route)}};
  if (json all = parameters(route); !all.empty()) described["parameters"] = std::move(all);
  if (!route.request.name.empty())
    described["requestBody"] = {{"description", route.request.name}, {"content", content(route.request)}};
  return described;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return lower;
}

json bearer(const char* meaning) {
  return {{"type", "http"}, {"scheme", "bearer"}, {"description", meaning}};
}

}  // namespace

std::string openapi_json() {
  json paths;
  for (const Route& route : routes())
    paths[std::string(api_prefix) + std::string(route.path)][lower_case(route.method)] = operation(route);
  const json document{
      {"openapi", "3.0.3"},
      {"info",
       {{"title", "tutti"},
        {"version", std::string(version())},
        {"description", "The messages are those of proto/tutti.proto, in protobuf's JSON mapping."}}},
      {"components",
       {{"securitySchemes",
         {{"admin", bearer("The admin token: opens everything")},
          {"person", bearer("A token of a user, who may what his roles say")},
          {"join", bearer("The join token: opens what agents need")}}}}},
      {"paths", paths}};
  return document.dump(2) + "\n";
}

}  // namespace tutti::controller
