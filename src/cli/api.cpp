// The REST API as this program serves it, from the controller's own table: no cluster is asked.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/text_table.hpp"
#include "control/controller/routes.hpp"

namespace tutti::cli {
namespace {

using controller::Route;
using nlohmann::json;

json json_of(const Route& route) {
  json query = json::array();
  for (const auto& parameter : route.query)
    query.push_back({{"name", parameter.name}, {"value", parameter.value}, {"meaning", parameter.meaning}});
  return {{"method", route.method},
          {"path", std::string(controller::api_prefix) + std::string(route.path)},
          {"who", controller::name_of(route.caller)},
          {"rate", controller::name_of(route.rate)},
          {"body_bytes_max", route.body_bytes_max},
          {"query", query},
          {"request", route.request.name},
          {"request_format", controller::name_of(route.request.format)},
          {"answer", route.answer.name},
          {"answer_format", controller::name_of(route.answer.format)},
          {"summary", route.summary}};
}

// Events and WebSockets say so: what they carry is not one document.
std::string answer_of(const Route& route) {
  std::string name(route.answer.name);
  switch (route.answer.format) {
    case controller::Format::json:
    case controller::Format::bytes:
      return name;
    case controller::Format::events:
      return "events: " + name;
    case controller::Format::websocket:
      return "WebSocket: " + name;
  }
  return name;
}

// "GET /jobs?all=1&limit=N"
std::string request_of(const Route& route) {
  std::string text = std::string(route.method) + " " + std::string(route.path);
  char separator = '?';
  for (const auto& parameter : route.query) {
    text += separator + std::string(parameter.name) + "=" + std::string(parameter.value);
    separator = '&';
  }
  return text;
}

std::string markdown_of(const Route& route) {
  std::string text = "| `" + request_of(route) + "`";
  if (!route.request.name.empty()) text += " " + std::string(route.request.name);
  text += " | " + std::string(controller::name_of(route.caller)) + " | " + answer_of(route) + " | " +
          std::string(route.summary);
  for (const auto& parameter : route.query)
    text += "; `" + std::string(parameter.name) + "`: " + std::string(parameter.meaning);
  return text + " |\n";
}

class ApiList final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("json", json_, "JSON for scripts");
    flags.add("markdown", markdown_, "a table for documents");
  }

  Result<int> run() override {
    if (json_ && markdown_) return invalid("--json and --markdown exclude each other").within("command line");
    std::fputs((json_ ? as_json() : markdown_ ? as_markdown() : as_text()).c_str(), stdout);
    return exit_success;
  }

 private:
  static std::string as_json() {
    json all = json::array();
    for (const Route& route : controller::routes()) all.push_back(json_of(route));
    return all.dump() + "\n";
  }

  static std::string as_markdown() {
    std::string text = "| request | who | answer | what it does |\n|---|---|---|---|\n";
    for (const Route& route : controller::routes()) text += markdown_of(route);
    return text;
  }

  static std::string as_text() {
    TextTable table({"METHOD", "PATH", "WHO", "WHAT IT DOES"});
    for (const Route& route : controller::routes())
      table.add({std::string(route.method), std::string(controller::api_prefix) + std::string(route.path),
                 std::string(controller::name_of(route.caller)), std::string(route.summary)});
    return table.text();
  }

  bool json_ = false;
  bool markdown_ = false;
};

}  // namespace

std::unique_ptr<Command> make_api() { return std::make_unique<ApiList>(); }

}  // namespace tutti::cli
