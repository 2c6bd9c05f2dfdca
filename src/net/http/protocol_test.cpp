// What HTTP itself asks of a server, and what its senders may do with it: heads alone, old clients, bodies
// whose end is in doubt, heads and chunks that do not end.
#include <future>
#include <mutex>

#include <gtest/gtest.h>

#include "net/http/net_test.hpp"

namespace tutti::net {
namespace {

std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Answers each with what it was asked, and remembers that.
struct Protocol : Net {
  void serve_echoes(const ServerOptions& options = {}) {
    serve(
        [this](auto exchange) {
          const Request& request = exchange->request();
          const std::string asked = request.method + " " + request.path + " " + request.body;
          {
            const std::lock_guard lock(mutex);
            seen.push_back(asked);
          }
          exchange->answer({.body = asked});
        },
        options);
  }
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex);
    return seen;
  }

  std::mutex mutex;
  std::vector<std::string> seen;
};

// ---- the head alone

TEST_F(Protocol, AHeadIsAnsweredAsAGetWithoutItsBody) {
  serve_echoes();
  const std::string head = raw("HEAD /page HTTP/1.1\r\nConnection: close\r\n\r\n", false);
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 ")) << head;
  EXPECT_TRUE(has(head, "\r\nContent-Length: 10\r\n")) << head;
  EXPECT_EQ(body_of(head), "");
  // Whoever takes a body for the next answer would see it here.
  const std::string both =
      raw("HEAD /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\nConnection: close\r\n\r\n", false);
  EXPECT_TRUE(body_of(both).starts_with("HTTP/1.1 200 ")) << both;
  EXPECT_TRUE(both.ends_with("\r\n\r\nGET /two ")) << both;
  EXPECT_EQ(asked(), (std::vector<std::string>{"GET /page ", "GET /one ", "GET /two "}));
  Client client(target(), "");
  EXPECT_EQ(client.request("HEAD", "/").value().body, "");
  EXPECT_EQ(client.request("GET", "/").value().body, "GET / ");
}

TEST_F(Protocol, ARefusalOfAHeadHasNoBodyEither) {
  serve([](auto) {}, {},
        [](const Request&) -> Admission { return {Response{.status = 401, .body = "wrong"}}; });
  const std::string refused = raw("HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n", false);
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 401 ")) << refused;
  EXPECT_EQ(body_of(refused), "");
  const std::string wrong = raw("HEAD nowhere HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(wrong.starts_with("HTTP/1.1 400 ")) << wrong;
  EXPECT_EQ(body_of(wrong), "");
}

TEST_F(Protocol, TheHeadOfAStreamIsAllOfIt) {
  std::promise<void> closed;
  std::shared_ptr<Stream> kept;
  serve([&](auto exchange) {
    if (exchange->request().path == "/next") return exchange->answer({.body = "next"});
    kept = exchange->stream([&] { closed.set_value(); });
    kept->write("data: one\n\n");
  });
  const std::string both =
      raw("HEAD / HTTP/1.1\r\n\r\nGET /next HTTP/1.1\r\nConnection: close\r\n\r\n", false);
  closed.get_future().wait();
  EXPECT_TRUE(has(both, "text/event-stream")) << both;
  EXPECT_TRUE(body_of(both).starts_with("HTTP/1.1 200 ")) << both;
  EXPECT_TRUE(both.ends_with("\r\n\r\nnext")) << both;
}

// ---- HTTP/1.0

TEST_F(Protocol, AnOldClientGetsAStreamWithoutChunks) {
  serve([](auto exchange) {
    const auto stream = exchange->stream(nullptr);
    stream->write("data: one\n\n");
    stream->write("data: two\n\n");
    stream->close();
  });
  for (const std::string header : {"", "Connection: close\r\n", "Connection: keep-alive\r\n"}) {
    const std::string got = raw("GET / HTTP/1.0\r\n" + header + "\r\n", false);
    EXPECT_TRUE(got.starts_with("HTTP/1.0 200 ")) << got;
    EXPECT_FALSE(has(got, "Transfer-Encoding")) << got;
    EXPECT_FALSE(has(got, "keep-alive")) << got;
    EXPECT_EQ(body_of(got), "data: one\n\ndata: two\n\n");
  }
}

TEST_F(Protocol, AnOldClientIsKeptOnlyIfItAsksForThat) {
  serve_echoes();
  const std::string one = raw("GET /one HTTP/1.0\r\n\r\n", false);
  EXPECT_TRUE(one.starts_with("HTTP/1.0 200 ")) << one;
  EXPECT_EQ(body_of(one), "GET /one ");
  const std::string two =
      raw("GET /one HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /two HTTP/1.0\r\n\r\n", false);
  EXPECT_TRUE(has(two, "\r\nConnection: keep-alive\r\n")) << two;
  EXPECT_TRUE(two.ends_with("\r\n\r\nGET /two ")) << two;
}

TEST_F(Protocol, OnlyWhoKnowsTheAnswerIsToldToGoOn) {
  serve_echoes();
  const std::string old =
      raw("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", false);
  EXPECT_TRUE(old.starts_with("HTTP/1.0 200 ")) << old;
  const std::string asks = raw(
      "POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", false);
  EXPECT_TRUE(asks.starts_with("HTTP/1.1 100 ")) << asks;
}

// ---- where a request begins and ends

TEST_F(Protocol, EmptyLinesBeforeARequestArePassedOver) {
  serve_echoes();
  const std::string both =
      raw("\r\n\r\nPOST /one HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi\r\n"
          "GET /two HTTP/1.1\r\nConnection: close\r\n\r\n",
          false);
  EXPECT_TRUE(both.ends_with("\r\n\r\nGET /two ")) << both;
  EXPECT_EQ(asked(), (std::vector<std::string>{"POST /one hi", "GET /two "}));
  EXPECT_EQ(raw("\r"), "") << "half of one is nothing";
  EXPECT_TRUE(has(raw("\rGET / HTTP/1.1\r\n\r\n"), " 400 "));
}

// Whoever passes requests on may see the end of such a body elsewhere: what it takes for a body must not be
// taken for a request here.
TEST_F(Protocol, ABodyWhoseEndIsInDoubtIsRefused) {
  serve_echoes();
  const std::string hidden = "GET /hidden HTTP/1.1\r\n\r\n";
  const std::string chunks = "0\r\n\r\n" + hidden;
  const auto ask = [&](const std::string& version, const std::string& headers, const std::string& rest) {
    return raw("POST / HTTP/" + version + "\r\n" + headers + "\r\n" + rest);
  };
  EXPECT_TRUE(has(ask("1.1", "Transfer-Encoding: gzip\r\n", hidden), " 501 "));
  EXPECT_TRUE(has(ask("1.1", "Transfer-Encoding: identity\r\n", hidden), " 501 "));
  EXPECT_TRUE(has(ask("1.1", "Transfer-Encoding: gzip, chunked\r\n", chunks), " 501 "));
  EXPECT_TRUE(has(ask("1.1", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", chunks), " 501 "));
  EXPECT_TRUE(has(ask("1.1", "Transfer-Encoding: gzip\r\nContent-Length: 4\r\n", hidden), " 501 "));
  EXPECT_TRUE(has(ask("1.0", "Transfer-Encoding: chunked\r\n", chunks), " 501 "));
  EXPECT_TRUE(has(ask("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunks), " 400 "));
  EXPECT_TRUE(has(ask("1.1", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", chunks), " 400 "));
  EXPECT_TRUE(has(ask("1.1", "Content-Length: 4\r\nContent-Length: 5\r\n", hidden), " 400 "));
  EXPECT_EQ(asked(), std::vector<std::string>{});
  EXPECT_TRUE(has(ask("1.1", "transfer-encoding: Chunked\r\nConnection: close\r\n", "2\r\nhi\r\n0\r\n\r\n"),
                  "\r\n\r\nPOST / hi"));
}

// ---- what does not end

// Each is taken when the next begins, of which one byte has come then: together they are too many all the
// same.
TEST_F(Protocol, AHeadOfVeryManyLinesIsTooLarge) {
  constexpr std::size_t line_bytes = 512;  // as much as is read at once of a head
  serve_echoes();
  const std::string begin = "GET /";
  const std::string end = " HTTP/1.1\r\n";
  std::string head = begin + std::string(line_bytes - 1 - begin.size() - end.size(), 'x') + end;
  while (head.size() < 8 * header_bytes_max) head += "x: " + std::string(line_bytes - 5, 'x') + "\r\n";
  EXPECT_TRUE(has(raw(head, false), " 413 "));
  EXPECT_EQ(asked(), std::vector<std::string>{});
}

TEST_F(Protocol, WhatStandsAroundChunksIsBounded) {
  serve_echoes();
  const std::string head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string much(4 * piece_bytes_max, 'x');
  EXPECT_TRUE(has(raw(head + "1;" + much, false), " 413 ")) << "an extension without an end";
  std::string lines;
  while (lines.size() < much.size()) lines += "x: y\r\n";
  EXPECT_TRUE(has(raw(head + "1\r\nx\r\n0\r\n" + lines, false), " 413 ")) << "a trailer without one";
  EXPECT_EQ(asked(), std::vector<std::string>{});
  const std::string fine =
      raw("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
          "1;name=value\r\nx\r\n0\r\nx: y\r\n\r\n",
          false);
  EXPECT_TRUE(fine.ends_with("\r\n\r\nPOST / x")) << fine;
}

}  // namespace
}  // namespace tutti::net
