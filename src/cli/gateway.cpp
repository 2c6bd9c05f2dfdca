// `tutti gateway`: several engines behind one address, named, or those of a cluster's services.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/front_flags.hpp"
#include "cli/terminal.hpp"
#include "cli/url.hpp"
#include "gate/gateway/gateway.hpp"
#include "serve/server/key.hpp"

namespace tutti::cli {
namespace {

constexpr std::int64_t requests_limit = 1'000'000;

std::string shown(const gate::BackendView& backend) {
  if (!backend.is_ready) return backend.name + " cannot be asked: " + backend.problem;
  std::string models;
  for (const std::string& model : backend.models) models += (models.empty() ? "" : ", ") + model;
  return backend.name + " answers: " + (models.empty() ? "programs" : models);
}

class GatewayCommand final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add(
        "backend", backends_,
        "URL of an engine, or of another server of OpenAI's API; once for each (default: the replicas of "
        "the services of the cluster)");
    flags.add("backend-key-file", "TEXT", path_into(backend_key_file_), "the key of all backends");
    flags.add("backend-ca-file", "TEXT", path_into(backend_ca_file_),
              "of backends behind https: their certificate authority (PEM)");
    front_flags_.declare(flags);
    flags.add("keys", "FILE", path_into(keys_file_),
              "who sends a key of this file may ask, too, each within its limits (docs/serving.md)");
    flags.add("requests", requests_,
              "that are under way before others hear 429, three quarters of them from one address (default: "
              "10000)",
              {.min = 1, .max = requests_limit});
    flags.add("wait", wait_, "that a request waits while nobody can be asked (default: 60s)");
    flags.add("json", json_, "print one JSON object when it listens: url");
    flags.add("home", home_,
              "stand before the cluster of `tutti up` in this folder, whatever the variables say");
    flags.add("ready-fd", ready_fd_, "write the address to this descriptor when the port is open",
              {.min = 0, .max = 1'000'000});
  }

  bool serves() const override { return true; }

  Result<int> run() override {
    ::signal(SIGPIPE, SIG_IGN);  // whoever reads what it says may go; others have come for its answers
    if (!backends_.empty() && !home_.empty())
      return invalid("--backend and --home both say who is asked").within("command line");
    auto settled = front_flags_.settle();
    if (!settled) return std::move(settled).error();
    gate::GatewaySettings settings{std::move(*settled)};
    settings.wait_time_max = wait_;
    settings.keys_file = keys_file_;
    settings.requests_max = static_cast<std::size_t>(requests_);
    std::string key;
    if (!backend_key_file_.empty()) {
      auto read = serve::read_key(backend_key_file_);
      if (!read) return std::move(read).error();
      key = std::move(*read);
    }
    for (const std::string& url : backends_) {
      auto target = parse_url(url, backend_ca_file_);
      if (!target) return std::move(target).error().within("--backend");
      target->who = "backend";
      if (!key.empty()) {
        if (auto secret = net::check_secrecy(*target); !secret) return std::move(secret).error();
      }
      settings.backends.push_back({std::move(*target), key});
    }
    if (backends_.empty()) {
      auto cluster = home_.empty() ? Cluster::find() : Cluster::of_home(home_);
      if (!cluster)
        return invalid("there is nobody to ask: " + cluster.error().text())
            .within("command line")
            .remedy(
                "--backend http://HOST:PORT names an engine, which `tutti engine MODEL` starts; `tutti up` "
                "starts a cluster, TUTTI_ADDR names one");
      settings.controller = gate::ControllerSettings{.target = cluster->target(), .token = cluster->token()};
      if (auto secret = net::check_secrecy(settings.controller->target); !secret)
        return std::move(secret).error();
    }
    auto gateway = gate::Gateway::listen(settings);
    if (!gateway) return std::move(gateway).error();
    front_flags_.warn_of_plain_text(settings);
    const std::string where = FrontFlags::url(settings, (*gateway)->port(), "/v1");
    if (json_) {
      std::printf("%s\n", nlohmann::json{{"url", where}}.dump().c_str());
    } else {
      std::printf("listens at %s; Ctrl-C drains it\n", where.c_str());
    }
    std::fflush(stdout);
    if (ready_fd_ >= 0) {
      const std::string address = settings.address + ":" + std::to_string((*gateway)->port()) + "\n";
      if (::write(static_cast<int>(ready_fd_), address.data(), address.size()) < 0)
        print_note("nobody waits for its address any more");
      ::close(static_cast<int>(ready_fd_));
    }
    (*gateway)->when_wrong(print_note);
    (*gateway)->when_turned([](const gate::BackendView& backend) { print_note(shown(backend)); });
    (*gateway)->drain_when_asked();
    (*gateway)->run();
    const int signal = (*gateway)->cut_short_by();
    const int exit_code = signal == 0 ? exit_success : exit_signal_base + signal;
    if (exit_code != exit_success)
      print_note("ended before all requests were answered");
    else if (!json_)
      std::printf("drained\n");
    std::fflush(stdout);
    return exit_code;
  }

 private:
  std::vector<std::string> backends_;
  std::string backend_key_file_;
  std::string backend_ca_file_;
  std::string keys_file_;
  FrontFlags front_flags_{"127.0.0.1:8080"};
  std::int64_t requests_ = 10'000;
  Duration wait_ = 60s;
  std::string home_;
  std::int64_t ready_fd_ = -1;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_gateway() { return std::make_unique<GatewayCommand>(); }

}  // namespace tutti::cli
