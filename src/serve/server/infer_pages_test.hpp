// A program that answers on a port of the system's choice, with a toy behind it. For tests.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "serve/runner/toy_program_test.hpp"
#include "serve/server/infer_server.hpp"
#include "serve/server/serving_test.hpp"

namespace tutti::serve {

inline std::string body_of(const std::string& numbers, std::size_t count) {
  return R"({"id":"1","inputs":[{"name":"x","datatype":"UINT8","shape":[)" + std::to_string(count) +
         R"(],"data":[)" + numbers + "]}]}";
}

class InferPages : public testing::Test {
 protected:
  void listen(const InferSettings& settings = {}) {
    auto listening = InferServer::listen(settings);
    ASSERT_TRUE(listening) << listening.error().text();
    server = std::move(*listening);
    thread = std::thread([this] { server->run(); });
  }
  void start() {
    auto made = std::make_unique<ToyProgram>();
    program = made.get();
    server->start("toy", std::move(made));
  }
  void TearDown() override {
    if (!thread.joinable()) return;
    server->stop();
    thread.join();
  }
  net::Response request(const std::string& method, const std::string& path, const std::string& body = {},
                        const std::string& key = {}) const {
    net::Client client({.host = "127.0.0.1", .port = server->port()}, key);
    auto answer = client.request(method, path, body);
    EXPECT_TRUE(answer) << answer.error().text();
    return answer ? *answer : net::Response{.status = 0};
  }
  net::Response get(const std::string& path) const { return request("GET", path); }
  net::Response infer(const std::string& body) const { return request("POST", "/v2/models/toy/infer", body); }
  std::string metric(const std::string& name) const {
    const std::string text = get("/metrics").body;
    const std::size_t at = text.find("\ntutti_engine_" + name + " ");
    if (at == std::string::npos) return "";
    const std::size_t begin = text.find(' ', at) + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  std::unique_ptr<InferServer> server;
  ToyProgram* program = nullptr;
  std::thread thread;
};

}  // namespace tutti::serve
