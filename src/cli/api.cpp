// What the programs of tutti answer over HTTP, from their own tables: nobody is asked.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/text_table.hpp"
#include "control/controller/routes.hpp"
#include "gate/gateway/gateway.hpp"
#include "serve/server/infer_server.hpp"
#include "serve/server/server.hpp"

namespace tutti::cli {
namespace {

using controller::Route;
using nlohmann::json;

// One request, as each way of printing it needs it.
struct Row {
  std::string method;
  std::string path;
  std::string who;
  std::string summary;
  json fields;
  std::string markdown;
};
struct Listing {
  std::string markdown_head;
  std::vector<Row> rows;
};

json json_of(const Route& route) {
  json query = json::array();
  for (const auto& parameter : route.query)
    query.push_back({{"name", parameter.name}, {"value", parameter.value}, {"meaning", parameter.meaning}});
  return {{"method", route.method},
          {"path", std::string(controller::api_prefix) + std::string(route.path)},
          {"who", controller::name_of(route.need)},
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
  text += " | " + std::string(controller::name_of(route.need)) + " | " + answer_of(route) + " | " +
          std::string(route.summary);
  for (const auto& parameter : route.query)
    text += "; `" + std::string(parameter.name) + "`: " + std::string(parameter.meaning);
  return text + " |\n";
}

Listing of_controller() {
  Listing listing{"| request | who | answer | what it does |\n|---|---|---|---|\n", {}};
  for (const Route& route : controller::routes())
    listing.rows.push_back({std::string(route.method),
                            std::string(controller::api_prefix) + std::string(route.path),
                            std::string(controller::name_of(route.need)), std::string(route.summary),
                            json_of(route), markdown_of(route)});
  return listing;
}

std::string who_of(const serve::Page& page) { return page.needs_key ? "with the key" : "anybody"; }

json json_of(const serve::Page& page) {
  return {{"method", page.method},
          {"path", page.path},
          {"who", who_of(page)},
          {"body_bytes_max", page.body_bytes_max},
          {"summary", page.summary}};
}

std::string markdown_of(const serve::Page& page) {
  return "| `" + std::string(page.method) + " " + std::string(page.path) + "` | " + who_of(page) + " | " +
         std::string(page.summary) + " |\n";
}

Listing of_pages(std::span<const serve::Page> pages) {
  Listing listing{"| request | who | what it takes or answers |\n|---|---|---|\n", {}};
  for (const serve::Page& page : pages)
    listing.rows.push_back({std::string(page.method), std::string(page.path), who_of(page),
                            std::string(page.summary), json_of(page), markdown_of(page)});
  return listing;
}

class ApiList final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("PROGRAM", program_,
                   "controller (the default), engine (of a language model), script (an engine of "
                   "TorchScript) or gateway",
                   false);
    flags.add("json", json_, "JSON for scripts");
    flags.add("markdown", markdown_, "a table for documents");
  }

  Result<int> run() override {
    if (json_ && markdown_) return invalid("--json and --markdown exclude each other").within("command line");
    const auto listing = find();
    if (!listing) return listing.error();
    std::fputs((json_       ? as_json(*listing)
                : markdown_ ? as_markdown(*listing)
                            : as_text(*listing))
                   .c_str(),
               stdout);
    return exit_success;
  }

 private:
  Result<Listing> find() const {
    if (program_.empty() || program_ == "controller") return of_controller();
    if (program_ == "engine") return of_pages(serve::Server::pages());
    if (program_ == "gateway") return of_pages(gate::Gateway::pages());
    if (program_ == "script") return of_pages(serve::InferServer::pages());
    return invalid("'" + program_ + "' answers nothing")
        .within("command line")
        .remedy("the requests are those of controller, engine, script or gateway");
  }

  static std::string as_json(const Listing& listing) {
    json all = json::array();
    for (const Row& row : listing.rows) all.push_back(row.fields);
    return all.dump() + "\n";
  }

  static std::string as_markdown(const Listing& listing) {
    std::string text = listing.markdown_head;
    for (const Row& row : listing.rows) text += row.markdown;
    return text;
  }

  static std::string as_text(const Listing& listing) {
    TextTable table({"METHOD", "PATH", "WHO", "WHAT IT DOES"});
    for (const Row& row : listing.rows) table.add({row.method, row.path, row.who, row.summary});
    return table.text();
  }

  std::string program_;
  bool json_ = false;
  bool markdown_ = false;
};

}  // namespace

std::unique_ptr<Command> make_api() { return std::make_unique<ApiList>(); }

}  // namespace tutti::cli
