// Every row of the tables of pages, asked of servers that run: with no key, with a wrong one, with the right
// one, with other methods and with too large a body. What a row promises is what is answered.
#include "serve/server/pages.hpp"

#include <set>

#include "serve/runner/toy_program_test.hpp"
#include "serve/server/infer_server.hpp"
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

constexpr const char* key = "0123456789abcdef";
constexpr const char* wrong_key = "0123456789abcdeF";

// With all that may be missing, and without it; `name` stands for the model's.
std::vector<std::string> examples_of(std::string path, const std::string& name) {
  for (std::size_t open = path.find('{'); open != std::string::npos; open = path.find('{')) {
    const std::size_t end = path.find('}', open) + 1;
    path.replace(open, end - open, path.substr(open, end - open) == "{version}" ? "1" : name);
  }
  const std::size_t open = path.find('[');
  if (open == std::string::npos) return {path};
  const std::size_t close = path.find(']');
  return {path.substr(0, open) + path.substr(close + 1),
          path.substr(0, open) + path.substr(open + 1, close - open - 1) + path.substr(close + 1)};
}

struct Question {
  std::string method;
  std::string path;
  std::string key = {};
  std::size_t body_bytes = 0;  // that it says it has
};

// The head of the answer.
std::string head_of(std::uint16_t port, const Question& question) {
  const RawClient client(port);
  client.send(question.method + " " + question.path + " HTTP/1.1\r\nHost: localhost\r\n" +
              (question.key.empty() ? "" : "Authorization: Bearer " + question.key + "\r\n") +
              "Content-Length: " + std::to_string(question.body_bytes) + "\r\n\r\n");
  return client.read_until("\r\n\r\n");
}

int status_of(std::uint16_t port, const Question& question) {
  const std::string head = head_of(port, question);
  return head.starts_with("HTTP/1.1 ") ? std::stoi(head.substr(9, 3)) : 0;
}

// Let in: what is then said of an empty body is the handler's own affair.
bool is_let_in(int status) { return status == 200 || status == 400; }

void ask_every_row(std::span<const Page> rows, std::uint16_t port, const std::string& name) {
  for (const Page& row : rows) {
    for (const std::string& path : examples_of(std::string(row.path), name)) {
      SCOPED_TRACE(std::string(row.method) + " " + path);
      const std::string method(row.method);
      EXPECT_TRUE(is_let_in(status_of(port, {method, path, key})));
      for (const char* other : {"", wrong_key}) {
        const int status = status_of(port, {method, path, other});
        EXPECT_TRUE(row.needs_key ? status == 401 : is_let_in(status)) << status;
      }
      EXPECT_EQ(status_of(port, {method, path, key, row.body_bytes_max + 1}), 413);
      EXPECT_EQ(status_of(port, {method, path, "", row.body_bytes_max + 1}), row.needs_key ? 401 : 413);
      if (method == "GET") {
        const std::string head = head_of(port, {"HEAD", path, key});
        EXPECT_EQ(status_of(port, {"HEAD", path, key}), status_of(port, {method, path, key})) << head;
        EXPECT_TRUE(head.ends_with("\r\n\r\n")) << "it has no body: " << head;
      }
      for (const char* wrong : {"GET", "POST", "PUT", "DELETE", "OPTIONS", "BREW"}) {
        if (wrong == row.method) continue;
        const std::string head = head_of(port, {wrong, path, key});
        EXPECT_TRUE(head.starts_with("HTTP/1.1 405 ")) << head;
        EXPECT_NE(head.find("\r\nAllow: " + method + "\r\n"), std::string::npos) << head;
        EXPECT_EQ(status_of(port, {wrong, path, ""}), row.needs_key ? 401 : 405);
      }
    }
  }
  for (const char* path :
       {"/", "/v1", "/v3", "/openai", "/openai/health", "/openai/openai/v1/models", "/health/", "//health",
        "/v1/models/", "/v2/models//ready", "/metrics/more", "/HEALTH"}) {
    EXPECT_EQ(status_of(port, {"GET", path, key}), 404) << path;
    EXPECT_EQ(status_of(port, {"GET", path, ""}), 401) << path;
  }
}

TEST_F(Serving, EveryPageIsWhatItsRowSays) {
  auto with_key = settings();
  with_key.key = key;
  serve(with_key);
  ask_every_row(Server::pages(), server->port(), "tiny");
}

TEST(InferRows, EveryPageIsWhatItsRowSays) {
  InferSettings settings;
  settings.key = key;
  auto server = InferServer::listen(settings);
  ASSERT_TRUE(server) << server.error().text();
  (*server)->start("toy", std::make_unique<ToyProgram>());
  std::thread thread([&] { (*server)->run(); });
  ask_every_row(InferServer::pages(), (*server)->port(), "toy");
  (*server)->stop();
  thread.join();
}

TEST(PageRows, AreComplete) {
  for (const auto table : {Server::pages(), InferServer::pages()}) {
    std::set<std::string> seen;
    for (const Page& row : table) {
      SCOPED_TRACE(row.path);
      EXPECT_TRUE(row.method == "GET" ? row.body_bytes_max == 0 : row.body_bytes_max > 0);
      EXPECT_FALSE(row.summary.empty() || row.summary.ends_with('.'));
      EXPECT_EQ(row.summary.find_first_of("|\n"), std::string_view::npos) << "it is a cell of a table";
      EXPECT_NE(row.handle, nullptr);
      EXPECT_TRUE(seen.insert(std::string(row.method) + " " + std::string(row.path)).second);
    }
  }
}

TEST(FindPage, HasARowForEachMethodOfThePathThatIsMeant) {
  const std::vector<Page> table{{.path = "/models/{name...}"},
                                {.path = "/models/first", .needs_key = false},
                                {.method = "PUT", .path = "/models/first"}};
  const std::vector<std::string> first{"models", "first"};
  const auto found = find_page(table, first);
  EXPECT_EQ(found.methods(), "GET, PUT") << "a literal part comes first";
  EXPECT_EQ(found.page("GET"), &table[1]);
  EXPECT_EQ(found.page("DELETE"), nullptr);
  EXPECT_TRUE(found.needs_key()) << "whoever may use one row only does not learn of the others";
  const std::vector<std::string> deep{"models", "a", "b"};
  EXPECT_EQ(find_page(table, deep).arguments.at("name"), "a/b");
  const std::vector<std::string> none{"model"};
  EXPECT_TRUE(find_page(table, none).rows.empty());
  EXPECT_TRUE(find_page(table, none).needs_key());
}

}  // namespace
}  // namespace tutti::serve
