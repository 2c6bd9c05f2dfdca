// Commands about the cluster and its nodes: status, nodes, drain, resume.
#include <algorithm>
#include <cstdio>
#include <map>

#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/local_time.hpp"
#include "cli/nodes_tokens.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "control/cluster/membership.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

// A command that shows one document of the API, as a table or as it is.
class View : public Command {
 public:
  void declare(config::Flags& flags) override { flags.add("json", json_, "JSON for scripts"); }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto document = fetch(*cluster);
    if (!document) return std::move(document).error();
    const json body = select(std::move(*document));
    if (json_) {
      std::printf("%s\n", body.dump().c_str());
    } else {
      print_text(table(body));
    }
    return exit_success;
  }

 protected:
  virtual Result<json> fetch(Cluster& cluster) const = 0;
  virtual json select(json document) const { return document; }
  virtual std::string table(const json& body) const = 0;

  bool json_ = false;
};

std::string kept_age(const json& kept, const char* key) {
  const auto seconds = static_cast<std::int64_t>(kept.value(key, 0.0));
  return seconds == 0 ? "for ever" : "for " + format_duration(std::chrono::seconds(seconds));
}

// Of several nodes, which may have been told different ages.
std::string kept_ages(const json& kept, const char* shortest, const char* longest) {
  const std::string at_most = kept_age(kept, longest);
  const std::string at_least = kept_age(kept, shortest);
  return at_least == at_most ? at_most : at_least + " to " + at_most.substr(at_most.find(' ') + 1);
}

std::string kept_bytes(const json& kept, const char* key) {
  return format_bytes(Bytes(static_cast<std::int64_t>(kept.value(key, 0.0))));
}

// "" where nobody has said it: a controller, or agents, of an earlier version.
std::string kept_ranks(const json& kept, const char* key) {
  const auto ranks = static_cast<std::int64_t>(kept.value(key, 0.0));
  return ranks == 0 ? "" : " and " + std::to_string(ranks) + " ranks";
}

class Status final : public View {
  Result<json> fetch(Cluster& cluster) const override { return cluster.get("status"); }

  // Finished ones go sooner when they hold more than that, and no more unfinished ones are taken.
  static std::string job_bytes(const json& kept) {
    if (!kept.contains("unfinished_bytes")) return "";  // a controller of an earlier version
    return "\n       they hold " + kept_bytes(kept, "jobs_bytes") + " of " +
           kept_bytes(kept, "jobs_bytes_max") + ", and unfinished ones " +
           kept_bytes(kept, "unfinished_bytes") + " of " + kept_bytes(kept, "unfinished_bytes_max") +
           ", of one user " + kept_bytes(kept, "unfinished_bytes_of_user_max");
  }

  static std::string on_nodes(const json& kept) {
    std::string logs = kept_bytes(kept, "logs_bytes") + " of logs of ended ranks on the nodes";
    if (!kept.contains("logs_bytes_max")) return logs;  // no agent has said more
    return logs + " " + kept_ages(kept, "logs_age_min_s", "logs_age_s") + ", at most " +
           kept_bytes(kept, "logs_bytes_max") + kept_ranks(kept, "logs_ranks_max") +
           "\n       what ended jobs left in TUTTI_CHECKPOINT_DIR " +
           kept_ages(kept, "checkpoints_age_min_s", "checkpoints_age_s");
  }

  static std::string audit(const json& kept) {
    if (!kept.contains("audit_bytes_max")) return "";  // a controller of an earlier version
    return "       " + kept_bytes(kept, "audit_bytes") + " of audit log " + kept_age(kept, "audit_age_s") +
           ", at most " + kept_bytes(kept, "audit_bytes_max") + "\n";
  }

  // What is over and still there, how much room it takes, and until when.
  static std::string kept(const json& kept) {
    if (kept.empty()) return "";
    return "kept   finished jobs " + kept_age(kept, "jobs_age_s") + ", at most " +
           std::to_string(kept.value("jobs_max", 0)) + kept_ranks(kept, "jobs_ranks_max") +
           ", in a store of " + kept_bytes(kept, "store_bytes") + job_bytes(kept) + "\n       " +
           std::to_string(kept.value("nodes_lost", 0)) + " lost nodes " + kept_age(kept, "nodes_age_s") +
           "\n       " + kept_bytes(kept, "blobs_bytes") + " of shipped folders " +
           kept_age(kept, "blobs_age_s") + ", at most " + kept_bytes(kept, "blobs_bytes_max") + "\n       " +
           on_nodes(kept) + "\n" + audit(kept);
  }

  std::string table(const json& status) const override {
    std::string text = "tutti " + status.at("version").get<std::string>() + "\n";
    text += "nodes  " + std::to_string(status.at("nodes_ready").get<int>()) + " ready of " +
            std::to_string(status.at("nodes").get<int>()) + "\n";
    text += "GPUs   " + short_number(status.at("gpus_free").get<double>()) + " free of " +
            std::to_string(status.at("gpus").get<int>()) + "\n";
    text += "jobs   " + std::to_string(status.at("jobs_running").get<int>()) + " running, " +
            std::to_string(status.at("jobs_queued").get<int>()) + " queued, " +
            std::to_string(status.at("jobs_finished").get<int>()) + " finished\n";
    text += kept(status.value("kept", json::object()));
    if (!status.at("store_ok").get<bool>())
      text += "store  cannot be written: " + status.at("store_error").get<std::string>() + "\n";
    if (status.contains("secrets_error"))
      text += "secrets cannot be opened: " + status.at("secrets_error").get<std::string>() + "\n";
    if (status.contains("authority_error"))
      text += "soon   " + status.at("authority_error").get<std::string>() + "\n";
    return text;
  }
};

class Nodes final : public View {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("remove|revoke|token|tokens", action_,
                   "forget a node that is lost, or make its certificate worthless; make a token for servers "
                   "that join, or list those that were made",
                   false);
    flags.add_word("NODE", node_, "which one; of tokens: revoke", false);
    flags.add_word("ID", token_, "of the token that is to be worthless", false);
    flags.add("uses", wish_.uses_wanted, "how many servers may join with the token (default: 1)",
              {.min = 1, .max = cluster::join_token_uses_max});
    flags.add("expires", wish_.life, "until when, from now on (default: 1h)");
    flags.add("name-pattern", wish_.name_pattern, "only nodes with such a name, such as 'gpu-*'");
    View::declare(flags);
  }

  Result<int> run() override {
    if (action_.empty()) return View::run();
    if (action_ == "remove") return change("DELETE", "");
    if (action_ == "revoke") return change("POST", "/revoke");
    if (action_ == "token") return run_nodes_token(wish_, json_);
    if (action_ == "tokens" && (node_.empty() || node_ == "revoke"))
      return node_.empty() ? run_nodes_tokens(json_) : run_revoke_token(token_);
    return invalid("unknown word '" + (action_ == "tokens" ? node_ : action_) + "'")
        .within(action_ == "tokens" ? "nodes tokens" : "nodes")
        .remedy("`tutti help nodes` shows what it can do; without a word it lists all nodes");
  }

 private:
  Result<int> change(const std::string& method, const std::string& what) {
    const std::string doing = "nodes " + action_;
    if (node_.empty()) return invalid("the name of the node is missing").within(doing);
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    const std::string path = "nodes/" + url_encode(node_) + what;
    auto done = method == "DELETE" ? cluster->remove(path) : posted(*cluster, path);
    if (!done) return std::move(done).error().within(doing + " " + node_);
    return exit_success;
  }

  static Result<> posted(Cluster& cluster, const std::string& path) {
    auto done = cluster.post(path);
    return done ? Result<>() : Result<>(std::move(done).error());
  }

  // Why it takes no work, or what it takes work without.
  static std::string remark(const json& node) {
    const std::string reason = node.value("reason", "");
    const std::string lacks = node.value("lacks", "");
    return reason.empty() && !lacks.empty() ? "not as apart as with others: " + lacks : reason;
  }

  Result<json> fetch(Cluster& cluster) const override { return cluster.nodes(); }
  json select(json document) const override { return document.at("nodes"); }

  std::string table(const json& nodes) const override {
    std::vector<std::string> titles{"NODE", "STATE",  "GPUS FREE", "MODEL",
                                    "CPUS", "MEMORY", "LOCATION",  "JOBS"};
    const bool reasons =
        std::any_of(nodes.begin(), nodes.end(), [](const json& node) { return !remark(node).empty(); });
    if (reasons) titles.emplace_back("REASON");
    TextTable table(std::move(titles));
    for (const auto& node : nodes) {
      std::map<std::string, int> models;
      double free = 0;
      for (const auto& device : node.at("devices")) {
        ++models[device.at("model").get<std::string>()];
        free += device.at("share_free").get<double>() / 1000;
      }
      std::string model;
      for (const auto& [name, count] : models)
        model += (model.empty() ? "" : ", ") + std::to_string(count) + "x" + name;
      std::string jobs;
      for (const auto& job : node.at("jobs")) jobs += (jobs.empty() ? "" : ",") + job.get<std::string>();
      std::vector<std::string> cells{
          node.at("name").get<std::string>(),
          node.at("state").get<std::string>(),
          short_number(free) + "/" + std::to_string(node.at("devices").size()),
          model.empty() ? "-" : model,
          std::to_string(node.at("cpus").get<int>()),
          std::to_string(node.at("memory_mib").get<int>() / 1024) + " GiB",
          node.at("location").get<std::string>().empty() ? "-" : node.at("location").get<std::string>(),
          jobs.empty() ? "-" : jobs};
      if (reasons) cells.push_back(with_local_times(remark(node)));
      table.add(std::move(cells));
    }
    return table.text();
  }

  std::string action_;
  std::string node_;
  std::string token_;
  TokenWish wish_;
};

class Drain final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("NODE", node_, "the node's name");
    flags.add("now", now_, "move its gangs at once instead of waiting for their end");
  }
  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto done = cluster->post("nodes/" + url_encode(node_) + "/drain", json{{"now", now_}}.dump());
    if (!done) return std::move(done).error().within("drain " + node_);
    return exit_success;
  }

 private:
  std::string node_;
  bool now_ = false;
};

class Resume final : public Command {
 public:
  void declare(config::Flags& flags) override { flags.add_word("NODE", node_, "the node's name"); }
  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto done = cluster->post("nodes/" + url_encode(node_) + "/resume");
    if (!done) return std::move(done).error().within("resume " + node_);
    return exit_success;
  }

 private:
  std::string node_;
};

}  // namespace

std::unique_ptr<Command> make_status() { return std::make_unique<Status>(); }
std::unique_ptr<Command> make_nodes() { return std::make_unique<Nodes>(); }
std::unique_ptr<Command> make_drain() { return std::make_unique<Drain>(); }
std::unique_ptr<Command> make_resume() { return std::make_unique<Resume>(); }

}  // namespace tutti::cli
