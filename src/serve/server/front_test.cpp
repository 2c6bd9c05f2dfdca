#include "serve/server/front.hpp"

#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

// The status of what is answered to somebody who looks at the models with these headers.
std::string status_of(std::uint16_t port, const std::string& headers) {
  const RawClient client(port);
  client.send("GET /v1/models HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
  const std::string answer = client.read_until("");
  return answer.size() < 12 ? answer : answer.substr(9, 3);
}

const std::vector<std::string> own{"Host: localhost\r\n",
                                   "Host: LocalHost:8000\r\n",
                                   "Host: 127.0.0.1:8000\r\n",
                                   "Host: 127.3.2.1\r\n",
                                   "Host: [::1]:8000\r\n",
                                   "Host: ::1:8000\r\n",
                                   "Host: localhost:1\r\nOrigin: http://localhost:3000\r\n",
                                   "Host: localhost:1\r\nOrigin: http://[::1]:3000\r\n"};
const std::vector<std::string> others{"Host: rebound.example:8000\r\n",
                                      "Host: 127.rebound.example\r\n",
                                      "Host: localhost.example\r\n",
                                      "Host: 0.0.0.0:8000\r\n",
                                      "Host: 10.0.0.1\r\n",
                                      "Host: \r\n",
                                      "Host: localhost\r\nOrigin: https://page.example\r\n",
                                      "Host: localhost\r\nOrigin: http://localhost.example:8000\r\n",
                                      "Host: localhost\r\nOrigin: null\r\n"};

TEST_F(Serving, WithoutAKeyNoPageOfOthersIsAnswered) {
  serve();
  for (const std::string& headers : own) EXPECT_EQ(status_of(server->port(), headers), "200") << headers;
  for (const std::string& headers : others) EXPECT_EQ(status_of(server->port(), headers), "403") << headers;
  const RawClient client(server->port());
  client.send("GET /v1/models HTTP/1.1\r\nConnection: close\r\nHost: rebound.example\r\n\r\n");
  EXPECT_NE(client.read_until("").find("--key-file"), std::string::npos);
}

TEST_F(Serving, WithAKeyItIsTheKeyThatCounts) {
  auto with_key = settings();
  with_key.key = "0123456789abcdef";
  serve(with_key);
  for (const std::string& headers : others) {
    EXPECT_EQ(status_of(server->port(), headers), "401") << headers;
    EXPECT_EQ(status_of(server->port(), headers + "Authorization: Bearer 0123456789abcdef\r\n"), "200")
        << headers;
  }
}

}  // namespace
}  // namespace tutti::serve
