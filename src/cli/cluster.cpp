#include "cli/cluster.hpp"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/files/files.hpp"
#include "base/text.hpp"
#include "cli/login_token.hpp"
#include "cli/terminal.hpp"
#include "control/controller/controller.hpp"
#include "control/wire/replies.hpp"

namespace tutti::cli {
namespace {

constexpr std::size_t address_line_bytes_max = 4096;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "" if there is no such file.
Result<std::string> first_line(const std::string& file) {
  auto text = files::read_file(file, address_line_bytes_max);
  if (!text) return std::move(text).error();
  return *text ? std::string(trim(std::string_view(**text).substr(0, (*text)->find('\n')))) : "";
}

}  // namespace

// Ranks and daemons have working folders of their own: what they are told does not depend on one.
std::string absolute_path(const std::string& path) {
  std::error_code unknown;
  const auto absolute = std::filesystem::absolute(path, unknown);
  return unknown ? path : absolute.lexically_normal().string();
}

std::string home_folder() {
  if (const std::string chosen = variable("TUTTI_HOME"); !chosen.empty()) return absolute_path(chosen);
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.tutti";
  const passwd* user = ::getpwuid(::getuid());
  return std::string(user == nullptr ? "/tmp" : user->pw_dir) + "/.tutti";
}

std::string user_name() {
  const passwd* user = ::getpwuid(::getuid());
  return user == nullptr ? std::to_string(::getuid()) : user->pw_name;
}

Result<Cluster> Cluster::find() {
  auto target = target_of(variable("TUTTI_ADDR"), variable("TUTTI_CA_FILE"));
  if (!target) return std::move(target).error();
  return reach(std::move(*target), variable("TUTTI_TOKEN_FILE"), true);
}

Result<Cluster> Cluster::without_token() {
  auto target = target_of(variable("TUTTI_ADDR"), variable("TUTTI_CA_FILE"));
  if (!target) return std::move(target).error();
  return Cluster(std::move(*target), "");
}

Result<Cluster> Cluster::with_login() {
  auto target = target_of(variable("TUTTI_ADDR"), variable("TUTTI_CA_FILE"));
  if (!target) return std::move(target).error();
  const std::string kept = login_token_file(target->text());
  return reach(std::move(*target), kept, false);
}

Result<Cluster> Cluster::local() {
  auto target = target_of("", "");
  if (!target) return std::move(target).error();
  return reach(std::move(*target), "", false);
}

Result<Cluster> Cluster::of_home(const std::string& home) {
  auto address = first_line(home + "/address");
  if (!address) return std::move(address).error();
  auto target = net::parse_target(*address);
  if (!target) return failed("there is no cluster in " + home).remedy("`tutti up` starts one");
  return reach(std::move(*target), home + "/controller/admin.token", false);
}

Result<net::Target> Cluster::target_of(std::string address, std::string ca_file) {
  const std::string home = home_folder();
  const bool local = address.empty();
  if (local) {
    auto line = first_line(home + "/address");
    if (!line)
      return std::move(line)
          .error()
          .within("no cluster")
          .remedy(
              "TUTTI_HOME names the folder of a cluster of your own, TUTTI_ADDR and TUTTI_TOKEN_FILE reach "
              "one of "
              "somebody else");
    address = *line;
  }
  if (address.empty()) {
    return failed("there is no cluster here")
        .within("no cluster")
        .remedy("`tutti up` starts one on this machine; TUTTI_ADDR=HOST:PORT names another one");
  }
  if (address.find("://") != std::string::npos)
    return invalid("'" + address + "' is a URL, and not HOST:PORT")
        .within(local ? home + "/address" : "TUTTI_ADDR")
        .remedy("leave out what is before the host and after the port; TUTTI_CA_FILE makes it TLS");
  auto target = net::parse_target(address);
  if (!target) return std::move(target).error().within(local ? home + "/address" : "TUTTI_ADDR");
  target->ca_file = std::move(ca_file);
  return target;
}

Result<Cluster> Cluster::reach(net::Target target, std::string token_file, bool by_login) {
  const std::string kept = login_token_file(target.text());
  by_login = by_login && token_file.empty() && ::access(kept.c_str(), F_OK) == 0;
  if (token_file.empty()) token_file = by_login ? kept : home_folder() + "/controller/admin.token";
  auto token = controller::read_token(token_file);
  if (!token)
    return std::move(token).error().remedy(
        "TUTTI_TOKEN_FILE names the file that holds the token; `tutti login` gets one where the cluster has "
        "an "
        "issuer");
  Cluster cluster(std::move(target), std::move(*token));
  cluster.by_login_ = by_login;
  return cluster;
}

Result<nlohmann::json> Cluster::request(const std::string& method, const std::string& path,
                                        const std::string& body, Duration time_max) {
  const auto asked_at = std::chrono::steady_clock::now();
  bool told = false;
  client_.on_wait([&] {
    if (told || std::chrono::steady_clock::now() - asked_at < answer_told_after) return;
    told = true;
    print_note("controller " + address() + " : it does not answer yet; waiting for it");
  });
  auto response = client_.request(method, "/api/v1/" + path, body, time_max);
  client_.on_wait(nullptr);
  if (client_.met_another()) return std::move(response).error();
  if (!response && client_.may_have_arrived()) {
    const Error& error = response.error();
    return unknown(error.message()).within(error.context()).remedy(error.remedy());
  }
  if (!response) return std::move(response).error();
  if (response->status == 401 && by_login_)
    return invalid("the token of your login is not taken any more")
        .remedy("`tutti login` gets you another one");
  if (response->status >= 400) return wire::decode_error(response->status, response->body);
  auto parsed = nlohmann::json::parse(response->body, nullptr, false);
  if (parsed.is_discarded())
    return failed("it does not answer with JSON").within("controller " + target_.text());
  return parsed;
}

// A controller that is stopped, crowded or waits for its disk says when to come again. Where nobody knows
// whether it was done it is for the caller to say what follows.
Result<nlohmann::json> Cluster::request_again(const std::string& method, const std::string& path,
                                              const std::string& body, Duration time_max) {
  const auto give_up_at = std::chrono::steady_clock::now() + time_max;
  for (bool told = false;;) {
    const auto left = std::chrono::duration_cast<Duration>(give_up_at - std::chrono::steady_clock::now());
    auto answer = request(method, path, body, left);
    const std::chrono::seconds pause(client_.retry_after_seconds());
    if (answer || pause == pause.zero() || answer.error().code() != ErrorCode::failed) return answer;
    if (std::chrono::steady_clock::now() + pause >= give_up_at) return answer;
    if (!std::exchange(told, true))
      print_note("controller " + address() + " : " + answer.error().text() + "; asking again");
    std::this_thread::sleep_for(pause);
  }
}

Result<nlohmann::json> Cluster::send_until_answered(const std::string& method, const std::string& path,
                                                    const std::string& body, const std::string& what) {
  const auto give_up_at = std::chrono::steady_clock::now() + answer_time_max;
  for (bool in_doubt = false;;) {
    auto answer = request_again(method, path, body, answer_time_max);
    if (answer || answer.error().code() == ErrorCode::invalid) return answer;
    if (answer.error().code() == ErrorCode::unknown && !std::exchange(in_doubt, true))
      print_note(what + " : " + answer.error().text() + "; sending it again, it is done once");
    if (!in_doubt) return answer;
    if (std::chrono::steady_clock::now() > give_up_at)
      return std::move(answer).error().as(ErrorCode::unknown);
    std::this_thread::sleep_for(reconnect_every);
  }
}

Result<nlohmann::json> Cluster::get(const std::string& path, Duration time_max) {
  return request_again("GET", path, "", time_max);
}
Result<nlohmann::json> Cluster::post_again(const std::string& path, const std::string& body) {
  return request_again("POST", path, body, answer_time_max);
}
Result<nlohmann::json> Cluster::post(const std::string& path, const std::string& body) {
  return request("POST", path, body);
}
Result<nlohmann::json> Cluster::all_pages(const std::string& path) {
  nlohmann::json all{{path, nlohmann::json::array()}};
  for (std::string after;;) {
    auto page = get(path + (after.empty() ? "" : "?after=" + url_encode(after)));
    if (!page) return page;
    for (auto& one : page->at(path)) all[path].push_back(std::move(one));
    if (page->contains("error")) all["error"] = page->at("error");
    after = page->value("next", "");
    if (after.empty()) return all;
  }
}

Result<nlohmann::json> Cluster::nodes() { return all_pages("nodes"); }
Result<nlohmann::json> Cluster::people() { return all_pages("people"); }
Result<nlohmann::json> Cluster::tokens() { return all_pages("tokens"); }
Result<nlohmann::json> Cluster::secrets() { return all_pages("secrets"); }

Result<> Cluster::put(const std::string& path, const std::string& body) {
  auto done = request("PUT", path, body);
  if (!done) return std::move(done).error();
  return {};
}

Result<> Cluster::remove(const std::string& path) {
  auto done = request("DELETE", path, "");
  if (!done) return std::move(done).error();
  return {};
}

std::string url_encode(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || letter == '.' || letter == '_' || letter == '-') {
      encoded += letter;
    } else {
      encoded += '%';
      encoded += digits[byte >> 4];
      encoded += digits[byte & 15];
    }
  }
  return encoded;
}

}  // namespace tutti::cli
