// A server joins with a token, and speaks for its own node only: over TLS, with real programs.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/clock/clock.hpp"
#include "control/wire/membership.hpp"
#include "control/wire/messages.hpp"
#include "net/http/client.hpp"
#include "net/pki/pki.hpp"
#include "support/cluster.hpp"
#include "support/small_disk.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::read_text;

constexpr const char* no_such_token =
    "tutti_join_0000000000000000000000000000000000000000000000000000000000000000";

struct Token {
  std::string id;
  std::string token;
  std::string ca;
};

class Join : public testing::Test {
 protected:
  explicit Join(std::vector<std::string> flags = {"--tls"})
      : cluster_([&] {
          support::PartsOptions options;
          options.controller_flags = std::move(flags);
          return options;
        }()) {
    cluster_.env()["TUTTI_CA_FILE"] = cluster_.data() + "/ca.pem";
  }
  ~Join() override {
    for (auto& [name, agent] : agents_) agent->signal(SIGTERM);
    for (auto& [name, agent] : agents_) agent->wait();
  }

  Token make_token(std::vector<std::string> flags = {}) const {
    flags.insert(flags.begin(), {"nodes", "token"});
    const auto made = cluster_.json(flags);
    return {made.value("id", ""), made.value("token", ""), made.value("ca", "")};
  }
  std::string folder(const std::string& node) const { return cluster_.home() + "/nodes/" + node; }
  // The token is in a file, so that it stands on no command line.
  std::vector<std::string> words(const std::string& node, const Token& token) const {
    const std::string file = cluster_.file("token-" + node);
    support::write_text(file, token.token + "\n");
    return {support::tutti_program,
            "agent",
            "join",
            cluster_.address(),
            "--token-file",
            file,
            "--ca",
            token.ca,
            "--name",
            node,
            "--data",
            folder(node),
            "--isolation",
            "none",
            "--fake-gpus",
            "1xH100",
            "--log-level",
            "info"};
  }
  // To its end: where it is refused.
  support::Finished join(const std::string& node, const Token& token) const {
    return support::run(words(node, token), {.env = environment(), .stdout_to = ""});
  }
  // Beside the test.
  bool start(const std::string& node, const Token& token) { return begin(node, words(node, token)); }
  // As it is started later: nothing is said but where its folder is.
  bool start_again(const std::string& node) {
    return begin(node, {support::tutti_program, "agent", "--data", folder(node), "--isolation", "none",
                        "--fake-gpus", "1xH100", "--log-level", "info"});
  }
  bool begin(const std::string& node, const std::vector<std::string>& command) {
    auto& agent = agents_[node] =
        std::make_unique<support::Process>(command, cluster_.file("agent-" + node), environment());
    return eventually([&] {
      const auto shown = cluster_.node(node);
      return shown.value("state", "") == "ready" && shown.value("agent_pid", 0) == agent->pid();
    });
  }
  std::string said(const std::string& node) const {
    return read_text(cluster_.file("agent-" + node + ".err"));
  }
  std::string certificate(const std::string& node) const { return read_text(folder(node) + "/node.pem"); }
  bool is_there(const std::string& path) const { return std::filesystem::exists(path); }

  std::map<std::string, std::string> environment() const {
    return {
        {"TUTTI_HOME", cluster_.home()}, {"TUTTI_ADDR", ""}, {"TUTTI_TOKEN_FILE", ""}, {"TUTTI_CA_FILE", ""}};
  }

  support::PartsCluster cluster_;
  std::map<std::string, std::unique_ptr<support::Process>> agents_;
};

// Where others of the machine could read it for as long as the agent lives.
TEST_F(Join, ATokenOnACommandLineDoesNotStayThere) {
  const Token token = make_token();
  std::vector<std::string> command = words("n1", token);
  for (std::size_t at = 0; at + 1 < command.size(); ++at) {
    if (command[at] != "--token-file") continue;
    command[at] = "--token";
    command[at + 1] = token.token;
  }
  ASSERT_TRUE(begin("n1", command)) << said("n1");
  const std::string shown = read_text("/proc/" + std::to_string(agents_.at("n1")->pid()) + "/cmdline");
  EXPECT_TRUE(has(shown, "--token")) << shown;
  EXPECT_FALSE(has(shown, token.token)) << shown;
}

TEST_F(Join, AServerJoinsWithAPastedLineAndRunsJobs) {
  const auto printed = cluster_.tutti({"nodes", "token"});
  EXPECT_TRUE(printed.out.starts_with("tutti agent join 127.0.0.1:")) << printed.out << printed.err;
  EXPECT_TRUE(has(printed.out, " --ca sha256:"));
  EXPECT_FALSE(has(read_text(cluster_.file("controller.err")), "tutti_join_")) << "a secret is in no log";
  const Token token = make_token();
  ASSERT_TRUE(start("n1", token)) << said("n1");
  struct stat key {};
  ASSERT_EQ(::stat((folder("n1") + "/node.key").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777u, 0600u);
  const auto identity = pki::read_certificate(certificate("n1"));
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->name.node, "n1");
  const auto ran = cluster_.run({"--gpus", "1"}, "echo on $TUTTI_NODE");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::string shipped = cluster_.file("shipped");
  std::filesystem::create_directories(shipped);
  support::write_text(shipped + "/word", "it is here");
  const auto with_folder = cluster_.run({"--sync", shipped}, "cat word");
  EXPECT_TRUE(has(with_folder.out, "it is here"))
      << "a node fetches with its certificate: " << with_folder.err;
}

TEST_F(Join, NothingSecretIsSentToAControllerOfAnotherAuthority) {
  Token token = make_token();
  const std::string right = token.ca;
  token.ca = "sha256:" + std::string(64, '0');
  const auto refused = join("n1", token);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_TRUE(has(refused.err, "its authority is " + right)) << refused.err;
  EXPECT_TRUE(has(refused.err, "nothing was sent to it")) << refused.err;
  EXPECT_FALSE(is_there(folder("n1") + "/ca.pem") || is_there(folder("n1") + "/node.pem"));
  EXPECT_EQ(cluster_.json({"nodes", "tokens"})[0].value("uses_left", 0), 1);
  token.ca = "";
  EXPECT_TRUE(has(join("n1", token).err, "--ca")) << "it is never taken on trust";
}

TEST_F(Join, TokensThatAreNoGoodSayWhy) {
  Token token = make_token();
  ASSERT_TRUE(start("n1", token)) << said("n1");
  const auto used_up = join("n2", token);
  EXPECT_EQ(used_up.exit_code, 2);
  EXPECT_TRUE(has(used_up.err, "the token is used up")) << used_up.err;
  EXPECT_TRUE(has(used_up.err, "tutti nodes token")) << used_up.err;
  const Token other{"", no_such_token, token.ca};
  EXPECT_TRUE(has(join("n2", other).err, "the token is none of this cluster"));
  const Token short_lived = make_token({"--expires", "1s"});
  ASSERT_TRUE(eventually([&] { return has(cluster_.tutti({"nodes", "tokens"}).out, "expired"); }));
  EXPECT_TRUE(has(join("n2", short_lived).err, "the token has expired"));
  const Token patterned = make_token({"--name-pattern", "gpu-*"});
  EXPECT_TRUE(has(join("n3", patterned).err, "'gpu-*'"));
  const Token revoked = make_token();
  EXPECT_EQ(cluster_.tutti({"nodes", "tokens", "revoke", revoked.id}).exit_code, 0);
  EXPECT_TRUE(has(join("n3", revoked).err, "the token is none of this cluster"));
  EXPECT_FALSE(is_there(folder("n3") + "/node.pem"));
  const auto list = cluster_.tutti({"nodes", "tokens"});
  EXPECT_TRUE(has(list.out, token.id) && has(list.out, "used up") && has(list.out, "gpu-*")) << list.out;
  EXPECT_FALSE(has(list.out, "tutti_join_"));
}

TEST_F(Join, ATokenMayComeOverStdin) {
  auto command = words("n1", Token{"", "", make_token().ca});
  *(std::find(command.begin(), command.end(), "--token-file") + 1) = "-";
  command.insert(command.begin(), {"sh", "-c", "printf %s \"$0\" | \"$@\"", no_such_token});
  const auto refused = support::run(command, {.env = environment(), .stdout_to = ""});
  EXPECT_TRUE(has(refused.err, "the token is none of this cluster")) << refused.err;
  command[3] = "";
  EXPECT_TRUE(has(support::run(command, {.env = environment(), .stdout_to = ""}).err, "no token on stdin"));
}

TEST_F(Join, TheNameOfALivingNodeIsRefused) {
  const Token token = make_token({"--uses", "3"});
  ASSERT_TRUE(start("n1", token)) << said("n1");
  auto command = words("n1", token);
  *std::find(command.begin(), command.end(), folder("n1")) = cluster_.file("other");
  const auto refused = support::run(command, {.env = environment(), .stdout_to = ""});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "is that of another node")) << refused.err;
  EXPECT_EQ(cluster_.json({"nodes", "tokens"})[0].value("uses_left", 0), 2) << "it costs no use";
}

// What a stolen certificate is good for: its own node.
TEST_F(Join, ANodeSpeaksForNoOther) {
  const Token token = make_token({"--uses", "2"});
  ASSERT_TRUE(start("n1", token)) << said("n1");
  ASSERT_TRUE(start("n2", token)) << said("n2");
  auto target = *net::parse_target(cluster_.address());
  target.ca_file = folder("n1") + "/ca.pem";
  target.certificate_file = folder("n1") + "/node.pem";
  target.key_file = folder("n1") + "/node.key";
  net::Loop loop;
  std::string why;
  net::dial(loop, target, "/api/v1/agent", "", [&](Result<std::shared_ptr<net::Socket>> socket) {
    ASSERT_TRUE(socket.ok()) << socket.error().text();
    (*socket)->on_message = [&](const std::string& frame) {
      const auto message = wire::decode_controller_message(frame);
      if (message && std::holds_alternative<wire::Notice>(*message))
        why = std::get<wire::Notice>(*message).text;
    };
    (*socket)->on_close = [&](const std::string&) { loop.stop(); };
    (*socket)->send(wire::encode(wire::AgentMessage(cluster::Hello{"n2", "", "", 1, {}, {}})));
  });
  loop.run();
  EXPECT_EQ(why, "it has the certificate of node n1 and says that it is n2");
  EXPECT_EQ(cluster_.node("n2").value("agent_pid", 0), agents_.at("n2")->pid());
  // It is a node, and nobody else: pages of people are closed to it.
  net::Client client(target, "");
  EXPECT_EQ(client.request("GET", "/api/v1/jobs")->status, 401);
  EXPECT_EQ(client.request("POST", "/api/v1/join-tokens", "{}")->status, 401);
}

TEST_F(Join, TheJoinTokenOfTheFolderOpensNothingHere) {
  const auto refused =
      cluster_.start({"agent", "--controller", cluster_.address(), "--ca-file", cluster_.data() + "/ca.pem",
                      "--join-token-file", cluster_.data() + "/join.token", "--name", "old", "--data",
                      folder("old"), "--isolation", "none", "--fake-gpus", "1xH100"},
                     "old");
  EXPECT_TRUE(eventually([&] { return has(read_text(cluster_.file("old.err")), "it refuses the token"); }));
  EXPECT_TRUE(cluster_.node("old").empty());
  refused->signal(SIGTERM);
  refused->wait();
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller({"--allow-join-token"}));
  cluster_.start({"version"}, "version")->wait();
  auto agent =
      cluster_.start({"agent", "--controller", cluster_.address(), "--ca-file", cluster_.data() + "/ca.pem",
                      "--join-token-file", cluster_.data() + "/join.token", "--name", "old", "--data",
                      folder("old"), "--isolation", "none", "--fake-gpus", "1xH100"},
                     "old");
  EXPECT_TRUE(cluster_.node_becomes("old", "ready")) << "the old way, when it is asked for";
  agent->signal(SIGTERM);
  agent->wait();
}

TEST_F(Join, ARevokedNodeIsLostAtOnceAndComesBackWithANewTokenAlone) {
  const Token token = make_token({"--uses", "5"});
  ASSERT_TRUE(start("n1", token)) << said("n1");
  const std::string before = certificate("n1");
  const auto revoked = cluster_.tutti({"nodes", "revoke", "n1"});
  ASSERT_EQ(revoked.exit_code, 0) << revoked.err;
  EXPECT_EQ(cluster_.node("n1").value("state", ""), "lost") << "it is not waited for";
  EXPECT_TRUE(eventually([&] { return has(said("n1"), "the certificate of node 'n1' was revoked"); }))
      << said("n1");
  EXPECT_EQ(cluster_.node("n1").value("state", ""), "lost");
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  ASSERT_TRUE(start("n1", make_token())) << said("n1");
  EXPECT_NE(pki::read_certificate(before)->key_id, pki::read_certificate(certificate("n1"))->key_id);
  EXPECT_EQ(cluster_.tutti({"nodes", "revoke", "nobody"}).exit_code, 2);
}

TEST_F(Join, EverybodyComesBackAfterRestartsWithoutAToken) {
  const Token token = make_token();
  ASSERT_TRUE(start("n1", token)) << said("n1");
  const std::string id = cluster_.submit({"--gpus", "1"}, support::until(cluster_.file("go")));
  ASSERT_TRUE(cluster_.becomes(id, "running"));
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  EXPECT_TRUE(cluster_.node_becomes("n1", "ready"));
  agents_.at("n1")->signal(SIGKILL);
  agents_.at("n1")->wait();
  ASSERT_TRUE(start_again("n1")) << said("n1");
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  ASSERT_TRUE(start("n1", token)) << "the same line, as a unit of systemd has it: " << said("n1");
  support::write_text(cluster_.file("go"), "");
  EXPECT_EQ(cluster_.wait(id), 0);
}

// Such as a controller whose clock is wrong refuses, or one that is not there with a line that is wrong.
TEST_F(Join, WhoCannotJoinAgainKeepsWhatItHas) {
  Token token = make_token();
  ASSERT_TRUE(start("n1", token)) << said("n1");
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  const auto papers = [&] {
    return certificate("n1") + read_text(folder("n1") + "/node.key") + read_text(folder("n1") + "/ca.pem") +
           read_text(folder("n1") + "/controller");
  };
  const std::string before = papers();
  cluster_.kill_controller();
  const std::string right = std::exchange(token.ca, "sha256:" + std::string(64, '0'));
  EXPECT_EQ(join("n1", token).exit_code, 1);
  EXPECT_EQ(papers(), before);
  ASSERT_TRUE(cluster_.start_controller());
  ASSERT_TRUE(start_again("n1")) << said("n1");
  ASSERT_EQ(cluster_.tutti({"nodes", "revoke", "n1"}).exit_code, 0);
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  const std::string renewed = papers();
  token.ca = right;
  EXPECT_TRUE(has(join("n1", token).err, "the token is used up"));
  EXPECT_EQ(papers(), renewed);
  ASSERT_TRUE(start("n1", make_token())) << said("n1");
}

TEST_F(Join, ANodeThatCouldNotStoreAnotherAuthorityIsWaitedFor) {
  const support::SmallDisk disk(folder("n1"), 1);
  if (!disk.mounted()) GTEST_SKIP() << "needs root";
  agents_["n1"] =
      std::make_unique<support::Process>(words("n1", make_token()), cluster_.file("agent-n1"), environment());
  ASSERT_TRUE(eventually([&] {
    return cluster_.node("n1").value("agent_pid", 0) == agents_.at("n1")->pid();
  })) << said("n1");
  disk.fill();
  ASSERT_EQ(cluster_.tutti({"controller", "ca", "rotate"}).exit_code, 0);
  ASSERT_TRUE(eventually([&] { return has(said("n1"), "No space left"); })) << said("n1");
  const auto shown = cluster_.tutti({"controller", "ca", "rotate"});
  EXPECT_TRUE(has(shown.out, "for 1 node: n1")) << shown.out;
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  agents_.erase("n1");
}

TEST_F(Join, ARestoredControllerKnowsItsNodesAndTellsOthersToJoinAnew) {
  const Token token = make_token({"--uses", "2"});
  ASSERT_TRUE(start("n1", token)) << said("n1");
  cluster_.kill_controller();
  const auto all = std::filesystem::copy_options::recursive;
  std::filesystem::copy(cluster_.data(), cluster_.file("copy"), all);
  ASSERT_TRUE(cluster_.start_controller());
  ASSERT_TRUE(start("n2", token)) << said("n2");
  cluster_.kill_controller();
  std::filesystem::remove_all(cluster_.data());
  std::filesystem::copy(cluster_.file("copy"), cluster_.data(), all);
  ASSERT_TRUE(cluster_.start_controller({"--accept-older-store"}))
      << read_text(cluster_.file("controller.err"));
  EXPECT_TRUE(cluster_.node_becomes("n1", "ready"));
  EXPECT_TRUE(eventually([&] {
    return has(said("n2"), "the controller's store is older than its certificate");
  })) << said("n2");
  EXPECT_TRUE(has(said("n2"), "tutti agent join"));
  EXPECT_TRUE(cluster_.node("n2").empty());
}

TEST_F(Join, AFullDiskLeavesNothingHalfWrittenAndCostsNoToken) {
  const support::SmallDisk disk(folder("n1"), 1);
  if (!disk.mounted()) GTEST_SKIP() << "needs root";
  const Token token = make_token();
  disk.fill();
  const auto full = join("n1", token);
  EXPECT_EQ(full.exit_code, 1) << full.err;
  EXPECT_TRUE(has(full.err, "No space left")) << full.err;
  EXPECT_FALSE(is_there(folder("n1") + "/node.pem"));
  EXPECT_EQ(read_text(folder("n1") + "/node.key"), "");
  disk.empty();
  agents_["n1"] =
      std::make_unique<support::Process>(words("n1", token), cluster_.file("agent-n1"), environment());
  // As a node without room, so small is its disk: but it is one.
  EXPECT_TRUE(eventually([&] {
    return cluster_.node("n1").value("agent_pid", 0) == agents_.at("n1")->pid();
  })) << said("n1");
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  agents_.erase("n1");
}

TEST_F(Join, AServerWhoseClockIsWrongIsToldSo) {
  const Token token = make_token();
  auto target = *net::parse_target(cluster_.address());
  target.ca_file = cluster_.data() + "/ca.pem";
  const wire::JoinRequest asked{token.token, "n1", "ab12", *pki::make_request(*pki::make_key()),
                                now_on_the_wall() + 3h};
  const auto answer = net::Client(target, "").request("POST", "/api/v1/join", wire::encode(asked));
  ASSERT_TRUE(answer.ok()) << answer.error().text();
  EXPECT_EQ(answer->status, 400);
  EXPECT_TRUE(has(answer->body, "ahead of that of the controller")) << answer->body;
  EXPECT_EQ(cluster_.json({"nodes", "tokens"})[0].value("uses_left", 0), 1);
}

TEST_F(Join, AnotherAuthorityFollowsWithoutADownTime) {
  const Token before = make_token({"--uses", "3"});
  ASSERT_TRUE(start("n1", before)) << said("n1");
  ASSERT_TRUE(start("n2", before)) << said("n2");
  const std::string id = cluster_.submit({"--gpus", "1"}, support::until(cluster_.file("go")));
  ASSERT_TRUE(cluster_.becomes(id, "running"));
  const auto step = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> line{"controller", "ca"};
    line.insert(line.end(), flags.begin(), flags.end());
    return cluster_.tutti(line);
  };
  EXPECT_EQ(step({"rotate", "--finish"}).exit_code, 2) << "there is nothing to finish";
  agents_.at("n2")->signal(SIGTERM);
  agents_.at("n2")->wait();
  EXPECT_TRUE(has(step({"rotate"}).out, "next     sha256:"));
  EXPECT_TRUE(eventually([&] { return has(step({}).out, "for 1 node: n2"); })) << step({}).out;
  EXPECT_TRUE(has(step({"rotate"}).out, "signs    " + before.ca)) << "one that is away does not know it yet";
  ASSERT_TRUE(start_again("n2")) << said("n2");
  ASSERT_TRUE(eventually([&] { return has(step({}).out, "the next one signs"); }))
      << step({}).out << said("n2");
  ASSERT_TRUE(eventually([&] { return has(step({"rotate"}).out, "old      " + before.ca); })) << step({}).out;
  ASSERT_TRUE(eventually([&] { return has(step({}).out, "rotate --finish"); })) << step({}).out << said("n1");
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  ASSERT_TRUE(eventually([&] { return step({"rotate", "--finish"}).exit_code == 0; }));
  EXPECT_FALSE(has(step({}).out, before.ca)) << step({}).out;
  EXPECT_EQ(pki::split_certificates(read_text(cluster_.data() + "/ca.pem"))->size(), 1u);
  EXPECT_TRUE(cluster_.node_becomes("n1", "ready"));
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  ASSERT_TRUE(start_again("n1")) << said("n1");
  EXPECT_EQ(cluster_.state(id), "running");
  support::write_text(cluster_.file("go"), "");
  EXPECT_EQ(cluster_.wait(id), 0);
  // The line has the authority of before, of which the node knows until it has renewed its certificate, and
  // its token is used up.
  for (int start_of_line = 0; start_of_line < 2; ++start_of_line) {
    agents_.at("n1")->signal(SIGTERM);
    agents_.at("n1")->wait();
    ASSERT_TRUE(start("n1", before)) << said("n1");
  }
  EXPECT_TRUE(has(said("n1"), "is another one than that of --ca")) << said("n1");
  const Token after = make_token();
  EXPECT_NE(after.ca, before.ca);
  EXPECT_TRUE(start("n3", after)) << said("n3");
}

// In a network of its own, because it listens everywhere.
constexpr const char* late_address = R"(
command -v ip > /dev/null && ip link set lo up || exit 77
"$0" controller init --data "$1"
"$0" controller --data "$1" --listen 0.0.0.0:7070 --ready-fd 3 3> "$1/ready" &
trap "kill $!" EXIT
until [ -s "$1/ready" ]; do sleep 0.1; done
ip addr add 10.9.9.9/32 dev lo || exit 77
export TUTTI_ADDR=10.9.9.9:7070 TUTTI_TOKEN_FILE="$1/admin.token" TUTTI_CA_FILE="$1/ca.pem"
for try in $(seq 300); do
  "$0" status && exit 0
  sleep 0.1
done
exit 1
)";

TEST(AddressesOfAController, AreInItsCertificateAlsoWhereTheyCameLater) {
  const support::TempFolder folder;
  const auto ran = support::run(
      {"unshare", "-n", "bash", "-c", late_address, support::tutti_program, folder.path() + "/controller"},
      {.env = {{"TUTTI_HOME", folder.path()}}, .stdout_to = ""});
  if (ran.exit_code == 77 || ::geteuid() != 0) GTEST_SKIP() << "needs root and iproute2";
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

// Such as a service renews them that somebody else runs.
TEST(CertificatesOfOthers, AreReadAgainWhenTheirFilesAreOthers) {
  const support::TempFolder folder;
  const auto write = [&] {
    const auto authority = *pki::make_authority("ab12", now_on_the_wall());
    const std::string key = *pki::make_key();
    const auto certificate =
        *pki::sign(authority, *pki::read_request(*pki::make_request(key)),
                   {.name = {.cluster = "ab12", .role = pki::Role::controller}, .addresses = {"127.0.0.1"}},
                   {.now = now_on_the_wall()});
    support::write_text(folder.path() + "/key.pem", key);
    support::write_text(folder.path() + "/certificate.pem", certificate);
    return certificate;
  };
  const std::string first = write();
  support::PartsOptions options;
  options.controller_flags = {"--tls-certificate", folder.path() + "/certificate.pem", "--tls-key",
                              folder.path() + "/key.pem"};
  const support::PartsCluster cluster(options);
  const auto shown = [&] {
    const auto all = net::shown_certificates(*net::parse_target(cluster.address()));
    return all && !all->empty() ? pki::read_certificate(all->front())->serial : "";
  };
  EXPECT_EQ(shown(), pki::read_certificate(first)->serial);
  const std::string second = write();
  EXPECT_TRUE(eventually([&] { return shown() == pki::read_certificate(second)->serial; }));
}

// A certificate of somebody else's authority, which people know.
struct ForeignFiles {
  ForeignFiles() {
    const auto authority = *pki::make_authority("cd34", now_on_the_wall());
    const std::string key = *pki::make_key();
    support::write_text(files.path() + "/key.pem", key);
    support::write_text(
        files.path() + "/certificate.pem",
        *pki::sign(authority, *pki::read_request(*pki::make_request(key)),
                   {.name = {.cluster = "cd34", .role = pki::Role::controller}, .addresses = {"127.0.0.1"}},
                   {.now = now_on_the_wall()}));
    support::write_text(files.path() + "/ca.pem", authority.certificate);
  }
  std::vector<std::string> flags() const {
    return {"--tls-certificate", files.path() + "/certificate.pem", "--tls-key", files.path() + "/key.pem"};
  }
  support::TempFolder files;
};

class JoinBehindForeign : public ForeignFiles, public Join {
 protected:
  JoinBehindForeign() : Join(flags()) { cluster_.env()["TUTTI_CA_FILE"] = files.path() + "/ca.pem"; }
};

TEST_F(JoinBehindForeign, ANodeIsItselfAndNobodyElseWhateverCertificatePeopleSee) {
  const Token token = make_token();
  EXPECT_EQ(token.ca, *pki::fingerprint(read_text(cluster_.data() + "/ca.pem")));
  ASSERT_TRUE(start("n1", token)) << said("n1");
  EXPECT_EQ(cluster_.run({"--gpus", "1"}, "true").exit_code, 0);
  auto target = *net::parse_target(cluster_.address());
  target.ca_file = files.path() + "/ca.pem";
  std::string join_token = read_text(cluster_.data() + "/join.token");
  join_token.erase(join_token.find('\n'));
  net::Client with_join_token(target, join_token);
  EXPECT_EQ(with_join_token.request("GET", "/api/v1/agent")->status, 401) << "it opens nothing here";
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  EXPECT_TRUE(cluster_.node_becomes("n1", "ready")) << said("n1");
  ASSERT_EQ(cluster_.tutti({"nodes", "revoke", "n1"}).exit_code, 0);
  EXPECT_TRUE(eventually([&] { return has(said("n1"), "the certificate of node 'n1' was revoked"); }))
      << said("n1");
}

class ShortLives : public Join {
 protected:
  ShortLives() : Join({"--tls", "--certificate-life", "10s"}) {}
};

TEST_F(ShortLives, ANodeRenewsItsCertificateByItself) {
  ASSERT_TRUE(start("n1", make_token())) << said("n1");
  const auto renewed = [&](const std::string& before) {
    return eventually([&] { return certificate("n1") != before; });
  };
  const std::string first = certificate("n1");
  ASSERT_TRUE(renewed(first)) << said("n1");
  EXPECT_EQ(pki::read_certificate(first)->key_id, pki::read_certificate(certificate("n1"))->key_id);
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  agents_.at("n1")->signal(SIGKILL);
  agents_.at("n1")->wait();
  ASSERT_TRUE(start_again("n1")) << said("n1");
  ASSERT_TRUE(renewed(certificate("n1"))) << "also after a restart of both: " << said("n1");
  EXPECT_EQ(cluster_.node("n1").value("state", ""), "ready");
}

TEST_F(ShortLives, AnExpiredCertificateSaysWhatToDo) {
  ASSERT_TRUE(start("n1", make_token())) << said("n1");
  agents_.at("n1")->signal(SIGTERM);
  agents_.at("n1")->wait();
  const Instant until = pki::read_certificate(certificate("n1"))->until;
  ASSERT_TRUE(eventually([&] { return now_on_the_wall() > until; }));
  agents_["n1"] = std::make_unique<support::Process>(
      std::vector<std::string>{support::tutti_program, "agent", "--data", folder("n1"), "--isolation", "none",
                               "--fake-gpus", "1xH100"},
      cluster_.file("agent-n1"), environment());
  EXPECT_TRUE(eventually([&] { return has(said("n1"), "the certificate has expired"); })) << said("n1");
  EXPECT_TRUE(eventually([&] { return has(said("n1"), "tutti agent join"); })) << said("n1");
}

TEST_F(ShortLives, TheTimeInWhichNoControllerIsThereDoesNotCount) {
  ASSERT_TRUE(start("n1", make_token())) << said("n1");
  const std::string id = cluster_.submit({"--gpus", "1"}, support::until(cluster_.file("go")));
  ASSERT_TRUE(cluster_.becomes(id, "running"));
  cluster_.kill_controller();
  const std::string before = certificate("n1");
  const Instant until = pki::read_certificate(before)->until;
  ASSERT_TRUE(eventually([&] { return now_on_the_wall() > until; }));
  ASSERT_TRUE(cluster_.start_controller());
  EXPECT_TRUE(cluster_.node_becomes("n1", "ready")) << said("n1");
  EXPECT_TRUE(eventually([&] { return certificate("n1") != before; })) << said("n1");
  support::write_text(cluster_.file("go"), "");
  EXPECT_EQ(cluster_.wait(id), 0);
  EXPECT_EQ(cluster_.json({"show", id}).value("attempt", -1), 0) << "it has run on";
}

// What `tutti up` and a controller on this machine did before, they do still.
TEST(PlainCluster, MakesNoTokensAndNeedsNoCertificates) {
  support::PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const auto refused = cluster.tutti({"nodes", "token"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "signs no certificates") && has(refused.err, "--tls")) << refused.err;
}

}  // namespace
}  // namespace tutti
