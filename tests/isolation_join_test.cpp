// Both halves of many people at once: a server joins over TLS with a token for new nodes, and runs what a
// person submits with a token of his own as his account. Each half by itself: join_test, isolation_test,
// people_test.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "net/pki/pki.hpp"
#include "support/isolated.hpp"

namespace tutti {
namespace {

using support::ada_id;
using support::eventually;
using support::has;
using support::lines_of;
using support::read_text;
using support::until;
using support::write_text;

class JoinedNode : public support::Isolation {
 protected:
  void SetUp() override {
    if (!accounts_.there()) GTEST_SKIP() << "needs root, and the right to mount";
    cluster_ = std::make_unique<support::PartsCluster>(
        support::PartsOptions{.data = "",
                              .controller_flags = {"--tls", "--isolation", "user"},
                              .agent_flags = {},
                              .isolation = "user",
                              .agent_folders = accounts_.file("nodes")});
    std::filesystem::create_directories(accounts_.file("nodes"));
    cluster_->env()["TUTTI_CA_FILE"] = cluster_->data() + "/ca.pem";
    const auto token = cluster_->json({"nodes", "token"});
    write_text(cluster_->file("token"), token.value("token", "") + "\n");
    // Of isolation nothing is said: it is what an agent of root's does.
    agent_ = std::make_unique<support::Process>(
        std::vector<std::string>{support::tutti_program, "agent", "join", cluster_->address(), "--token-file",
                                 cluster_->file("token"), "--ca", token.value("ca", ""), "--name", "n1",
                                 "--data", agent(), "--fake-gpus", "2xH100"},
        cluster_->file("agent-n1"),
        std::map<std::string, std::string>{{"TUTTI_HOME", cluster_->home()},
                                           {"TUTTI_ADDR", ""},
                                           {"TUTTI_TOKEN_FILE", ""},
                                           {"TUTTI_CA_FILE", ""}});
    ASSERT_TRUE(cluster_->node_becomes("n1", "ready")) << read_text(cluster_->file("agent-n1.err"));
  }

  void TearDown() override {
    Isolation::TearDown();
    if (!agent_) return;
    agent_->signal(SIGTERM);
    agent_->wait();
  }

  // From now on commands are that user's, who gets a token.
  void become_user(const std::string& name) {
    cluster_->env()["TUTTI_TOKEN_FILE"] = cluster_->data() + "/admin.token";
    ASSERT_EQ(cluster_->tutti({"users", "set", name, "--role", "user"}).exit_code, 0);
    const std::string file = cluster_->file(name + ".token");
    ASSERT_EQ(cluster_->tutti({"tokens", "create", "--user", name, "--out", file}).exit_code, 0);
    cluster_->env()["TUTTI_TOKEN_FILE"] = file;
  }

  std::unique_ptr<support::Process> agent_;
};

TEST_F(JoinedNode, APersonsJobRunsAsHimWithHisSecretAndHisFolder) {
  const auto identity = pki::read_certificate(read_text(agent() + "/node.pem"));
  ASSERT_TRUE(identity.ok()) << "it has joined with a certificate of its own";
  EXPECT_EQ(identity->name.node, "n1");

  become_user("tutti-ada");
  write_text(accounts_.file("value"), "of ada alone");
  const auto set = cluster_->tutti({"secret", "set", "TOKEN", "--file", accounts_.file("value")});
  ASSERT_EQ(set.exit_code, 0) << set.err;
  std::filesystem::create_directory(accounts_.file("shipped"));
  write_text(accounts_.file("shipped/word"), "shipped\n");
  const std::string gate = accounts_.file("gate");
  const auto submitted =
      cluster_->tutti({"run", "--detach", "--ranks", "2", "--secret", "TOKEN", "--sync",
                       accounts_.file("shipped"), "--", "sh", "-c",
                       "id -u && stat -c %u word && cat word $TUTTI_SECRETS/TOKEN && echo && echo "
                       "$TUTTI_WORLD_SECRET && " +
                           until(gate, "true")});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string job = submitted.out.substr(0, submitted.out.find('\n'));
  const auto said = [&](int rank) { return lines_of(cluster_->log(job, rank)); };
  ASSERT_TRUE(eventually([&] { return said(0).size() == 5 && said(1).size() == 5; }))
      << cluster_->tutti({"show", job}).out << cluster_->log(job, 0);
  const auto lines = said(0);
  EXPECT_EQ(lines[0], ada_id);
  EXPECT_EQ(lines[1], ada_id);
  EXPECT_EQ(lines[2], "shipped");
  EXPECT_EQ(lines[3], "of ada alone");
  EXPECT_EQ(lines[4].size(), 64U) << "by which the ranks of the gang know each other";
  EXPECT_EQ(said(1), lines);
  const auto shown = cluster_->job(job);
  EXPECT_EQ(shown.value("user", ""), "tutti-ada");
  EXPECT_FALSE(has(shown.dump(), lines[4]) || has(shown.dump(), "of ada alone"));

  // Somebody else of the cluster has neither her secret nor her account.
  become_user("tutti-ben");
  EXPECT_NE(cluster_->tutti({"run", "--secret", "TOKEN", "--workdir", "/", "--", "true"}).exit_code, 0);
  EXPECT_NE(cluster_->tutti({"cancel", job}).exit_code, 0) << "it is hers";
  const auto his = cluster_->tutti({"run", "--no-prefix", "--workdir", "/", "--", "id", "-u"});
  EXPECT_EQ(his.out, support::ben_id + "\n") << his.err;

  write_text(gate, "");
  EXPECT_EQ(cluster_->wait(job), 0) << cluster_->tutti({"show", job}).out;
  cluster_->env()["TUTTI_TOKEN_FILE"] = cluster_->data() + "/admin.token";
  EXPECT_TRUE(has(cluster_->tutti({"audit", "--user", "tutti-ada"}).out, "submit job " + job));
  EXPECT_TRUE(eventually([&] { return nothing_is_left(); }));
}

}  // namespace
}  // namespace tutti
