// Many people on one cluster: each request by each role is answered as the table here says, nobody reads,
// ends or impersonates what is another's, and what a token opens ends with it.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "support/cluster.hpp"
#include "support/connection.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::eventually;
using support::Finished;
using support::has;
using support::read_text;

class PeopleTest : public testing::Test {
 protected:
  // The token is in a file of the user's name.
  void add(const std::string& name, const std::vector<std::string>& roles) {
    std::vector<std::string> words{"users", "set", name};
    for (const auto& role : roles) words.insert(words.end(), {"--role", role});
    const auto set = cluster_.tutti(words);
    ASSERT_EQ(set.exit_code, 0) << set.err;
    const auto made = cluster_.tutti({"tokens", "create", "--user", name, "--out", file_of(name)});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  std::string file_of(const std::string& name) const { return cluster_.file(name + ".token"); }
  std::string token_of(const std::string& name) const {
    const std::string text = read_text(file_of(name));
    return text.substr(0, text.find('\n'));
  }
  // From now on commands are that user's; "" is whoever has the cluster's own token.
  void act_as(const std::string& name) {
    cluster_.env()["TUTTI_TOKEN_FILE"] = name.empty() ? cluster_.data() + "/admin.token" : file_of(name);
  }
  Finished as(const std::string& name, const std::vector<std::string>& words) {
    act_as(name);
    Finished done = cluster_.tutti(words);
    act_as("");
    return done;
  }
  std::string submit_as(const std::string& name, const std::string& queue, const std::string& script) {
    act_as(name);
    std::string id = cluster_.submit({"--queue", queue, "--restarts", "0"}, script);
    act_as("");
    return id;
  }
  void make_queues() {
    for (const char* queue : {"research", "research/vision", "production"})
      ASSERT_EQ(cluster_.tutti({"queues", "set", queue}).exit_code, 0);
  }

  std::uint16_t port() const { return net::parse_target(cluster_.address())->port; }
  // Each question comes from an address of its own, because one that asks with wrong tokens is soon refused
  // for that.
  int status_of(const std::string& method, const std::string& path, const std::string& token,
                const std::string& headers = "", const std::string& body = "") {
    ++asked_;
    const support::Connection connection(
        port(), "127.0." + std::to_string(1 + asked_ / 250) + "." + std::to_string(1 + asked_ % 250));
    std::string head = method + " " + path + " HTTP/1.1\r\nHost: tutti\r\n" + headers;
    if (!token.empty()) head += "Authorization: Bearer " + token + "\r\n";
    if (!body.empty()) head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    connection.send(head + "\r\n" + body);
    const std::string answer = connection.read_until("\r\n\r\n");
    return has(answer, "HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
  }

  support::PartsCluster cluster_;

 private:
  int asked_ = 0;
};

// From the least to the most; what each of them opens, those behind it open, too.
const std::vector<std::string> ranking{"person", "viewer", "user", "queue-admin", "operator", "admin"};

// Makes the things that are asked about, with the cluster's own token: for each question another one, so that
// whoever may remove it finds it there.
class Things {
 public:
  // `sleeper` is a job of research that runs.
  Things(const support::PartsCluster& cluster, std::map<std::string, std::string> tokens, std::string sleeper)
      : target_(*net::parse_target(cluster.address())),
        tokens_(std::move(tokens)),
        sleeper_(std::move(sleeper)) {}

  json as(const std::string& who, const std::string& method, const std::string& path,
          const std::string& body = "") const {
    net::Client client(target_, tokens_.at(who));
    const auto answer = client.request(method, "/api/v1" + path, body);
    EXPECT_TRUE(answer && answer->status == 200)
        << method << " " << path << " by " << who << ": " << (answer ? answer->body : answer.error().text());
    return answer ? json::parse(answer->body, nullptr, false) : json();
  }
  json make(const std::string& method, const std::string& path, const std::string& body = "") const {
    return as("the cluster's own", method, path, body);
  }
  std::string fresh(const std::string& prefix) { return prefix + std::to_string(++made_); }

  // Of the user, in research: it waits.
  std::string submit() const {
    const json job{{"command", json::array({"true"})},
                   {"user", "user"},
                   {"queue", "research"},
                   {"after", json::array({{{"job", std::stoi(sleeper_)}, {"success", true}}})}};
    return json{{"jobs", json::array({job})}}.dump();
  }
  std::string job() const { return make("POST", "/jobs", submit())["ids"][0]; }
  // Not the newest, which stays.
  std::string finished_job() const {
    std::string id = job();
    make("POST", "/jobs/" + id + "/cancel");
    job();
    return id;
  }
  std::string part() {
    const std::string name = fresh("research%2Fp");
    make("PUT", "/queues/" + name, "{}");
    return name;
  }
  static std::string roles() { return R"({"roles":[{"role":"user","queue":"research"}]})"; }
  std::string user() {
    const std::string name = fresh("u");
    make("PUT", "/people/" + name, roles());
    return name;
  }
  // By whom a queue-admin may have let in again.
  std::string blocked_user() {
    const std::string name = user();
    as("queue-admin", "POST", "/people/" + name + "/block");
    return name;
  }
  // Of whoever asks; the cluster's own token stands for nobody.
  std::string token_of(const std::string& who) const {
    return make("POST", "/tokens", json{{"person", name_of(who)}}.dump())["id"];
  }
  std::string secret_of(const std::string& who) {
    const std::string name = fresh("S");
    make("PUT", "/secrets/" + name + "?user=" + name_of(who), "value");
    return name + owner(who);
  }
  std::string secret_of_queue() {
    const std::string path = fresh("S") + "?queue=research";
    make("PUT", "/secrets/" + path, "value");
    return path;
  }
  // Of the user, in research; its replicas end at once.
  static std::string service_body(const std::string& argument = "") {
    const json job{{"command", json::array({"true", argument})}, {"queue", "research"}, {"user", "user"}};
    return json{{"job", job}}.dump();
  }
  std::string service() {
    const std::string path = "/services/" + fresh("s");
    make("PUT", path, service_body());
    return path;
  }
  std::string service_with_canary() {
    const std::string path = service();
    json other = json::parse(service_body("other"));
    other["canary_share"] = 0.5;
    make("PUT", path, other.dump());
    return path;
  }
  static std::string owner(const std::string& who) {
    return who == "the cluster's own" ? "?user=" + name_of(who) : "";
  }
  static std::string name_of(const std::string& who) {
    if (who == "admin") return "root2";
    return std::find(ranking.begin(), ranking.end(), who) == ranking.end() ? "person" : who;
  }

 private:
  net::Target target_;
  std::map<std::string, std::string> tokens_;
  std::string sleeper_;
  int made_ = 0;
};

struct Question {
  std::string path;
  std::string body = {};
};

// What is to be answered, written down here once more: a row of the controller that lets in somebody else, or
// keeps somebody out, is a mistake.
struct Row {
  std::string least;  // that opens the page
  // About things that are there, and that `who` may do this to; else the path of the row is asked for.
  std::function<Question(Things&, const std::string& who)> question = {};
  int fine = 200;     // whoever may hears this
  int elsewhere = 0;  // and who is queue-admin of another queue this; 0: it is about no queue
};

constexpr const char* blob = "fa2c8cc4f28176bbeed4b736df569a34c79cd3723e9ec42f9674b4d46ac6b8b8";
// Of a controller without certificates, and without an issuer.
constexpr int not_here = 404;

const std::map<std::string, Row> rows{
    {"GET /health", {"anybody"}},
    {"GET /openapi.json", {"anybody"}},
    {"GET /login", {"anybody", {}, not_here}},
    {"POST /login", {"anybody", {}, not_here}},
    {"POST /join", {"anybody", {}, not_here}},
    {"POST /join/renew", {"anybody", {}, not_here}},
    {"GET /agent", {"agent", {}, 101}},
    {"GET /blobs/{hash}",
     {"agent",
      [](Things& things, const auto&) {
        things.make("PUT", std::string("/blobs/") + blob, "blob");
        return Question{std::string("/blobs/") + blob};
      }}},
    {"GET /whoami", {"person"}},
    {"GET /people", {"person"}},
    {"GET /tokens", {"person"}},
    {"POST /tokens",
     {"person",
      [](Things&, const std::string& who) {
        return Question{"/tokens", json{{"person", Things::name_of(who)}}.dump()};
      },
      200, 403}},
    {"DELETE /tokens/{id}",
     {"person", [](Things& things, const auto& who) { return Question{"/tokens/" + things.token_of(who)}; },
      200, 404}},
    {"GET /status", {"viewer"}},
    {"GET /events", {"viewer"}},
    {"GET /jobs", {"viewer"}},
    {"GET /jobs/{id}",
     {"viewer", [](Things& things, const auto&) { return Question{"/jobs/" + things.job()}; }, 200, 404}},
    {"GET /jobs/{id}/logs",
     {"viewer", [](Things& things, const auto&) { return Question{"/jobs/" + things.job() + "/logs"}; }}},
    {"GET /jobs/{id}/explain",
     {"viewer", [](Things& things, const auto&) { return Question{"/jobs/" + things.job() + "/explain"}; },
      200, 404}},
    {"GET /nodes", {"viewer"}},
    {"GET /nodes/{name}", {"viewer", [](Things&, const auto&) { return Question{"/nodes/n1"}; }}},
    {"GET /queues", {"viewer"}},
    {"GET /fabric", {"viewer"}},
    {"POST /jobs",
     {"user",
      [](Things& things, const auto&) {
        return Question{"/jobs", things.submit()};
      },
      200, 403}},
    {"POST /explain",
     {"user",
      [](Things& things, const auto&) {
        return Question{"/explain", things.submit()};
      },
      200, 403}},
    {"POST /jobs/{id}/cancel",
     {"user", [](Things& things, const auto&) { return Question{"/jobs/" + things.job() + "/cancel"}; }, 200,
      400}},
    // It is not held.
    {"POST /jobs/{id}/release",
     {"user", [](Things& things, const auto&) { return Question{"/jobs/" + things.job() + "/release"}; }, 400,
      400}},
    {"POST /blobs/missing",
     {"user",
      [](Things&, const auto&) {
        return Question{"/blobs/missing", json::array({blob}).dump()};
      }}},
    {"PUT /blobs/{hash}",
     {"user",
      [](Things&, const auto&) {
        return Question{std::string("/blobs/") + blob, "blob"};
      }}},
    {"GET /secrets", {"user"}},
    {"PUT /secrets/{name}",
     {"user",
      [](Things& things, const auto& who) {
        return Question{"/secrets/" + things.fresh("S") + Things::owner(who), "value"};
      }}},
    {"DELETE /secrets/{name}",
     {"user", [](Things& things, const auto& who) { return Question{"/secrets/" + things.secret_of(who)}; }}},
    {"POST /secret-key/rotate", {"admin"}},
    {"GET /services", {"viewer"}},
    {"GET /services/{name}",
     {"viewer", [](Things& things, const auto&) { return Question{things.service()}; }, 200, 404}},
    {"PUT /services/{name}",
     {"user",
      [](Things& things, const auto&) {
        return Question{"/services/" + things.fresh("s"), Things::service_body()};
      },
      200, 403}},
    {"POST /services/{name}/scale",
     {"user",
      [](Things& things, const auto&) {
        return Question{things.service() + "/scale", R"({"replicas_min":1,"replicas_max":2})"};
      },
      200, 400}},
    {"POST /services/{name}/promote",
     {"user", [](Things& things, const auto&) { return Question{things.service_with_canary() + "/promote"}; },
      200, 400}},
    {"POST /services/{name}/rollback",
     {"user",
      [](Things& things, const auto&) { return Question{things.service_with_canary() + "/rollback"}; }, 200,
      400}},
    {"DELETE /services/{name}",
     {"user", [](Things& things, const auto&) { return Question{things.service()}; }, 200, 400}},
    {"GET /services/routes", {"operator"}},
    {"POST /services/told",
     {"operator",
      [](Things&, const auto&) {
        return Question{"/services/told", R"({"gateway":"g1"})"};
      }}},
    {"GET /gateways", {"viewer"}},
    {"POST /jobs/remove",
     {"queue-admin",
      [](Things& things, const auto&) {
        return Question{"/jobs/remove", json{{"ids", json::array({things.finished_job()})}}.dump()};
      },
      200, 400}},
    {"PUT /queues/{name}",
     {"queue-admin",
      [](Things& things, const auto&) {
        return Question{"/queues/" + things.fresh("research%2Fq"), "{}"};
      },
      200, 403}},
    {"DELETE /queues/{name}",
     {"queue-admin", [](Things& things, const auto&) { return Question{"/queues/" + things.part()}; }, 200,
      403}},
    {"PUT /people/{name}",
     {"queue-admin",
      [](Things& things, const auto&) {
        return Question{"/people/" + things.fresh("new"), Things::roles()};
      },
      200, 403}},
    {"POST /people/{name}/block",
     {"queue-admin",
      [](Things& things, const auto&) { return Question{"/people/" + things.user() + "/block"}; }, 200, 403}},
    {"POST /people/{name}/unblock",
     {"queue-admin",
      [](Things& things, const auto&) { return Question{"/people/" + things.blocked_user() + "/unblock"}; },
      200, 403}},
    {"DELETE /people/{name}",
     {"queue-admin", [](Things& things, const auto&) { return Question{"/people/" + things.user()}; }, 200,
      403}},
    {"POST /nodes/{name}/drain",
     {"operator", [](Things&, const auto&) { return Question{"/nodes/n1/drain"}; }}},
    {"POST /nodes/{name}/resume",
     {"operator", [](Things&, const auto&) { return Question{"/nodes/n1/resume"}; }}},
    // It is not lost.
    {"DELETE /nodes/{name}", {"operator", [](Things&, const auto&) { return Question{"/nodes/n1"}; }, 400}},
    {"PUT /fabric",
     {"operator",
      [](Things&, const auto&) {
        return Question{"/fabric", "{}"};
      }}},
    {"GET /join-tokens", {"operator"}},
    {"POST /join-tokens", {"operator", {}, not_here}},
    {"DELETE /join-tokens/{id}",
     {"operator", [](Things&, const auto&) { return Question{"/join-tokens/1"}; }, not_here}},
    {"POST /nodes/{name}/revoke",
     {"operator", [](Things&, const auto&) { return Question{"/nodes/n1/revoke"}; }, not_here}},
    {"GET /authority", {"operator", {}, not_here}},
    {"POST /authority/rotate", {"admin", {}, not_here}},
    {"GET /audit", {"admin"}},
};

// Every row of the controller, once.
void for_each_route(const support::Cluster& cluster,
                    const std::function<void(const json& route, const std::string& name)>& ask) {
  std::set<std::string> asked;
  for (const json& route : cluster.json({"api"})) {
    const std::string path = route["path"];
    const std::string name =
        route["method"].get<std::string>() + " " + path.substr(std::string("/api/v1").size());
    asked.insert(name);
    ASSERT_TRUE(rows.contains(name)) << name << " is not in the table of this test";
    ask(route, name);
  }
  for (const auto& [name, row] : rows) EXPECT_TRUE(asked.contains(name)) << name << " is not there any more";
}

bool opens(const std::string& who, const std::string& least) {
  if (least == "anybody" || who == "the cluster's own") return true;
  const auto rank_of = [](const std::string& role) {
    return std::find(ranking.begin(), ranking.end(), role) - ranking.begin();
  };
  const auto nobody = static_cast<std::ptrdiff_t>(ranking.size());
  if (rank_of(least) == nobody || rank_of(who) == nobody) return who == least;
  return rank_of(who) >= rank_of(least);
}

std::string upgrade_of(const json& route) {
  return route["answer_format"] == "websocket"
             ? "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
             : "";
}

TEST_F(PeopleTest, EveryRequestByEveryRoleIsAnsweredAsTheTableSays) {
  make_queues();
  ASSERT_TRUE(cluster_.start_agent("n1"));
  add("person", {"none"});
  for (const char* role : {"viewer", "user", "queue-admin"}) add(role, {std::string(role) + ":research"});
  add("operator", {"operator"});
  add("root2", {"admin"});
  add("elsewhere", {"queue-admin:production"});
  std::map<std::string, std::string> tokens{
      {"", ""},
      {"wrong", "tutti-0123456789abcdef-" + std::string(64, '0')},
      {"agent", read_text(cluster_.data() + "/join.token").substr(0, 64)},
      {"the cluster's own", read_text(cluster_.data() + "/admin.token").substr(0, 64)}};
  for (const auto& role : ranking) tokens[role] = token_of(role == "admin" ? "root2" : role);
  const std::string sleeper = cluster_.submit({"--queue", "research"}, "sleep 1000");
  ASSERT_TRUE(cluster_.becomes(sleeper, "running"));
  Things things(cluster_, tokens, sleeper);
  for_each_route(cluster_, [&](const json& route, const std::string& name) {
    const std::string method = route["method"];
    const Row& row = rows.at(name);
    const auto ask = [&](const std::string& who, const std::string& token, const std::string& of) {
      const Question question =
          row.question ? row.question(things, of) : Question{name.substr(name.find(' ') + 1)};
      const int status =
          status_of(method, "/api/v1" + question.path, token, upgrade_of(route), question.body);
      if (who == "elsewhere") {
        EXPECT_EQ(status, row.elsewhere) << name << " by who has a role in another queue alone";
      } else if (opens(who, row.least)) {
        EXPECT_EQ(status, row.fine) << name << " by '" << who << "'";
      } else {
        const bool known = std::find(ranking.begin(), ranking.end(), who) != ranking.end();
        EXPECT_EQ(status, known ? 403 : 401) << name << " by '" << who << "'";
      }
    };
    for (const auto& [who, token] : tokens) ask(who, token, who);
    if (row.elsewhere != 0) ask("elsewhere", token_of("elsewhere"), "user");
  });
  // What is another's is not set, and not in place of one's own either.
  const std::string bobs = "/api/v1/secrets/T?user=";
  EXPECT_EQ(status_of("PUT", bobs + "viewer", tokens["user"], "", "value"), 403);
  EXPECT_EQ(status_of("PUT", bobs + "viewer", tokens["admin"], "", "value"), 403) << "he acts for nobody";
  EXPECT_EQ(status_of("DELETE", "/api/v1/secrets/T", tokens["user"]), 404) << "he has none";
  EXPECT_EQ(status_of("PUT", bobs + "user", tokens["user"], "", "value"), 200) << "he may say that it is his";
  for (const char* method : {"PUT", "DELETE"})
    EXPECT_EQ(status_of(method, "/api/v1/secrets/T?queue=research", token_of("elsewhere"), "",
                        method == std::string("PUT") ? "value" : ""),
              403);
  EXPECT_EQ(cluster_.tutti({"cancel", "--now", sleeper}).exit_code, 0);
  EXPECT_TRUE(cluster_.becomes(sleeper, "cancelled"));
}

// A node that has joined speaks for itself and fetches what jobs ship, and nothing of what people may do.
class NodeCertificate : public testing::Test {
 protected:
  NodeCertificate() { cluster_.env()["TUTTI_CA_FILE"] = cluster_.data() + "/ca.pem"; }
  ~NodeCertificate() override {
    if (!agent_) return;
    agent_->signal(SIGTERM);
    agent_->wait();
  }
  static support::PartsOptions with_tls() {
    support::PartsOptions options;
    options.controller_flags = {"--tls"};
    return options;
  }
  std::string folder() const { return cluster_.agent_folder("n1"); }
  bool join() {
    const json token = cluster_.json({"nodes", "token"});
    support::write_text(cluster_.file("line"), token.value("token", "") + "\n");
    agent_ = std::make_unique<support::Process>(
        std::vector<std::string>{support::tutti_program, "agent", "join", cluster_.address(), "--token-file",
                                 cluster_.file("line"), "--ca", token.value("ca", ""), "--name", "n1",
                                 "--data", folder(), "--isolation", "none", "--fake-gpus", "1xH100"},
        cluster_.file("agent"), std::map<std::string, std::string>{{"TUTTI_HOME", cluster_.home()}});
    return cluster_.node_becomes("n1", "ready");
  }
  // With the certificate, or with a token.
  int status_of(const std::string& method, const std::string& path, const std::string& body = "",
                const std::string& token = "") const {
    net::Target target = *net::parse_target(cluster_.address());
    target.ca_file = cluster_.data() + "/ca.pem";
    if (token.empty()) {
      target.certificate_file = folder() + "/node.pem";
      target.key_file = folder() + "/node.key";
    }
    int status = 0;
    // Who shows no token has so many tries a second.
    EXPECT_TRUE(eventually([&] {
      net::Client client(target, token);
      const auto answer = client.request(method, path, body);
      status = answer ? answer->status : 0;
      return status != 429;
    }));
    return status;
  }

  support::PartsCluster cluster_{with_tls()};
  std::unique_ptr<support::Process> agent_;
};

TEST_F(NodeCertificate, OpensWhatAgentsNeedAndNothingElse) {
  ASSERT_TRUE(join()) << read_text(cluster_.file("agent.err"));
  const std::string admin = read_text(cluster_.data() + "/admin.token").substr(0, 64);
  EXPECT_EQ(status_of("PUT", std::string("/api/v1/blobs/") + blob, "blob", admin), 200);
  // Without their bodies these are no requests, and without an upgrade there is no page for agents.
  const std::map<std::string, int> answers{
      {"GET /health", 200}, {"GET /openapi.json", 200}, {"GET /login", not_here}, {"POST /login", not_here},
      {"POST /join", 400},  {"POST /join/renew", 400},  {"GET /agent", 404},      {"GET /blobs/{hash}", 200}};
  for_each_route(cluster_, [&](const json& route, const std::string& name) {
    std::string path = route["path"];
    for (const auto& [part, thing] : {std::pair<std::string, std::string>{"nodes/{name}", "nodes/n1"},
                                      {"{hash}", blob},
                                      {"{name}", "a"},
                                      {"{id}", "1"}}) {
      if (const auto at = path.find(part); at != std::string::npos) path.replace(at, part.size(), thing);
    }
    const auto open = answers.find(name);
    EXPECT_EQ(status_of(route["method"], path), open == answers.end() ? 401 : open->second) << name;
  });
}

// The pages that only a controller with an authority has.
TEST_F(NodeCertificate, AreMadeAndRevokedByOperatorsAndTheAuthorityIsAnAdmins) {
  ASSERT_TRUE(join()) << read_text(cluster_.file("agent.err"));
  std::map<std::string, std::string> tokens;
  for (const char* role : {"queue-admin", "operator", "admin"}) {
    const std::string name = std::string("a-") + role;
    ASSERT_EQ(cluster_.tutti({"users", "set", name, "--role", role}).exit_code, 0);
    const auto made = cluster_.json({"tokens", "create", "--user", name});
    tokens[role] = made.value("token", "");
  }
  struct Page {
    std::string method;
    std::string path;
    std::string body;
    std::string below;  // the role that just does not open it
    std::string least;
  };
  const std::string token = cluster_.json({"nodes", "token"}).value("id", "");
  for (const Page& page : {Page{"GET", "/join-tokens", "", "queue-admin", "operator"},
                           {"POST", "/join-tokens", "{}", "queue-admin", "operator"},
                           {"DELETE", "/join-tokens/" + token, "", "queue-admin", "operator"},
                           {"GET", "/authority", "", "queue-admin", "operator"},
                           {"POST", "/authority/rotate", "{}", "operator", "admin"},
                           {"POST", "/nodes/n1/revoke", "", "queue-admin", "operator"}}) {
    const std::string path = "/api/v1" + page.path;
    EXPECT_EQ(status_of(page.method, path, page.body, tokens[page.below]), 403) << page.path;
    EXPECT_EQ(status_of(page.method, path, page.body, tokens[page.least]), 200) << page.path;
  }
}

TEST_F(PeopleTest, WhatIsOfOneTeamTheOtherNeitherSeesNorEnds) {
  make_queues();
  ASSERT_TRUE(cluster_.start_agent("n1"));
  add("ada", {"user:research"});
  add("bob", {"user:production"});
  add("eve", {"viewer:research"});
  const std::string gate = cluster_.file("gate");
  const std::string id =
      submit_as("ada", "research", "echo secret words; until [ -e '" + gate + "' ]; do sleep 0.1; done");
  ASSERT_NE(id, "");
  EXPECT_EQ(cluster_.job(id)["user"], "ada") << "whatever the account is called that submitted it";
  ASSERT_TRUE(cluster_.becomes(id, "running"));

  EXPECT_EQ(as("bob", {"jobs", "--json"}).out, "[]\n");
  EXPECT_FALSE(has(as("bob", {"queues", "--json"}).out, "ada"));
  EXPECT_TRUE(has(as("eve", {"queues", "--json"}).out, "ada"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"show", id},
                                                {"logs", id},
                                                {"explain", id},
                                                {"cancel", id},
                                                {"release", id}}) {
    const auto refused = as("bob", words);
    EXPECT_NE(refused.exit_code, 0) << words.front() << ": " << refused.out;
    EXPECT_FALSE(has(refused.out + refused.err, "secret")) << words.front();
  }
  EXPECT_EQ(submit_as("bob", "research", "true"), "");
  EXPECT_TRUE(has(as("bob", {"run", "--queue", "research", "--", "true"}).err,
                  "may not submit to the queue research"));
  EXPECT_TRUE(
      has(as("bob", {"run", "--queue", "production", "--after", id, "--", "true"}).err, "that you may see"));

  EXPECT_TRUE(has(as("eve", {"logs", id, "--tail", "1"}).out + as("eve", {"show", id}).out, id));
  const auto cancelled = as("eve", {"cancel", id});
  EXPECT_EQ(cancelled.exit_code, 1) << cancelled.err;
  EXPECT_TRUE(has(cancelled.err, "takes the role user") || has(cancelled.err, "may not")) << cancelled.err;
  EXPECT_EQ(cluster_.state(id), "running");
  EXPECT_EQ(as("ada", {"cancel", id}).exit_code, 0);
  EXPECT_TRUE(cluster_.becomes(id, "cancelled"));
  EXPECT_TRUE(has(cluster_.job(id)["reason"], "ada"));
}

TEST_F(PeopleTest, ATokenOpensNothingOnceItIsRevokedAlsoForThoseWhoFollow) {
  make_queues();
  add("ada", {"viewer:research"});
  act_as("ada");
  const auto whoami = cluster_.json({"whoami"});
  EXPECT_EQ(whoami["name"], "ada");
  EXPECT_EQ(whoami["roles"], json::parse(R"([{"role":"viewer","queue":"research"}])"));
  const auto tokens = cluster_.json({"tokens"});
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_FALSE(has(tokens.dump(), token_of("ada"))) << "shown once, when it is made";
  const support::Connection follower(port());
  follower.send("GET /api/v1/events HTTP/1.1\r\nHost: tutti\r\nAuthorization: Bearer " + token_of("ada") +
                "\r\n\r\n");
  EXPECT_TRUE(has(follower.read_until("hello"), " 200 "));
  // It makes another one that may no more, and none that may more.
  const auto more = cluster_.tutti({"tokens", "create", "--expires", "never", "--out", file_of("more")});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  const auto for_bob = cluster_.tutti({"tokens", "create", "--user", "bob"});
  EXPECT_EQ(for_bob.exit_code, 1) << for_bob.out;
  act_as("");
  const auto revoked = cluster_.tutti({"tokens", "revoke", tokens[0]["id"]});
  EXPECT_EQ(revoked.exit_code, 0) << revoked.err;
  EXPECT_EQ(status_of("GET", "/api/v1/whoami", token_of("ada")), 401);
  EXPECT_TRUE(has(follower.read_until("0\r\n\r\n"), "0\r\n\r\n")) << "its stream has ended";
  EXPECT_EQ(status_of("GET", "/api/v1/whoami", token_of("more")), 200);
  ASSERT_EQ(cluster_.tutti({"users", "block", "ada"}).exit_code, 0);
  EXPECT_EQ(status_of("GET", "/api/v1/whoami", token_of("more")), 401);
  ASSERT_EQ(cluster_.tutti({"users", "unblock", "ada"}).exit_code, 0);
  EXPECT_EQ(status_of("GET", "/api/v1/whoami", token_of("more")), 200);
  // What was granted and revoked holds over a restart of the controller.
  cluster_.controller().signal(SIGTERM);
  cluster_.controller().wait();
  ASSERT_TRUE(cluster_.start_controller());
  EXPECT_EQ(status_of("GET", "/api/v1/whoami", token_of("more")), 200);
  EXPECT_EQ(status_of("GET", "/api/v1/whoami", token_of("ada")), 401);
}

TEST_F(PeopleTest, WhoLetsPeopleIntoAQueueRisesNowhereElse) {
  make_queues();
  add("lead", {"queue-admin:research"});
  add("boss", {"admin"});
  const auto may_not = [&](const std::vector<std::string>& words) {
    const auto done = as("lead", words);
    EXPECT_EQ(done.exit_code, 1) << words[1] << ": " << done.out << done.err;
  };
  EXPECT_EQ(as("lead", {"users", "set", "new", "--role", "user:research/vision"}).exit_code, 0);
  may_not({"users", "set", "lead", "--role", "admin"});
  may_not({"users", "set", "lead", "--role", "queue-admin:research", "--role", "viewer:production"});
  may_not({"users", "set", "boss", "--role", "viewer:research"});
  may_not({"users", "block", "boss"});
  may_not({"users", "remove", "boss"});
  may_not({"tokens", "create", "--user", "boss"});
  may_not({"tokens", "create", "--user", "new"});
  may_not({"queues", "set", "research", "--guarantee", "100"});
  EXPECT_EQ(as("lead", {"queues", "set", "research/vision", "--weight", "2"}).exit_code, 0);
  // An account of a program is an admin's to name, because ranks run as the account that is called so; its
  // tokens are his to make.
  may_not({"users", "set", "robot", "--service", "--role", "user:research"});
  EXPECT_EQ(as("boss", {"users", "set", "robot", "--service", "--role", "user:research"}).exit_code, 0);
  EXPECT_EQ(as("lead", {"tokens", "create", "--user", "robot", "--out", file_of("robot")}).exit_code, 0);
  EXPECT_TRUE(has(as("robot", {"whoami"}).out, "robot: user:research\nthe token expires at "))
      << "as the one that made it";
}

// Words that are wrong are told before anybody is asked, and the file of a token is its owner's alone.
TEST_F(PeopleTest, TheCommandsSayWhatIsWrong) {
  const auto says = [&](const std::vector<std::string>& words, const std::string& what, int code) {
    const auto done = cluster_.tutti(words);
    EXPECT_EQ(done.exit_code, code) << words[0] << ": " << done.out;
    EXPECT_TRUE(has(done.err, what)) << done.err;
  };
  says({"users", "sett", "ada"}, "set", 2);
  says({"users", "set"}, "which one?", 2);
  says({"users", "set", "ada"}, "which roles?", 2);
  says({"users", "set", "ada", "--role", "root"}, "the roles are viewer, user, queue-admin, operator, admin",
       2);
  says({"users", "set", "Ada", "--role", "admin"}, "small letters", 2);
  says({"users", "set", "ada", "--role", "user:nowhere"}, "there is no queue 'nowhere'", 2);
  says({"users", "set", "ada", "--role", "admin:default"}, "for the whole cluster", 2);
  says({"users", "block", "ada"}, "there is nobody called 'ada'", 2);
  says({"users", "block", "ada", "--role", "user"}, "for `tutti users set NAME`", 2);
  says({"tokens", "create"}, "name a user", 2);
  says({"tokens", "create", "--user", "ada"}, "there is nobody called 'ada'", 2);
  says({"tokens", "create", "--user", "ada", "--expires", "soon"}, "--expires", 2);
  says({"tokens", "revoke", "zz"}, "there is no such token", 2);
  add("ada", {"user:default"});
  says({"tokens", "create", "--user", "ada", "--out", file_of("ada")}, "there is something already", 2);
  struct stat status {};
  ASSERT_EQ(::stat(file_of("ada").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_FALSE(has(read_text(cluster_.data() + "/controller.log"), token_of("ada")));
}

}  // namespace
}  // namespace tutti
