#include "common/local.hpp"

#include <cstdio>
#include <cstdlib>

#include "base/text.hpp"

namespace tutti::bench {

Result<nlohmann::json> Api::request(const std::string& method, const std::string& path,
                                    const std::string& body) {
  if (interrupted()) return failed("interrupted");
  auto response = client_.request(method, "/api/v1/" + path, body);
  if (!response) return std::move(response).error();
  if (response->status >= 400) return failed(std::string(trim(response->body))).within(method + " " + path);
  auto parsed = nlohmann::json::parse(response->body, nullptr, false);
  if (parsed.is_discarded()) return failed("the answer is not JSON").within(method + " " + path);
  return parsed;
}

Result<std::string> Api::submit(const nlohmann::json& jobs) {
  auto answer = post("jobs", nlohmann::json{{"jobs", jobs}}.dump());
  if (!answer) return std::move(answer).error();
  if (!answer->contains("ids") || (*answer)["ids"].empty()) return failed("the controller gave no id");
  return (*answer)["ids"][0].get<std::string>();
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(int nodes, int gpus, const std::string& home,
                                                          const std::string& program) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster);
  cluster->program_ = program;
  cluster->home_ = home.empty() ? cluster->folder_.path() : home;
  cluster->env_ = {
      {"TUTTI_HOME", cluster->home_}, {"TUTTI_ADDR", ""}, {"TUTTI_TOKEN_FILE", ""}, {"TUTTI_CA_FILE", ""}};
  auto up = cluster->run({"up", "--nodes", std::to_string(nodes), "--gpus", std::to_string(gpus)});
  if (!up) return std::move(up).error();
  if (auto connected = cluster->connect(); !connected) return std::move(connected).error();
  return cluster;
}

Result<> LocalCluster::connect() {
  auto target = net::parse_target(trim(support::read_text(home_ + "/address")));
  if (!target) return std::move(target).error();
  target_ = std::move(*target);
  token_ = trim(support::read_text(home_ + "/controller/admin.token"));
  return {};
}

LocalCluster::~LocalCluster() {
  const auto down = support::run(command({"down"}, program_), {.env = env_, .stdout_to = "", .timeout = 60s});
  if (down.exit_code != 0) std::fprintf(stderr, "bench: tutti down: %s\n", down.err.c_str());
}

pid_t LocalCluster::controller_pid() const {
  return std::atoi(support::read_text(home_ + "/processes/controller").c_str());
}

Result<std::string> LocalCluster::run(const std::vector<std::string>& words) const {
  return run_command(command(words, program_), env_);
}

std::vector<std::string> LocalCluster::command(std::vector<std::string> words, const std::string& program) {
  words.insert(words.begin(), program.empty() ? TUTTI_BUILD_DIR "/bin/tutti" : program);
  return words;
}

}  // namespace tutti::bench
