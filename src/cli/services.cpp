// `tutti services`: what is served, by how many replicas, and what is under way.
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/job_reading.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr auto services_shown_every = std::chrono::seconds(1);

// "2", or "2, canary 3 10%" while another one is under way.
std::string version_summary(const json& service) {
  std::string text = std::to_string(service.value("version", 0));
  const int next = service.value("next_version", 0);
  if (next == 0) return text;
  const double share = service.value("canary_share", 0.0);
  if (share == 0) return text + ", next " + std::to_string(next);
  return text + ", canary " + std::to_string(next) + " " + short_number(share * 100) + "%";
}

std::string table_of(const json& services) {
  TextTable table({"SERVICE", "STATE", "VERSION", "READY", "MIN:MAX", "QUEUE", "USER", "MODEL", "REASON"});
  for (const auto& service : services) {
    const std::string reason = text_of(service, "reason");
    table.add({text_of(service, "name"), text_of(service, "state"), version_summary(service),
               std::to_string(service.value("replicas_ready", 0)) + " of " +
                   std::to_string(service.value("replicas_wanted", 0)),
               std::to_string(service.value("replicas_min", 0)) + ":" +
                   std::to_string(service.value("replicas_max", 0)),
               text_of(service, "queue"), text_of(service, "user"), text_of(service, "model"),
               reason_in_a_row(with_local_times(reason.empty() ? text_of(service, "last_change") : reason))});
  }
  return table.text(terminal_columns());
}

class Services final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("watch", watch_, "show them again each second, until Ctrl-C");
    flags.add("json", json_, "a JSON array");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    for (;;) {
      auto services = read(*cluster);
      if (!services) return std::move(services).error().within("services");
      if (json_)
        std::printf("%s\n", services->dump().c_str());
      else
        print_text(table_of(*services));
      if (!watch_) return exit_success;
      if (auto written = flush_text(); !written) return std::move(written).error().within("services");
      std::this_thread::sleep_for(services_shown_every);
    }
  }

 private:
  static Result<json> read(Cluster& cluster) {
    json all = json::array();
    std::string after;
    do {
      auto page = cluster.get("services" + (after.empty() ? "" : "?after=" + url_encode(after)));
      if (!page) return page;
      for (auto& service : page->at("services")) all.push_back(std::move(service));
      after = text_of(*page, "next");
    } while (!after.empty());
    return all;
  }

  bool watch_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_services() { return std::make_unique<Services>(); }

}  // namespace tutti::cli
