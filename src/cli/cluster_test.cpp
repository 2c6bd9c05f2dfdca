#include "cli/cluster.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "net/http/server.hpp"

namespace tutti::cli {
namespace {

// A controller that answers with a page for each name behind which the next one is asked for.
class ClusterPages : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tutti-pages-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
    std::ofstream(folder_ + "/token") << std::string(64, '0') << "\n";
    ::setenv("TUTTI_TOKEN_FILE", (folder_ + "/token").c_str(), 1);
    auto listening = net::Server::listen(loop_, {}, [this](auto exchange) { serve(*exchange); });
    ASSERT_TRUE(listening.ok()) << listening.error().text();
    server_ = std::move(*listening);
    ::setenv("TUTTI_ADDR", ("127.0.0.1:" + std::to_string(server_->port())).c_str(), 1);
  }
  void TearDown() override {
    end();
    std::filesystem::remove_all(folder_);
  }

  // In between the pages are the server's.
  Cluster begin() {
    thread_ = std::thread([this] { loop_.run(); });
    return Cluster::find().value();
  }
  void end() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void serve(net::Exchange& exchange) {
    const auto& query = exchange.request().query;
    const auto after = query.find("after");
    asked_.push_back(exchange.request().path + (after == query.end() ? "" : " after " + after->second));
    const auto page = pages_.find(asked_.back());
    if (page != pages_.end()) return exchange.answer({.status = 200, .body = page->second});
    exchange.answer({.status = 500, .body = R"({"error":{"message":"it has no such page"}})"});
  }

  std::string folder_;
  std::map<std::string, std::string> pages_;
  std::vector<std::string> asked_;
  net::Loop loop_;
  std::unique_ptr<net::Server> server_;
  std::thread thread_;
};

TEST_F(ClusterPages, AllOfThemAreOneList) {
  pages_["/api/v1/nodes"] = R"({"nodes":[{"name":"a"},{"name":"b &=/%c"}],"next":"b &=/%c"})";
  pages_["/api/v1/nodes after b &=/%c"] = R"({"nodes":[{"name":"d"}],"next":"d"})";
  pages_["/api/v1/nodes after d"] = R"({"nodes":[]})";
  const auto nodes = begin().nodes();
  ASSERT_TRUE(nodes.ok()) << nodes.error().text();
  std::vector<std::string> names;
  for (const auto& node : nodes->at("nodes")) names.push_back(node.at("name"));
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b &=/%c", "d"}));
  end();
  EXPECT_EQ(asked_.size(), 3U) << "each once";
}

TEST_F(ClusterPages, WhereOneIsMissingThereIsNoHalfOfAList) {
  pages_["/api/v1/people"] = R"({"people":[{"name":"ada"}],"next":"ada"})";
  const auto people = begin().people();
  ASSERT_FALSE(people.ok());
  EXPECT_NE(people.error().text().find("it has no such page"), std::string::npos) << people.error().text();
}

TEST_F(ClusterPages, WhatOneOfThemSaysBesideItsListIsSaid) {
  pages_["/api/v1/secrets"] =
      R"({"secrets":[{"name":"a"}],"next":"user/ada/a","error":"they cannot be opened"})";
  pages_["/api/v1/secrets after user/ada/a"] = R"({"secrets":[{"name":"b"}]})";
  const auto secrets = begin().secrets();
  ASSERT_TRUE(secrets.ok()) << secrets.error().text();
  EXPECT_EQ(secrets->at("secrets").size(), 2U);
  EXPECT_EQ(secrets->value("error", ""), "they cannot be opened");
}

}  // namespace
}  // namespace tutti::cli
