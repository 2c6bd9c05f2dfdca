// Many people on one cluster: each request by each role is answered as the table here says, nobody reads,
// ends or impersonates what is another's, and what a token opens ends with it.
#include <sys/stat.h>

#include <map>
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
                const std::string& headers = "") {
    ++asked_;
    const support::Connection connection(
        port(), "127.0." + std::to_string(1 + asked_ / 250) + "." + std::to_string(1 + asked_ % 250));
    std::string head = method + " " + path + " HTTP/1.1\r\nHost: tutti\r\n" + headers;
    if (!token.empty()) head += "Authorization: Bearer " + token + "\r\n";
    connection.send(head + "\r\n");
    const std::string answer = connection.read_until("\r\n\r\n");
    return has(answer, "HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
  }

  support::PartsCluster cluster_;

 private:
  int asked_ = 0;
};

// A path of the row: what stands in braces becomes a name that nothing has.
std::string example_of(std::string path) {
  for (std::size_t open = path.find('{'); open != std::string::npos; open = path.find('{'))
    path.replace(open, path.find('}') - open + 1, "0");
  return path;
}

// The least that opens a page, written down here once more: a row that lets in somebody else is a mistake.
const std::map<std::string, std::string> least_of{
    {"GET /health", "anybody"},
    {"GET /openapi.json", "anybody"},
    {"GET /login", "anybody"},
    {"POST /login", "anybody"},
    {"POST /join", "anybody"},
    {"POST /join/renew", "anybody"},
    {"GET /agent", "agent"},
    {"GET /blobs/{hash}", "agent"},
    {"GET /whoami", "person"},
    {"GET /people", "person"},
    {"GET /tokens", "person"},
    {"POST /tokens", "person"},
    {"DELETE /tokens/{id}", "person"},
    {"GET /status", "viewer"},
    {"GET /events", "viewer"},
    {"GET /jobs", "viewer"},
    {"GET /jobs/{id}", "viewer"},
    {"GET /jobs/{id}/logs", "viewer"},
    {"GET /jobs/{id}/explain", "viewer"},
    {"GET /nodes", "viewer"},
    {"GET /nodes/{name}", "viewer"},
    {"GET /queues", "viewer"},
    {"GET /fabric", "viewer"},
    {"POST /jobs", "user"},
    {"POST /explain", "user"},
    {"POST /jobs/{id}/cancel", "user"},
    {"POST /jobs/{id}/release", "user"},
    {"POST /blobs/missing", "user"},
    {"PUT /blobs/{hash}", "user"},
    {"GET /secrets", "user"},
    {"PUT /secrets/{name}", "user"},
    {"DELETE /secrets/{name}", "user"},
    {"POST /secret-key/rotate", "admin"},
    {"POST /jobs/remove", "queue-admin"},
    {"PUT /queues/{name}", "queue-admin"},
    {"DELETE /queues/{name}", "queue-admin"},
    {"PUT /people/{name}", "queue-admin"},
    {"POST /people/{name}/block", "queue-admin"},
    {"POST /people/{name}/unblock", "queue-admin"},
    {"DELETE /people/{name}", "queue-admin"},
    {"POST /nodes/{name}/drain", "operator"},
    {"POST /nodes/{name}/resume", "operator"},
    {"DELETE /nodes/{name}", "operator"},
    {"PUT /fabric", "operator"},
    {"GET /join-tokens", "operator"},
    {"POST /join-tokens", "operator"},
    {"DELETE /join-tokens/{id}", "operator"},
    {"POST /nodes/{name}/revoke", "operator"},
    {"GET /authority", "operator"},
    {"POST /authority/rotate", "admin"},
    {"GET /audit", "admin"},
};

TEST_F(PeopleTest, EveryRequestByEveryRoleIsAnsweredAsTheTableSays) {
  make_queues();
  // From the least to the most; what each of them opens, those behind it open, too.
  const std::vector<std::string> ranking{"person", "viewer", "user", "queue-admin", "operator", "admin"};
  add("person", {"none"});
  for (const char* role : {"viewer", "user", "queue-admin"}) add(role, {std::string(role) + ":research"});
  add("operator", {"operator"});
  add("root2", {"admin"});
  std::map<std::string, std::string> tokens{
      {"", ""},
      {"wrong", "tutti-0123456789abcdef-" + std::string(64, '0')},
      {"agent", read_text(cluster_.data() + "/join.token").substr(0, 64)},
      {"the cluster's own", read_text(cluster_.data() + "/admin.token").substr(0, 64)}};
  for (const auto& role : ranking) tokens[role] = token_of(role == "admin" ? "root2" : role);
  const auto rank_of = [&](const std::string& role) {
    return std::find(ranking.begin(), ranking.end(), role) - ranking.begin();
  };
  const json routes = cluster_.json({"api"});
  std::set<std::string> asked;
  for (const json& route : routes) {
    const std::string method = route["method"];
    const std::string path = route["path"];
    const std::string name = method + " " + path.substr(std::string("/api/v1").size());
    asked.insert(name);
    const auto row = least_of.find(name);
    ASSERT_NE(row, least_of.end()) << name << " is not in the table of this test";
    const std::string& least = row->second;
    const std::string upgrade =
        route["answer_format"] == "websocket"
            ? "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
              "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            : "";
    for (const auto& [who, token] : tokens) {
      const int status = status_of(method, example_of(path), token, upgrade);
      const bool known = rank_of(who) < static_cast<std::ptrdiff_t>(ranking.size());
      bool opens = least == "anybody" || who == "the cluster's own" || (least == "agent" && who == "agent");
      if (known && rank_of(least) < static_cast<std::ptrdiff_t>(ranking.size()))
        opens = opens || rank_of(who) >= rank_of(least);
      // What the handler then says of something that is not there, or is another's, is its own affair.
      if (opens) {
        EXPECT_TRUE(status != 401 && status != 0 && status < 500 && status != 405)
            << name << " by '" << who << "': " << status;
      } else {
        EXPECT_EQ(status, known ? 403 : 401) << name << " by '" << who << "'";
      }
    }
  }
  for (const auto& [name, least] : least_of)
    EXPECT_TRUE(asked.contains(name)) << name << " is not there any more";
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
