#include "control/controller/routes.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "net/http/http.hpp"

namespace tutti::controller {
namespace {

using Parts = std::vector<std::string>;

bool is_argument(std::string_view part) { return part.starts_with('{'); }

// Some path fits both, and it is not clear which is meant: neither has a literal part wherever the other has
// an argument.
bool shadow(std::string_view one, std::string_view other) {
  const auto first = split(one, '/');
  const auto second = split(other, '/');
  if (first.size() != second.size()) return false;
  bool first_narrower = false;
  bool second_narrower = false;
  for (std::size_t at = 0; at < first.size(); ++at) {
    const bool argument = is_argument(first[at]);
    if (argument != is_argument(second[at])) (argument ? second_narrower : first_narrower) = true;
    if (!argument && !is_argument(second[at]) && first[at] != second[at]) return false;
  }
  return first_narrower == second_narrower;
}

TEST(Routes, EveryRowIsComplete) {
  const std::set<std::string_view> methods{"GET", "POST", "PUT", "PATCH", "DELETE"};
  for (const Route& route : routes()) {
    SCOPED_TRACE(std::string(route.method) + " " + std::string(route.path));
    EXPECT_TRUE(methods.contains(route.method));
    EXPECT_TRUE(route.path.starts_with('/') && !route.path.ends_with('/'));
    EXPECT_FALSE(route.summary.empty());
    EXPECT_TRUE(route.summary.find('\n') == std::string_view::npos && !route.summary.ends_with('.'));
    EXPECT_FALSE(route.answer.name.empty());
    EXPECT_NE(route.handle, nullptr);
    EXPECT_TRUE(route.body_bytes_max > 0 && route.body_bytes_max <= net::body_bytes_max);
    EXPECT_EQ(route.need == Need::nothing, route.rate != RateClass::requests);
    for (const auto& parameter : route.query)
      EXPECT_FALSE(parameter.name.empty() || parameter.value.empty() || parameter.meaning.empty());
  }
}

TEST(Routes, NoRowStandsInAnothersWay) {
  const auto table = routes();
  for (std::size_t at = 0; at < table.size(); ++at) {
    for (std::size_t before = 0; before < at; ++before) {
      const bool same_path = table[before].path == table[at].path;
      EXPECT_FALSE(same_path && table[before].method == table[at].method) << table[at].path;
      EXPECT_FALSE(!same_path && shadow(table[before].path, table[at].path))
          << table[before].path << " and " << table[at].path;
    }
  }
  EXPECT_TRUE(shadow("/jobs/{id}", "/jobs/{job}"));
  EXPECT_TRUE(shadow("/jobs/{id}/last", "/jobs/first/{part}"));
  EXPECT_FALSE(shadow("/blobs/missing", "/blobs/{hash}"));
  EXPECT_FALSE(shadow("/jobs/{id}/logs", "/jobs/{id}/cancel"));
  EXPECT_FALSE(shadow("/jobs/{id}", "/jobs/{id}/logs"));
}

TEST(Routes, APathIsFoundWithItsArguments) {
  const auto page = [](const Parts& parts) { return find_page(routes(), parts); };
  const Page cancel = page({"api", "v1", "jobs", "7", "cancel"});
  ASSERT_NE(cancel.route("POST"), nullptr);
  EXPECT_EQ(cancel.route("POST")->path, "/jobs/{id}/cancel");
  EXPECT_EQ(cancel.route("GET"), nullptr);
  EXPECT_EQ(cancel.methods(), "POST");
  EXPECT_EQ(cancel.arguments, (Arguments{{"id", "7"}}));
  EXPECT_EQ(page({"api", "v1", "queues", "research/vision"}).arguments.at("name"), "research/vision");
  EXPECT_EQ(page({"api", "v1", "queues", "q"}).methods(), "PUT, DELETE");
  EXPECT_EQ(page({"api", "v1", "blobs", "missing"}).methods(), "POST") << "a literal part comes first";
  EXPECT_EQ(page({"api", "v1", "blobs", "missed"}).methods(), "PUT, GET");
}

TEST(Routes, OtherPathsAreNoPages) {
  for (const Parts& parts :
       {Parts{}, Parts{""}, Parts{"api"}, Parts{"api", "v1"}, Parts{"api", "v1", ""},
        Parts{"api", "v2", "jobs"}, Parts{"jobs"}, Parts{"v1", "api", "jobs"}, Parts{"api", "v1", "jobs", ""},
        Parts{"api", "v1", "jobs", "", "cancel"}, Parts{"api", "v1", "jobs", "7", "cancel", ""},
        Parts{"api", "v1", "{id}"}, Parts{"api", "v1", "Jobs"}, Parts{"api", "v1", "jobs/7"}})
    EXPECT_TRUE(find_page(routes(), parts).routes.empty()) << testing::PrintToString(parts);
}

TEST(Routes, OpenApiHasExactlyTheRows) {
  using nlohmann::json;
  const json document = json::parse(openapi_json());
  std::set<std::string> described;
  for (const auto& [path, item] : document["paths"].items()) {
    for (const auto& [method, operation] : item.items()) described.insert(method + " " + path);
  }
  const json admin{{"admin", json::array()}};
  const json join{{"join", json::array()}};
  const json person{{"person", json::array()}};
  const auto tokens = [&](Need need) {
    if (need == Need::nothing) return json::array();
    return need == Need::agent ? json::array({admin, join}) : json::array({admin, person});
  };
  std::set<std::string> expected;
  for (const Route& route : routes()) {
    std::string method(route.method);
    std::transform(method.begin(), method.end(), method.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    const std::string path = std::string(api_prefix) + std::string(route.path);
    SCOPED_TRACE(method + " " + path);
    expected.insert(method + " " + path);
    const json& operation = document["paths"][path][method];
    EXPECT_EQ(operation["summary"], route.summary);
    EXPECT_EQ(operation["security"], tokens(route.need));
    EXPECT_EQ(operation.value("parameters", json::array()).size(),
              net::argument_names(route.path).size() + route.query.size());
    EXPECT_EQ(operation.contains("requestBody"), !route.request.name.empty());
    EXPECT_TRUE(operation["responses"].contains("405") && operation["responses"].contains("413"));
    EXPECT_EQ(operation["responses"].contains("401"), route.need != Need::nothing);
    EXPECT_EQ(operation["responses"].contains("403"), role_of(route.need).has_value());
  }
  EXPECT_EQ(described, expected);
}

}  // namespace
}  // namespace tutti::controller
