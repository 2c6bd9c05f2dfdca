// Every row of the controller's table of routes, asked of a running controller: with no token, with a wrong
// one, with each right one, with other methods and with too large a body. What a row promises is what is
// answered.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "support/cluster.hpp"
#include "support/connection.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::has;
using support::read_text;

// A path of the row: what stands in braces becomes a name that nothing has.
std::string example_of(std::string path) {
  for (std::size_t open = path.find('{'); open != std::string::npos; open = path.find('{'))
    path.replace(open, path.find('}') - open + 1, "0");
  return path;
}

class Api : public testing::Test {
 protected:
  struct Ask {
    std::string method;
    std::string path;
    std::string token = {};
    std::string headers = {};
    std::string body = {};
  };

  std::string token(const std::string& kind) const {
    return read_text(cluster_.data() + "/" + kind + ".token").substr(0, 64);
  }

  // The head of the answer. Each question comes from an address of its own, because one that asks with wrong
  // tokens is soon refused for that.
  std::string head_of(const Ask& ask) {
    ++asked_;
    const support::Connection connection(
        net::parse_target(cluster_.address())->port,
        "127.0." + std::to_string(1 + asked_ / 250) + "." + std::to_string(1 + asked_ % 250));
    std::string head = ask.method + " " + ask.path + " HTTP/1.1\r\nHost: tutti\r\n" + ask.headers;
    if (!ask.token.empty()) head += "Authorization: Bearer " + ask.token + "\r\n";
    if (!ask.body.empty()) head += "Content-Length: " + std::to_string(ask.body.size()) + "\r\n";
    connection.send(head + "\r\n" + ask.body);
    const std::string answer = connection.read_until("\r\n\r\n");
    return answer.substr(0, answer.find("\r\n\r\n") + 2);
  }
  int status_of(const Ask& ask) {
    const std::string head = head_of(ask);
    return has(head, "HTTP/1.1 ") ? std::stoi(head.substr(9, 3)) : 0;
  }

  support::PartsCluster cluster_;
  json routes_ = cluster_.json({"api"});
  int asked_ = 0;
};

// Let in: what the handler then says of a job that is not there is its own affair.
bool let_in(int status) { return status == 101 || status == 200 || status == 400 || status == 404; }

TEST_F(Api, EveryRouteLetsInWhomItsRowLetsIn) {
  ASSERT_GT(routes_.size(), 20U);
  const std::map<std::string, std::set<std::string>> opened_by{{"anybody", {"", "wrong", "join", "admin"}},
                                                               {"agent", {"join", "admin"}}};
  // A role takes a user's token (people_test), or the admin token.
  const std::set<std::string> opens_roles{"admin"};
  const std::map<std::string, std::string> tokens{
      {"", ""}, {"wrong", std::string(64, '0')}, {"join", token("join")}, {"admin", token("admin")}};
  for (const json& route : routes_) {
    const bool upgrades = route["answer_format"] == "websocket";
    Ask ask{route["method"].get<std::string>(), example_of(route["path"].get<std::string>())};
    if (upgrades) {
      ask.headers =
          "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
          "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    }
    for (const auto& [who, secret] : tokens) {
      ask.token = secret;
      const int status = status_of(ask);
      const auto row = opened_by.find(route["who"].get<std::string>());
      const bool opens = (row == opened_by.end() ? opens_roles : row->second).contains(who);
      EXPECT_TRUE(opens ? let_in(status) && (status == 101) == upgrades : status == 401)
          << ask.method << " " << ask.path << " with token '" << who << "': " << status;
    }
  }
}

TEST_F(Api, EveryPageTellsWhichMethodsItTakes) {
  std::map<std::string, std::set<std::string>> methods;
  for (const json& route : routes_)
    methods[route["path"].get<std::string>()].insert(route["method"].get<std::string>());
  for (const auto& [path, taken] : methods) {
    for (const std::string method :
         {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "BREW"}) {
      if (taken.contains(method) || (method == "HEAD" && taken.contains("GET"))) continue;
      for (const std::string& secret : {std::string(), token("admin")}) {
        const std::string head = head_of({method, example_of(path), secret});
        EXPECT_TRUE(has(head, " 405 ")) << method << " " << path << ": " << head;
        for (const std::string& other : taken) EXPECT_TRUE(has(head, other)) << head;
        EXPECT_TRUE(has(head, "\r\nAllow: ")) << head;
      }
    }
  }
}

// A HEAD asks for what a GET would say, without its body.
TEST_F(Api, EveryPageThatCanBeReadHasAHead) {
  for (const json& route : routes_) {
    if (route["method"] != "GET") continue;
    const std::string path = example_of(route["path"].get<std::string>());
    const int status = status_of({"GET", path, token("admin")});
    const std::string head = head_of({"HEAD", path, token("admin")});
    EXPECT_TRUE(has(head, "HTTP/1.1 " + std::to_string(status) + " ")) << path << ": " << head;
    EXPECT_EQ(status_of({"HEAD", path}), route["who"] == "anybody" ? status : 401) << path;
  }
}

TEST_F(Api, EveryRouteBoundsItsBody) {
  for (const json& route : routes_) {
    const auto bytes_max = route["body_bytes_max"].get<std::size_t>();
    const std::string method = route["method"].get<std::string>();
    const std::string path = example_of(route["path"].get<std::string>());
    // The port itself refuses what is larger than any route takes, before it reads it.
    if (bytes_max == net::body_bytes_max) {
      const std::string length = "Content-Length: " + std::to_string(bytes_max + 1) + "\r\n";
      EXPECT_EQ(status_of({method, path, token("admin"), length}), 413) << path;
      continue;
    }
    const std::string body(bytes_max + 1, ' ');
    EXPECT_EQ(status_of({method, path, token("admin"), "", body}), 413) << path;
    EXPECT_EQ(status_of({method, path, "", "", body}), route["who"] == "anybody" ? 413 : 401) << path;
  }
}

TEST_F(Api, WhatIsNotInTheTableIsNotThere) {
  for (const std::string path :
       {"/", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v2/jobs", "/api/v1/jobs/",
        "/api/v1/jobs/7/nothing", "/api/v1/jobs/7/cancel/now", "/api/v1/nodes//drain", "/api/v1/queues/a/b",
        "/api/v1/status/more", "/jobs"}) {
    for (const std::string& secret : {std::string(), token("admin")})
      EXPECT_EQ(status_of({"GET", path, secret}), 404) << path;
  }
}

TEST_F(Api, TheOpenApiPageHasTheSameRoutes) {
  net::Client client(*net::parse_target(cluster_.address()), "");
  const auto page = client.request("GET", "/api/v1/openapi.json");
  ASSERT_TRUE(page.ok()) << page.error().text();
  const json paths = json::parse(page->body)["paths"];
  std::size_t operations = 0;
  for (const auto& [path, item] : paths.items()) operations += item.size();
  EXPECT_EQ(operations, routes_.size());
  for (const json& route : routes_) EXPECT_TRUE(paths.contains(route["path"].get<std::string>())) << route;
}

TEST(ApiCommand, ListsTheRoutesWithoutACluster) {
  const support::TempFolder empty;
  const auto api = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {support::tutti_program, "api"});
    return support::run(words, {.env = {{"TUTTI_HOME", empty.path()}}, .stdout_to = ""});
  };
  const auto text = api({});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "METHOD  PATH")) << text.out;
  EXPECT_TRUE(has(text.out, "POST    /api/v1/jobs/{id}/cancel")) << text.out;
  EXPECT_TRUE(has(api({"--markdown"}).out, "| `GET /jobs?all=1&"));
  EXPECT_EQ(json::parse(api({"--json"}).out)[0]["path"], "/api/v1/health");
  EXPECT_EQ(api({"--markdown", "--json"}).exit_code, 2);
  EXPECT_EQ(api({"--jsno"}).exit_code, 2);
}

}  // namespace
}  // namespace tutti
