// The parts of a cluster as commands: controller, agent, shim.
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/files/line_queue.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "base/visible.hpp"
#include "cli/authority.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/terminal.hpp"
#include "control/controller/controller.hpp"
#include "control/wire/membership.hpp"
#include "control/wire/messages.hpp"
#include "node/agent/agent.hpp"
#include "node/agent/papers.hpp"
#include "node/devices/fake/fake.hpp"
#include "node/devices/host/host.hpp"
#include "node/devices/nvml/nvml.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/process.hpp"
#include "node/rank/shim.hpp"

namespace tutti::cli {
namespace {

constexpr Duration certificate_life_min = 1s;
constexpr const char* isolation_user = "user";
constexpr const char* isolation_none = "none";

// Of a cluster, and of a node.
Result<> check_isolation(const std::string& isolation) {
  if (isolation == isolation_user || isolation == isolation_none) return {};
  if (isolation == "container")
    return invalid("ranks do not run in containers yet").within("--isolation").remedy("user or none");
  return invalid("there is no isolation '" + isolation + "'").within("--isolation").remedy("user or none");
}

class Controller final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word(
        "init|ca", action_,
        "make the folder with its tokens and its authority, and stop; or show the authority of a cluster",
        false);
    flags.add_word("rotate", step_, "take the next step to another authority", false);
    flags.add("finish", finish_, "with `ca rotate`: trust the old authority no more");
    flags.add("data", options_.folder,
              "the folder of the store and the tokens (default: ~/.tutti/controller)");
    flags.add("listen", options_.listen, "HOST:PORT; port 0 lets the system pick (default: 127.0.0.1:7070)");
    flags.add("tls-certificate", options_.tls_certificate,
              "show this certificate chain (PEM) to people; nodes see the cluster's own");
    flags.add("tls-key", options_.tls_key, "the certificate's private key (PEM)");
    flags.add("tls", options_.tls,
              "speak TLS with the cluster's own authority on 127.0.0.1 too; elsewhere it does anyway");
    flags.add("tls-name", options_.tls_names, "one more name or address by which it is called");
    flags.add("allow-join-token", options_.allow_join_token,
              "take agents with the join token also where nodes can have certificates");
    flags.add(
        "isolation", isolation_,
        "what nodes have to promise to get work: `user`, that ranks run as the accounts of their users; "
        "`none`, nothing (default: none)");
    flags.add("certificate-life", options_.certificate_life, "of nodes (default: 24h)");
    flags.add("accept-older-store", options_.accept_older_store,
              "start though the store is older than what was committed last; what is missing is forgotten");
    flags.add("record", options_.record,
              "add a line to this file for each job that ran, as a trace for `tutti sim run`");
    flags.add("requests-per-second", options_.requests_per_second,
              "at most this many of one address, twice as many at once after a rest (default: 20000)",
              {.min = 1, .max = 1'000'000});
    flags.add(
        "keep-jobs", options_.keep.jobs_age_max,
        "forget jobs so long after their end, 0s never (default: 30d); `tutti jobs archive` saves them");
    flags.add("keep-jobs-max", keep_jobs_max_, "and the oldest beyond this many (default: 100000)",
              {.min = 1, .max = 10'000'000});
    flags.add("keep-lost-nodes", options_.keep.nodes_age_max,
              "forget nodes so long after their loss, 0s never (default: 7d)");
    flags.add(
        "keep-shipped", options_.keep_blobs_age,
        "remove shipped folders that no job needs so long after their last use, 0s never (default: 7d)");
    flags.add("keep-shipped-max", options_.keep_blobs, "and the oldest beyond this size (default: 100GiB)");
    flags.add("keep-audit", options_.keep_audit_age,
              "remove files of the audit log so long after their last line, 0s never (default: 400d)");
    flags.add("keep-audit-max", options_.keep_audit, "and the oldest beyond this size (default: 10GiB)");
    flags.add("oidc-issuer", options_.login.issuer,
              "people log in at this OpenID Connect issuer, written as it calls itself: https://HOST[/PATH]");
    flags.add("oidc-client-id", options_.login.client_id,
              "what the issuer calls this cluster: a public client");
    flags.add("oidc-scopes", options_.login.scopes,
              "what the issuer is asked to tell (default: 'openid profile email')");
    flags.add("oidc-name-claim", options_.login.name_claim,
              "where it says the name of a user (default: preferred_username, and sub where there is none)");
    flags.add("oidc-ca", options_.login.ca_file,
              "the authority (PEM) that signed its certificate (default: those that this machine trusts)");
    flags.add("ready-fd", ready_fd_, "write the address to this descriptor when the port is open",
              {.min = 0, .max = 1 << 20});
  }

  bool serves() const override { return action_.empty(); }

  Result<int> run() override {
    options_.folder =
        options_.folder.empty() ? home_folder() + "/controller" : absolute_path(options_.folder);
    if (action_ == "ca") return run_controller_ca(step_, finish_);
    if (!action_.empty() && action_ != "init")
      return invalid("unknown word '" + action_ + "'").within("controller").remedy("did you mean 'init'?");
    if (action_ == "init") return init();
    if (options_.certificate_life < certificate_life_min)
      return invalid("it is at least " + format_duration(certificate_life_min)).within("--certificate-life");
    if (auto fine = check_isolation(isolation_); !fine) return std::move(fine).error().within("controller");
    options_.demands_isolation = isolation_ == isolation_user;
    options_.keep.jobs_max = static_cast<std::size_t>(keep_jobs_max_);
    rank::lower_oom_score(rank::spared_oom_score);
    auto done = controller::run_controller(options_, [this](const std::string& address) { tell(address); });
    if (!done) return std::move(done).error();
    return exit_success;
  }

 private:
  Result<int> init() {
    if (auto made = controller::init_folder(options_.folder); !made) return std::move(made).error();
    std::printf("admin token: %s/admin.token\njoin token:  %s/join.token\n", options_.folder.c_str(),
                options_.folder.c_str());
    std::printf("authority:   %s/ca.pem\n", options_.folder.c_str());
    std::printf("start it:    tutti controller --data %s\n", options_.folder.c_str());
    return exit_success;
  }

  void tell(const std::string& address) const {
    const std::string line = address + "\n";
    if (ready_fd_ >= 0) {
      if (::write(static_cast<int>(ready_fd_), line.data(), line.size()) < 0)
        log::warning("nobody waits for the address");
      ::close(static_cast<int>(ready_fd_));
    } else {
      print_note("controller listens on " + address);
    }
  }

  controller::ControllerOptions options_;
  std::string action_;
  std::string step_;
  std::string isolation_ = isolation_none;
  bool finish_ = false;
  std::int64_t ready_fd_ = -1;
  std::int64_t keep_jobs_max_ = cluster::kept_jobs_default;
};

constexpr std::size_t out_bytes_max = 4096;
constexpr const char* folder_for_users = "/var/lib/tutti-agent";

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "node";
  ::gethostname(name, HOST_NAME_MAX);
  return name;
}

class Agent final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("join", action_, "get a certificate as a node first, with a token", false);
    flags.add_word("HOST:PORT", address_, "of the controller to join", false);
    flags.add("token", token_, "of `tutti nodes token`, to join");
    flags.add("token-file", join_token_file_, "the file that holds it, - for stdin");
    flags.add("ca", authority_, "sha256:… of the cluster's authority, as `tutti nodes token` prints it");
    flags.add("controller", controller_, "HOST:PORT of the controller (default: the one that was joined)");
    flags.add("join-token-file", token_file_,
              "the file that holds the join token of the controller's folder");
    flags.add("ca-file", ca_file_, "TLS with this certificate authority (PEM)");
    flags.add("name", options_.name, "what to call the node (default: the host's name)");
    flags.add("location", options_.location, "where it stands: site/pod/rack");
    flags.add("address", options_.address,
              "where other nodes reach this one (default: as the controller sees it)");
    flags.add(
        "data", options_.folder,
        "the folder of ranks and logs (default: ~/.tutti/nodes/NAME; with --isolation user, whose ranks "
        "have to reach it, /var/lib/tutti-agent/NAME)");
    flags.add("checkpoints", options_.checkpoints,
              "a folder that all nodes share, for TUTTI_CHECKPOINT_DIR (default: in the data folder)");
    flags.add("local-checkpoints", local_checkpoints_,
              "that folder is this node's own: what a job has saved in it is not looked for elsewhere");
    flags.add("keep-logs", options_.keep_logs_age,
              "remove the logs of ranks so long after their end, 0s never (default: 14d)");
    flags.add("keep-logs-max", options_.keep_logs, "and the oldest beyond this size (default: 20GiB)");
    flags.add("keep-logs-ranks", keep_logs_ranks_,
              "and the oldest beyond this many ranks (default: 10000); an agent that starts looks at each",
              {.min = 1, .max = 1'000'000});
    flags.add("keep-checkpoints", options_.keep_checkpoints_age,
              "remove what is in TUTTI_CHECKPOINT_DIR of a job so long after its end (default: never)");
    flags.add(
        "isolation", isolation_,
        "who ranks run as: `user`, the account that has the name of the job's user, kept apart from all "
        "others; `none`, whoever the agent runs as (default: user as root, as which all ranks would be "
        "root, else none)");
    flags.add("users", options_.users_file,
              "a file of lines NAME ACCOUNT: users whose accounts are called otherwise, read again when it "
              "changes");
    flags.add("uids", uids_, "MIN-MAX, the numbers of accounts that ranks run as (default: 1000-60000)");
    flags.add("fake-gpus", fake_gpus_, "devices that are not there, such as 8xH100, for trying things out");
    flags.add("cpus", cpus_, "offer this many CPUs instead of what the host has", {.min = 0, .max = 1 << 16});
  }

  bool serves() const override { return true; }

  Result<int> run() override {
    if (!action_.empty() && action_ != "join")
      return invalid("unknown word '" + action_ + "'").within("agent").remedy("did you mean 'join'?");
    const bool is_named = !options_.name.empty();
    if (!is_named) options_.name = host_name();
    if (auto named = wire::check_node_name(options_.name); !named)
      return std::move(named).error().within("--name");
    if (auto fine = choose_isolation(); !fine) return std::move(fine).error().within("agent");
    options_.folder = options_.folder.empty() ? usual_folder() : absolute_path(options_.folder);
    if (auto found = action_.empty() ? find_controller(is_named) : join(); !found)
      return std::move(found).error();
    if (local_checkpoints_ && options_.checkpoints.empty())
      return invalid("--local-checkpoints says something about --checkpoints, which is missing")
          .within("agent")
          .remedy("without --checkpoints the folder is this node's own anyway");
    options_.shared_checkpoints = !options_.checkpoints.empty() && !local_checkpoints_;
    options_.checkpoints =
        options_.checkpoints.empty() ? options_.folder + "/checkpoints" : absolute_path(options_.checkpoints);
    options_.keep_logs_ranks = static_cast<std::size_t>(keep_logs_ranks_);
    options_.tutti_program = rank::own_program;
    if (auto found = find_inventory(); !found) return std::move(found).error();
    auto done = agent::run_agent(options_, [this] { tell_joined(); });
    if (!done) return std::move(done).error();
    return exit_success;
  }

 private:
  Result<> join() {
    if (address_.empty())
      return invalid("the controller is missing")
          .within("agent join")
          .remedy("`tutti nodes token` prints the whole line");
    auto target = net::parse_target(address_);
    if (!target) return std::move(target).error().within("agent join");
    if (!pki::is_fingerprint(authority_))
      return invalid(authority_.empty() ? "it is missing" : "it is not sha256: and 64 hexadecimal digits")
          .within("--ca")
          .remedy("`tutti nodes token` prints it: by it the controller is known before the token is sent");
    if (token_.empty() == join_token_file_.empty())
      return invalid("give the token either with --token or with --token-file")
          .within("agent join")
          .remedy(
              "--token-file - reads it from stdin; others of this machine see what stands on a command line");
    auto token = token_.empty() ? read_join_token() : Result<std::string>(token_);
    if (!token) return std::move(token).error();
    controller_ = address_;
    auto name = agent::join({.controller = std::move(*target),
                             .token = std::move(*token),
                             .authority = authority_,
                             .name = options_.name,
                             .folder = options_.folder});
    if (!name) return std::move(name).error().within("agent join");
    options_.name = std::move(*name);
    return use_papers();
  }

  Result<std::string> read_join_token() const {
    if (join_token_file_ != "-") return controller::read_token(join_token_file_);
    std::string text(wire::join_token_bytes_max + 2, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
      const ssize_t got = ::read(STDIN_FILENO, text.data() + size, text.size() - size);
      if (got <= 0) break;
      size += static_cast<std::size_t>(got);
    }
    std::string token(trim(std::string_view(text).substr(0, size)));
    if (token.empty()) return invalid("there is no token on stdin").within("--token-file -");
    return token;
  }

  // With the certificate of the agent's folder.
  Result<> use_papers() {
    auto target = agent::target_with_papers(options_.folder, controller_);
    if (!target) return std::move(target).error();
    options_.controller = std::move(*target);
    controller_ = options_.controller.text();
    return {};
  }

  Result<> find_controller(bool is_named) {
    if (token_file_.empty()) {
      const auto papers = agent::read_papers(options_.folder);
      if (!papers) return papers.error();
      if (*papers) {
        const std::string& name = (*papers)->name.node;
        if (is_named && options_.name != name)
          return invalid("the certificate in " + options_.folder + " is that of node '" + name + "'")
              .within("--name " + options_.name)
              .remedy("leave --name out, or join anew with another --data");
        options_.name = name;
        return use_papers();
      }
    }
    if (controller_.empty())
      return invalid("--controller is missing").within("agent").remedy("name the controller as HOST:PORT");
    if (token_file_.empty())
      return invalid("--join-token-file is missing")
          .within("agent")
          .remedy(
              "`tutti controller init` makes the token; of a controller elsewhere `tutti nodes token` prints "
              "the "
              "line that joins");
    auto target = net::parse_target(controller_);
    if (!target) return std::move(target).error().within("--controller");
    options_.controller = std::move(*target);
    options_.controller.ca_file = ca_file_;
    if (auto secret = net::check_secrecy(options_.controller); !secret) return std::move(secret).error();
    auto token = controller::read_token(token_file_);
    if (!token) return std::move(token).error();
    options_.token = std::move(*token);
    return {};
  }

  // Once on stdout, for whoever has started it by hand. Who does not read that keeps no node from its work.
  void tell_joined() {
    log::info("joined {}", controller_);
    if (out_) return;
    const std::string line =
        "node " + options_.name + " has joined " + controller_ + "; Ctrl-C ends the agent\n";
    auto out = files::LineQueue::start(
        out_bytes_max, [](const std::string& text) { return files::write_line(STDOUT_FILENO, text); },
        [](std::uint64_t) { return true; });
    if (!out) return;
    out_.emplace(std::move(*out));
    out_->add(visible(line));
  }

  // Users cannot pass through the home of root; one that was made there is told of, and not left behind.
  std::string usual_folder() const {
    std::string at_home = home_folder() + "/nodes/" + options_.name;
    const char* const chosen = std::getenv("TUTTI_HOME");
    std::error_code unknown;
    const bool is_asked_for = chosen != nullptr && *chosen != '\0';
    if (!options_.ranks_as_users || is_asked_for || std::filesystem::exists(at_home, unknown)) return at_home;
    return folder_for_users + ("/" + options_.name);
  }

  Result<> choose_isolation() {
    if (isolation_.empty()) isolation_ = ::geteuid() == 0 ? isolation_user : isolation_none;
    if (auto fine = check_isolation(isolation_); !fine) return fine;
    options_.ranks_as_users = isolation_ == isolation_user;
    if (options_.ranks_as_users && ::geteuid() != 0)
      return invalid("only an agent of root's can run ranks as somebody else")
          .within("--isolation")
          .remedy("start it as root, or with `--isolation none`");
    if (!options_.users_file.empty() && !options_.ranks_as_users)
      return invalid("--users says something about --isolation user, which is not so")
          .remedy("without it ranks run as whoever the agent runs as");
    if (!options_.users_file.empty()) options_.users_file = absolute_path(options_.users_file);
    if (uids_.empty()) return {};
    if (!options_.ranks_as_users)
      return invalid("--uids says something about --isolation user, which is not so")
          .remedy("without it ranks run as whoever the agent runs as");
    auto people = rank::parse_people_ids(uids_);
    if (!people) return std::move(people).error().within("--uids");
    options_.people = *people;
    return {};
  }

  Result<> find_inventory() {
    if (fake_gpus_.empty()) {
      auto found = devices::find_nvml();
      for (const auto& warning : found.warnings) log::warning("{}", warning);
      options_.inventory = std::move(found.inventory);
      options_.look_at_devices = [] { return devices::find_nvml().inventory.devices; };
    } else {
      auto fake = devices::fake_inventory(fake_gpus_);
      if (!fake) return std::move(fake).error().within("--fake-gpus");
      options_.inventory = std::move(*fake);
    }
    const auto host = devices::find_host();
    options_.inventory.cpus = cpus_ > 0 ? static_cast<std::int32_t>(cpus_) : host.cpus;
    options_.inventory.memory = host.memory;
    return {};
  }

  agent::AgentOptions options_;
  std::string action_;
  std::string address_;
  std::string token_;
  std::string join_token_file_;
  std::string authority_;
  std::string controller_;
  std::string token_file_;
  std::string ca_file_;
  std::string fake_gpus_;
  std::string isolation_;
  std::string uids_;
  std::int64_t cpus_ = 0;
  std::int64_t keep_logs_ranks_ = agent::kept_logs_ranks_default;
  bool local_checkpoints_ = false;
  std::optional<files::LineQueue> out_;  // once it has told that it has joined
};

class Shim final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("FOLDER", folder_, "the rank's folder, made by the agent");
    flags.add_word("PLACE", place_, "device and inode of the agent's folder, for agents that look for shims",
                   false);
  }
  Result<int> run() override { return end_of_rank(); }

 private:
  // Its exit code is that of its rank: what it did not expect must end it otherwise, as a crash.
  int end_of_rank() const noexcept { return rank::run_shim(folder_); }

  std::string folder_;
  std::string place_;  // read from its words by others
};

}  // namespace

std::unique_ptr<Command> make_controller() { return std::make_unique<Controller>(); }
std::unique_ptr<Command> make_agent() { return std::make_unique<Agent>(); }
std::unique_ptr<Command> make_shim() { return std::make_unique<Shim>(); }

}  // namespace tutti::cli
