// Logging in: `tutti login` with a browser and with a code, what the controller believes, and an issuer of
// OpenID Connect as others write it.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/clock/clock.hpp"
#include "net/http/client.hpp"
#include "net/oidc/base64url.hpp"
#include "net/oidc/fake/fake_issuer.hpp"
#include "net/oidc/fake/signing_key.hpp"
#include "net/oidc/flow.hpp"
#include "support/cluster.hpp"
#include "support/connection.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using oidc::SigningKey;
using support::has;
using support::read_text;

constexpr const char* token_given = "tutti-0123456789abcdef-00112233445566778899aabbccddeeff";
constexpr const char* token_page = "/api/v1/tokens/0123456789abcdef";

std::string now_text(std::int64_t seconds_later) {
  return std::to_string(now_on_the_wall().time_since_epoch() / 1s + seconds_later);
}

std::string claims_of(const std::string& issuer, const std::string& more = "") {
  return R"({"iss":")" + issuer + R"(","aud":"tutti","sub":"1","preferred_username":"ada","iat":)" +
         now_text(0) + R"(,"exp":)" + now_text(300) + more + "}";
}

// The query of an address, decoded.
std::map<std::string, std::string> query_of(const std::string& url) {
  std::map<std::string, std::string> query;
  std::string part;
  const auto decode = [](const std::string& text) {
    std::string plain;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const bool escaped = text[at] == '%' && at + 2 < text.size();
      plain += escaped ? static_cast<char>(std::stoi(text.substr(at + 1, 2), nullptr, 16)) : text[at];
      if (escaped) at += 2;
    }
    return plain;
  };
  for (std::size_t at = url.find('?'); at != std::string::npos;) {
    const std::size_t next = url.find('&', at + 1);
    part = url.substr(at + 1, next == std::string::npos ? next : next - at - 1);
    query[part.substr(0, part.find('='))] = decode(part.substr(part.find('=') + 1));
    at = next;
  }
  return query;
}

int status_of(const std::string& url) {
  const auto parsed = oidc::parse_url(url);
  net::Client client({.host = parsed->host, .port = parsed->port}, "");
  const auto answer = client.request("GET", parsed->path);
  return answer ? answer->status : 0;
}

// Where a page sends whoever asks for it; "" if it sends him nowhere.
std::string sent_on_by(const std::string& url) {
  const auto parsed = oidc::parse_url(url);
  const support::Connection connection(parsed->port);
  connection.send("GET " + parsed->path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  const std::string answer = connection.read_until("\r\n\r\n");
  const std::string name = "\r\nLocation: ";
  const std::size_t at = answer.find(name);
  if (!has(answer, " 302 ") || at == std::string::npos) return "";
  const std::size_t begin = at + name.size();
  return answer.substr(begin, answer.find("\r\n", begin) - begin);
}

// `tutti login` between an issuer and a controller of the test's own.
class LoginCommand : public testing::Test {
 protected:
  LoginCommand() {
    std::filesystem::create_directories(folder_.path() + "/bin");
    support::write_text(folder_.path() + "/bin/xdg-open", "#!/bin/sh\nprintf '%s' \"$1\" >\"$0.url\"\n");
    ::chmod((folder_.path() + "/bin/xdg-open").c_str(), 0755);
    env_ = {{"HOME", folder_.path()},
            {"XDG_CONFIG_HOME", ""},
            {"TUTTI_HOME", folder_.path() + "/home"},
            {"TUTTI_ADDR", controller_.url().substr(std::string("http://").size())},
            {"TUTTI_TOKEN_FILE", ""},
            {"TUTTI_CA_FILE", ""},
            {"DISPLAY", ""},
            {"WAYLAND_DISPLAY", ""},
            {"PATH", folder_.path() + "/bin:" + std::getenv("PATH")}};
    issuer_.set_keys(oidc::jwks_of(key_.jwk()));
    controller_.on("/api/v1/login", [this](const net::Request& request) {
      if (request.method == "GET")
        return net::Response{.body = R"({"issuer":")" + issuer_.url() +
                                     R"(","client_id":"tutti","scopes":"openid profile"})"};
      const std::lock_guard lock(mutex_);
      sent_ = json::parse(request.body);
      return net::Response{.body = R"({"token":")" + std::string(token_given) + R"(","user":"ada"})"};
    });
    controller_.on("/api/v1/queues", [this](const net::Request& request) {
      const std::lock_guard lock(mutex_);
      bearer_ = request.bearer;
      return net::Response{.body = R"({"queues":[]})"};
    });
    issuer_.say("/device", R"({"device_code":"dc","user_code":"AB-CD","verification_uri":")" + issuer_.url() +
                               R"(/type-in","expires_in":60,"interval":1})");
  }

  std::unique_ptr<support::Process> start(const std::vector<std::string>& words) const {
    std::vector<std::string> all{support::tutti_program};
    all.insert(all.end(), words.begin(), words.end());
    return std::make_unique<support::Process>(all, output(), env_);
  }
  support::Finished tutti(std::vector<std::string> words) const {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = env_, .stdout_to = ""});
  }
  std::string output() const { return folder_.path() + "/out"; }
  std::string said() const { return read_text(output()) + read_text(output() + ".err"); }
  std::string token_file() const {
    std::string address = env_.at("TUTTI_ADDR");
    return folder_.path() + "/.config/tutti/token-" + address.replace(address.find(':'), 1, "%3A");
  }
  json sent() {
    const std::lock_guard lock(mutex_);
    return sent_;
  }
  // Where xdg-open was told to go.
  std::string opened_url() const {
    const std::string file = folder_.path() + "/bin/xdg-open.url";
    EXPECT_TRUE(support::eventually([&] { return has(read_text(file), "http://"); })) << said();
    return read_text(file);
  }
  void be_logged_in() const {
    std::filesystem::create_directories(folder_.path() + "/.config/tutti");
    support::write_text(token_file(), std::string(token_given) + "\n");
  }

  support::TempFolder folder_;
  std::map<std::string, std::string> env_;
  const SigningKey key_ = SigningKey::p256("one");
  std::mutex mutex_;
  json sent_;
  std::string bearer_;
  oidc::FakeIssuer issuer_;
  oidc::FakeIssuer controller_;
};

TEST_F(LoginCommand, ABrowserBringsTheAnswerBackAndTheTokenIsKeptForItsOwner) {
  env_["DISPLAY"] = ":none";
  const auto login = start({"login"});
  const std::string opened = opened_url();
  EXPECT_EQ(opened.find("http://127.0.0.1:"), 0U) << opened;
  EXPECT_FALSE(has(opened, "state=") || has(opened, "nonce=")) << "others on the machine read it";
  const std::string on = sent_on_by(opened);
  EXPECT_EQ(on.find(issuer_.url() + "/authorize?"), 0U) << on;
  EXPECT_EQ(sent_on_by(opened), "") << "once";
  EXPECT_EQ(status_of(opened), 404);
  auto asked = query_of(on);
  EXPECT_EQ(asked["response_type"], "code");
  EXPECT_EQ(asked["client_id"], "tutti");
  EXPECT_EQ(asked["scope"], "openid profile");
  EXPECT_EQ(asked["code_challenge_method"], "S256");
  std::string id_token;
  std::map<std::string, std::string> form;
  issuer_.on("/token", [&](const net::Request& request) {
    const std::lock_guard lock(mutex_);
    form = query_of("?" + request.body);
    id_token = key_.sign(claims_of(issuer_.url(), R"(,"nonce":")" + asked["nonce"] + '"'));
    return net::Response{.body = R"({"id_token":")" + id_token + R"("})"};
  });
  const std::string back = asked["redirect_uri"];
  EXPECT_EQ(back.find("http://127.0.0.1:"), 0U);
  EXPECT_EQ(status_of(back.substr(0, back.rfind('/')) + "/other"), 404);
  EXPECT_EQ(status_of(back), 400);
  EXPECT_EQ(status_of(back + "?code=stolen&state=guessed"), 400);
  EXPECT_EQ(status_of(back + "?code=c1&state=" + asked["state"]), 200);
  EXPECT_EQ(login->wait(), 0) << said();
  EXPECT_EQ(form["code"], "c1");
  EXPECT_EQ(form["grant_type"], "authorization_code");
  EXPECT_EQ(oidc::challenge_of(form["code_verifier"]), asked["code_challenge"]);
  EXPECT_EQ(sent()["id_token"], id_token);
  EXPECT_EQ(sent()["nonce"], asked["nonce"]);
  EXPECT_TRUE(has(said(), "as ada")) << said();
  for (const std::string& secret : {std::string(token_given), id_token, form["code_verifier"]})
    EXPECT_FALSE(has(said(), secret));
  struct stat kept {};
  ASSERT_EQ(::stat(token_file().c_str(), &kept), 0) << token_file();
  EXPECT_EQ(kept.st_mode & 0777, 0600U);
  EXPECT_EQ(read_text(token_file()), std::string(token_given) + "\n");
  EXPECT_EQ(tutti({"queues"}).exit_code, 0);
  EXPECT_EQ(bearer_, token_given) << "later commands find it";
  controller_.say(token_page, "{}");
  EXPECT_TRUE(has(tutti({"logout"}).out, "logged out"));
  EXPECT_EQ(controller_.asked(token_page), 1) << "a copy of the file opens nothing either";
  EXPECT_NE(::access(token_file().c_str(), F_OK), 0);
  EXPECT_TRUE(has(tutti({"logout"}).out, "nobody is logged in"));
  EXPECT_EQ(tutti({"queues"}).exit_code, 1);
}

TEST_F(LoginCommand, WithoutADisplayACodeIsShownAndAskedForUntilItWasTypedIn) {
  const std::string id_token = key_.sign(claims_of(issuer_.url()));
  std::atomic<int> asked = 0;
  issuer_.on("/token", [&](const net::Request& request) {
    EXPECT_TRUE(has(request.body, "device_code=dc"));
    if (asked++ == 0) return net::Response{.status = 400, .body = R"({"error":"authorization_pending"})"};
    return net::Response{.body = R"({"id_token":")" + id_token + R"("})"};
  });
  const auto login = tutti({"login"});
  EXPECT_EQ(login.exit_code, 0) << login.err;
  EXPECT_TRUE(has(login.out, issuer_.url() + "/type-in") && has(login.out, "AB-CD")) << login.out;
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(sent()["id_token"], id_token);
  EXPECT_EQ(sent()["nonce"], "");
  EXPECT_EQ(read_text(token_file()), std::string(token_given) + "\n");
}

TEST_F(LoginCommand, ARefusalOfTheIssuerEndsIt) {
  for (const auto& [word, told] :
       {std::pair<std::string, std::string>{"access_denied", "it was not allowed there"},
        {"expired_token", "the code was not typed in in time"},
        {"invalid_client", "invalid_client"}}) {
    issuer_.say("/token", R"({"error":")" + word + R"("})", 400);
    const auto login = tutti({"login", "--device"});
    EXPECT_EQ(login.exit_code, 1);
    EXPECT_TRUE(has(login.err, told)) << login.err;
  }
  EXPECT_NE(::access(token_file().c_str(), F_OK), 0);
  EXPECT_TRUE(sent().is_null());
}

TEST_F(LoginCommand, CtrlCEndsItAndNothingIsKept) {
  env_["DISPLAY"] = ":none";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"login"}, {"login", "--device"}}) {
    issuer_.say("/token", R"({"error":"authorization_pending"})", 400);
    const auto login = start(words);
    EXPECT_TRUE(support::eventually([&] { return has(said(), words.size() == 1 ? "state=" : "AB-CD"); }));
    login->signal(SIGINT);
    EXPECT_EQ(login->wait(), 130) << said();
    EXPECT_TRUE(has(said(), "you are not logged in")) << said();
  }
  EXPECT_NE(::access(token_file().c_str(), F_OK), 0);
}

TEST_F(LoginCommand, AnIssuerThatIsNotWhoItShouldBeIsNotAsked) {
  std::string other = issuer_.discovery();
  other.replace(other.find(issuer_.url()), issuer_.url().size(), "https://evil.example");
  issuer_.say("/.well-known/openid-configuration", other);
  const auto login = tutti({"login"});
  EXPECT_EQ(login.exit_code, 1);
  EXPECT_TRUE(has(login.err, "it is of the issuer 'https://evil.example'")) << login.err;
  const auto plain = tutti({"login", "--issuer", "http://issuer.example", "--client-id", "x"});
  EXPECT_TRUE(has(plain.err, "plain http")) << plain.err;
  EXPECT_EQ(tutti({"login", "--issuer", "https://issuer.example"}).exit_code, 2);
}

TEST_F(LoginCommand, ATokenThatIsNotTakenAnyMoreSaysWhatToDo) {
  be_logged_in();
  controller_.say("/api/v1/queues", R"({"error":{"message":"the token is wrong","wrong_request":true}})",
                  401);
  const auto refused = tutti({"queues"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "`tutti login` gets you another one")) << refused.err;
}

TEST_F(LoginCommand, WhoLogsOutLeavesNothingThatOpensOrHearsThatHeDoes) {
  be_logged_in();
  controller_.on(token_page, [this](const net::Request& request) {
    const std::lock_guard lock(mutex_);
    bearer_ = request.method + " " + request.bearer;
    return net::Response{.status = 200, .body = "{}"};
  });
  const auto fine = tutti({"logout"});
  EXPECT_EQ(fine.exit_code, 0) << fine.err;
  EXPECT_EQ(fine.err, "");
  EXPECT_EQ(bearer_, "DELETE " + std::string(token_given));

  be_logged_in();
  controller_.say(token_page, R"({"error":{"message":"the token is wrong","wrong_request":true}})", 401);
  EXPECT_EQ(tutti({"logout"}).err, "") << "it opens nothing any more";

  for (const bool away : {false, true}) {
    if (away) env_["TUTTI_ADDR"] = "127.0.0.1:1";
    be_logged_in();
    controller_.say(token_page, R"({"error":{"message":"nothing can be stored now"}})", 503);
    const auto left = tutti({"logout"});
    EXPECT_EQ(left.exit_code, 0) << left.err;
    EXPECT_TRUE(has(left.err, "the token 0123456789abcdef is not revoked")) << left.err;
    EXPECT_TRUE(has(left.err, "`tutti tokens revoke 0123456789abcdef`")) << left.err;
    EXPECT_FALSE(has(left.err, token_given));
    EXPECT_NE(::access(token_file().c_str(), F_OK), 0) << "here it is gone in any case";
  }
}

// A controller that knows the issuer.
class LoginAtController : public testing::Test {
 protected:
  LoginAtController() { issuer_.set_keys(oidc::jwks_of(key_.jwk())); }

  static support::PartsOptions parts(const std::string& issuer) {
    support::PartsOptions options;
    options.controller_flags = {"--oidc-issuer", issuer, "--oidc-client-id", "tutti"};
    return options;
  }
  net::Response log_in(const std::string& token, const std::string& nonce = "") {
    net::Client client(*net::parse_target(cluster_.address()), "");
    const auto answer =
        client.request("POST", "/api/v1/login", json{{"id_token", token}, {"nonce", nonce}}.dump());
    EXPECT_TRUE(answer.ok());
    return answer ? *answer : net::Response{.status = 0};
  }

  const SigningKey key_ = SigningKey::rsa("one");
  oidc::FakeIssuer issuer_;
  support::PartsCluster cluster_{parts(issuer_.url())};
};

TEST_F(LoginAtController, BelievesItsIssuerAndNobodyElse) {
  const std::string claims = claims_of(issuer_.url());
  const auto stranger = log_in(key_.sign(claims));
  EXPECT_EQ(stranger.status, 403) << "believed, and not let in";
  EXPECT_TRUE(has(stranger.body, "user ada")) << stranger.body;
  ASSERT_EQ(cluster_.tutti({"users", "set", "ada", "--role", "viewer:default"}).exit_code, 0);
  const auto believed = log_in(key_.sign(claims));
  ASSERT_EQ(believed.status, 200) << believed.body;
  const auto reply = json::parse(believed.body);
  net::Client client(*net::parse_target(cluster_.address()), reply["token"]);
  const auto whoami = client.request("GET", "/api/v1/whoami");
  ASSERT_TRUE(whoami.ok());
  EXPECT_TRUE(has(whoami->body, "\"ada\"") && has(whoami->body, "\"viewer\"")) << whoami->body;
  // Somebody else, whom the issuer calls so by now.
  std::string other_subject = claims;
  other_subject.replace(other_subject.find(R"("sub":"1")"), 9, R"("sub":"2")");
  EXPECT_EQ(log_in(key_.sign(other_subject)).status, 403);
  std::string other_audience = claims;
  other_audience.replace(other_audience.find("\"tutti\""), 7, "\"other\"");
  const std::string expired = R"({"iss":")" + issuer_.url() + R"(","aud":"tutti","sub":"1","iat":1,"exp":2})";
  const std::string unsigned_token =
      oidc::to_base64url(R"({"alg":"none"})") + "." + oidc::to_base64url(claims) + ".";
  const std::string with_nonce = claims_of(issuer_.url(), R"(,"nonce":"other")");
  struct Evil {
    std::string token;
    std::string why;
    std::string nonce = {};
  };
  for (const Evil& evil :
       {Evil{SigningKey::rsa("one").sign(claims), "signature"},
        Evil{SigningKey::rsa("two").sign(claims), "no key with which"},
        Evil{key_.sign(claims_of("https://evil.example")), "(iss)"}, Evil{key_.sign(other_audience), "(aud)"},
        Evil{key_.sign(expired), "(exp)"}, Evil{unsigned_token, "'none'"},
        Evil{key_.sign_with_public_key(claims), "'HS256'"}, Evil{key_.sign(with_nonce), "(nonce)", "n"}}) {
    const auto refused = log_in(evil.token, evil.nonce);
    EXPECT_EQ(refused.status, 401) << evil.why;
    EXPECT_TRUE(has(refused.body, evil.why)) << evil.why << ": " << refused.body;
    EXPECT_FALSE(has(read_text(cluster_.file("controller.err")), evil.token)) << "no token stands in a log";
  }
}

TEST_F(LoginAtController, SettingsThatCannotBeMeantAreRefusedAtTheStart) {
  for (const auto& [flags, why] :
       {std::pair<std::vector<std::string>, std::string>{{"--oidc-issuer", "https://a"}, "go together"},
        {{"--oidc-issuer", "http://issuer.example", "--oidc-client-id", "x"}, "plain http"},
        {{"--oidc-issuer", "https://a", "--oidc-client-id", "x", "--oidc-ca", "/nowhere"}, "--oidc-ca"}}) {
    std::vector<std::string> words{"controller", "--data", cluster_.data(), "--listen", "127.0.0.1:0"};
    words.insert(words.end(), flags.begin(), flags.end());
    const auto refused = cluster_.tutti(words);
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_TRUE(has(refused.err, why)) << refused.err;
  }
}

// oidc-provider from npm, in the build's folder. Why it is not there, or "".
std::string install_provider(const std::string& folder) {
  const std::string script = R"(set -e
command -v node >/dev/null && command -v npm >/dev/null || { echo 'there is no npm' >&2; exit 1; }
mkdir -p "$1"; exec 9>"$1/lock"; flock 9; cp "$2"/* "$1"
cmp -s "$1/package-lock.json" "$1/installed" && exit
npm ci --prefix "$1" --no-audit --no-fund --loglevel error --fetch-retries 1 --fetch-timeout 20000 >&2
cp "$1/package-lock.json" "$1/installed")";
  const auto installed =
      support::run({"bash", "-c", script, "install", folder, TUTTI_SOURCE_DIR "/tests/oidc"});
  if (installed.exit_code == 0) return "";
  return "npm cannot install oidc-provider: " + (installed.timed_out ? "no answer in time" : installed.err);
}

TEST(LoginWithProvider, BothWaysEndWithAWordThatIsBelieved) {
  const std::string programs = TUTTI_BUILD_DIR "/oidc";
  if (const std::string why = install_provider(programs); !why.empty()) GTEST_SKIP() << why;
  const support::TempFolder folder;
  const support::Process provider({"node", programs + "/provider.mjs"}, folder.path() + "/issuer");
  const auto issuer = [&] { return read_text(folder.path() + "/issuer"); };
  ASSERT_TRUE(support::eventually([&] { return has(issuer(), "\n"); }))
      << read_text(folder.path() + "/issuer.err");
  support::PartsOptions options;
  options.controller_flags = {"--oidc-issuer", support::lines_of(issuer()).front(), "--oidc-client-id",
                              "tutti"};
  support::PartsCluster cluster(options);
  for (const auto& [name, value] : {std::pair<std::string, std::string>{"HOME", folder.path()},
                                    {"XDG_CONFIG_HOME", ""},
                                    {"DISPLAY", ""},
                                    {"WAYLAND_DISPLAY", ""},
                                    {"PATH", std::getenv("PATH")}})
    cluster.env()[name] = value;
  ASSERT_EQ(cluster.tutti({"users", "set", "ada", "--role", "viewer:default"}).exit_code, 0);
  for (const bool device : {true, false}) {
    cluster.env()["DISPLAY"] = device ? "" : ":none";
    const std::string output = device ? "device" : "browser";
    const auto login = cluster.start({"login"}, output);
    const auto said = [&] { return read_text(cluster.file(output)); };
    ASSERT_TRUE(support::eventually([&] { return has(said(), device ? "or follow  " : "&state="); }))
        << said() << read_text(cluster.file(output + ".err"));
    const std::string url =
        device ? said().substr(said().find("or follow  ") + 11) : said().substr(said().find("http"));
    const auto browser =
        support::run({"node", programs + "/browser.mjs", url.substr(0, url.find('\n')), "ada"});
    EXPECT_EQ(browser.exit_code, 0) << browser.err;
    EXPECT_TRUE(has(browser.out, device ? "Sign-in Success" : "tutti has its answer")) << browser.out;
    EXPECT_EQ(login->wait(), 0) << read_text(cluster.file(output + ".err"));
    cluster.env()["TUTTI_TOKEN_FILE"] = "";
    EXPECT_TRUE(has(cluster.tutti({"whoami"}).out, "ada: viewer:default\n"));
    EXPECT_EQ(cluster.tutti({"logout"}).exit_code, 0);
    EXPECT_TRUE(has(cluster.tutti({"whoami"}).out, "admin: admin\n")) << "as before: the local cluster's own";
    cluster.env()["TUTTI_TOKEN_FILE"] = cluster.data() + "/admin.token";
  }
}

}  // namespace
}  // namespace tutti
