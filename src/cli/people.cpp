// `tutti users`, `tutti tokens` and `tutti whoami`: who may use the cluster, as whom, and with which tokens.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/files/files.hpp"
#include "base/text.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "control/people/door.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

// "user:research/vision", "operator".
json role_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  return {{"role", text.substr(0, colon)},
          {"queue", colon == std::string::npos ? "" : text.substr(colon + 1)}};
}

std::string roles_text(const json& roles) {
  std::string text;
  for (const auto& role : roles) {
    const std::string queue = role.value("queue", "");
    text += (text.empty() ? "" : ", ") + role.value("role", "") + (queue.empty() ? "" : ":" + queue);
  }
  return text.empty() ? "none" : text;
}

std::string time_or(const json& view, const char* key, const char* otherwise) {
  const std::string time = view.value(key, "");
  return time.empty() ? otherwise : local_time(time);
}

// The word is one of these, or none.
Result<> check_action(const std::string& command, const std::string& action, const std::string& name,
                      const std::vector<std::string>& actions, const std::vector<std::string>& nameless) {
  if (action.empty()) return {};
  if (std::find(actions.begin(), actions.end(), action) == actions.end()) {
    std::string all;
    for (const auto& one : actions) all += one + ", ";
    return invalid("unknown word '" + action.substr(0, 64) + "'")
        .remedy(did_you_mean(action, actions))
        .remedy(all + "or nothing to see all");
  }
  const bool needs_name = std::find(nameless.begin(), nameless.end(), action) == nameless.end();
  if (needs_name && name.empty())
    return invalid("which one?").remedy("`tutti " + command + " " + action + " NAME`");
  if (!needs_name && !name.empty())
    return invalid("'" + name.substr(0, 64) + "' is a word too many")
        .remedy("`tutti " + command + " --help`");
  return {};
}

class Users final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("ACTION", action_, "`set`, `block`, `unblock` or `remove`; none: shows all", false);
    flags.add_word("NAME", name_, "of the user", false);
    flags.add("role", roles_,
              "set: ROLE:QUEUE, with the parts of the queue, or ROLE for everything; all that he is to have");
    flags.add("service", service_,
              "set: an account of a program, as which nobody logs in; an admin makes it");
    flags.add("json", json_, "JSON for scripts");
  }

  Result<int> run() override {
    auto fits = check_action("users", action_, name_, {"set", "block", "unblock", "remove"}, {});
    if (fits && action_ != "set" && (!roles_.empty() || service_))
      fits = invalid("--role and --service are for `tutti users set NAME`");
    if (fits && action_ == "set" && roles_.empty())
      fits = invalid("which roles?").remedy("such as --role user:default, or --role none to take all away");
    if (!fits) return std::move(fits).error().within("users");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    const std::string path = "people/" + url_encode(name_);
    Result<> done;
    if (action_ == "set") done = cluster->put(path, wanted().dump());
    if (action_ == "remove") done = cluster->remove(path);
    if (action_ == "block" || action_ == "unblock") {
      auto answer = cluster->post(path + "/" + action_);
      if (!answer) done = std::move(answer).error();
    }
    if (!done) return std::move(done).error().within("users " + action_ + " " + name_);
    if (action_ == "remove") {
      if (json_) std::printf("%s\n", json{{"removed", name_}}.dump().c_str());
      return exit_success;
    }
    return show(*cluster);
  }

 private:
  json wanted() const {
    json roles = json::array();
    for (const auto& role : roles_) {
      if (role != "none") roles.push_back(role_of(role));
    }
    json body{{"roles", roles}};
    if (service_) body["kind"] = "service";
    return body;
  }

  // All of them, or the one that was changed.
  Result<int> show(Cluster& cluster) const {
    auto document = cluster.people();
    if (!document) return std::move(document).error().within("users");
    json shown = json::array();
    for (auto& person : document->at("people")) {
      if (name_.empty() || person.at("name") == name_) shown.push_back(std::move(person));
    }
    if (json_) {
      std::printf("%s\n", (name_.empty() || shown.empty() ? shown : shown.front()).dump().c_str());
      return exit_success;
    }
    TextTable table({"NAME", "KIND", "SINCE", "TOKENS", "STATE", "ROLES"});
    for (const auto& person : shown)
      table.add({person.value("name", ""), person.value("kind", ""), time_or(person, "made_at", "-"),
                 std::to_string(person.value("tokens", 0)), person.value("blocked", false) ? "blocked" : "ok",
                 roles_text(person.at("roles"))});
    print_text(table.text());
    return exit_success;
  }

  std::string action_;
  std::string name_;
  std::vector<std::string> roles_;
  bool service_ = false;
  bool json_ = false;
};

class TokensCommand final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("ACTION", action_, "`create` or `revoke`; none: shows all", false);
    flags.add_word("ID", id_, "revoke: of the token", false);
    flags.add("user", user_, "create: whose it is (default: yours); without ACTION: only those of this user");
    flags.add(
        "expires", "TIME|never", [this](std::string_view text) { return set_life(text); },
        "create: how long it opens anything (default: 90d)");
    flags.add("role", role_, "create: it may at most what this role may");
    flags.add("queue", queue_, "create: and only in this queue and its parts");
    flags.add("for", purpose_, "create: what it is for, in words");
    flags.add("out", file_,
              "create: writes it into this new file, for its owner alone, instead of to stdout");
    flags.add("json", json_, "JSON for scripts");
  }

  Result<int> run() override {
    auto fits = check_action("tokens", action_, id_, {"create", "revoke"}, {"create"});
    if (fits && action_ != "create" &&
        (!role_.empty() || !queue_.empty() || !purpose_.empty() || !file_.empty()))
      fits = invalid("--role, --queue, --for and --out are for `tutti tokens create`");
    if (!fits) return std::move(fits).error().within("tokens");
    // Somebody has the whole token at hand, and wants it to open nothing: its id is in it.
    if (const auto id = people::id_in(id_); !id.empty()) id_ = id;
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (action_ == "create") return create(*cluster);
    if (action_ == "revoke") {
      if (auto done = cluster->remove("tokens/" + url_encode(id_)); !done)
        return std::move(done).error().within("tokens revoke " + id_);
      if (json_) std::printf("%s\n", json{{"revoked", id_}}.dump().c_str());
      return exit_success;
    }
    return show(*cluster);
  }

 private:
  Result<> set_life(std::string_view text) {
    if (text == "never") {
      life_ = Duration::zero();
      return {};
    }
    const auto life = parse_duration(text);
    if (!life) return life.error();
    if (*life < 1s) return invalid("a token opens something for a second at least");
    life_ = *life;
    return {};
  }

  Result<int> create(Cluster& cluster) const {
    // Before the token is there: it is told once.
    std::error_code unknown;
    if (!file_.empty() && std::filesystem::exists(file_, unknown))
      return invalid("there is something already").within("--out " + file_).remedy("name a new file");
    json wish{{"person", user_}, {"role", role_}, {"queue", queue_}, {"purpose", purpose_}};
    if (life_) wish["expires_in_s"] = *life_ / 1s;
    auto made = cluster.post("tokens", wish.dump());
    if (!made) return std::move(made).error().within("tokens create");
    const std::string token = made->at("token").get<std::string>();
    const std::string id = made->at("id").get<std::string>();
    if (!file_.empty()) {
      if (auto written = files::replace_file(file_, token + "\n", {.mode = 0600, .durable = true}); !written)
        return std::move(written).error().remedy("`tutti tokens revoke " + id + "`, and make another");
      made->erase("token");
      (*made)["file"] = file_;
    }
    if (json_) {
      std::printf("%s\n", made->dump().c_str());
    } else if (file_.empty()) {
      print_note("token " + id + " of " + made->at("person").get<std::string>() +
                 ", shown this once; TUTTI_TOKEN_FILE names the file that holds it");
      std::printf("%s\n", token.c_str());
    } else {
      print_text("token " + id + " of " + made->at("person").get<std::string>() + " is in " + file_ + "\n");
    }
    return exit_success;
  }

  Result<int> show(Cluster& cluster) const {
    auto document = cluster.tokens();
    if (!document) return std::move(document).error().within("tokens");
    json shown = json::array();
    for (auto& token : document->at("tokens")) {
      if (user_.empty() || token.at("person") == user_) shown.push_back(std::move(token));
    }
    if (json_) {
      std::printf("%s\n", shown.dump().c_str());
      return exit_success;
    }
    TextTable table({"ID", "USER", "MAY", "MADE", "USED", "EXPIRES", "FOR"});
    for (const auto& token : shown) {
      const std::string role = token.value("role", "");
      const std::string queue = token.value("queue", "");
      const std::string may = (role.empty() ? "as the user" : role) + (queue.empty() ? "" : " in " + queue);
      table.add({token.value("id", ""), token.value("person", ""), may, time_or(token, "made_at", "-"),
                 time_or(token, "used_at", "never"),
                 token.value("expired", false) ? "expired" : time_or(token, "expires_at", "never"),
                 token.value("purpose", "")});
    }
    print_text(table.text());
    return exit_success;
  }

  std::string action_;
  std::string id_;
  std::string user_;
  std::string role_;
  std::string queue_;
  std::string purpose_;
  std::string file_;
  std::optional<Duration> life_;
  bool json_ = false;
};

class Whoami final : public Command {
 public:
  void declare(config::Flags& flags) override { flags.add("json", json_, "JSON for scripts"); }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    const auto document = cluster->get("whoami");
    if (!document) return Error(document.error()).within("whoami");
    if (json_) {
      std::printf("%s\n", document->dump().c_str());
      return exit_success;
    }
    std::string text = document->value("name", "") + ": " + roles_text(document->at("roles")) + "\n";
    if (document->value("cluster_token", false))
      text += "with the cluster's own token: jobs are of the user that they name\n";
    const std::string expires = document->value("expires_at", "");
    if (!expires.empty()) text += "the token expires at " + local_date_time(expires) + "\n";
    print_text(text);
    return exit_success;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_users() { return std::make_unique<Users>(); }
std::unique_ptr<Command> make_tokens() { return std::make_unique<TokensCommand>(); }
std::unique_ptr<Command> make_whoami() { return std::make_unique<Whoami>(); }

}  // namespace tutti::cli
