// `tutti serve`: a model becomes a service of the cluster; another version of it, as a canary or at once; and
// its end.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/text.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/job_reading.hpp"
#include "cli/jobfile/job_flags.hpp"
#include "cli/local_time.hpp"
#include "cli/orderly_end.hpp"
#include "cli/terminal.hpp"
#include "control/wire/requests.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr auto look_every = std::chrono::milliseconds(200);
constexpr std::int64_t target_ms_max = 3'600'000;
// The engine drains first.
constexpr Duration replica_grace = 45s;
// Of a replica's command: PROGRAM engine MODEL --name NAME --replica, and what more it was given.
constexpr std::size_t model_word = 2;
constexpr std::size_t own_words = 6;

// "1:4", "0:2", "3".
Result<std::pair<std::int32_t, std::int32_t>> parse_replicas(std::string_view text) {
  const auto number = [](std::string_view digits, std::int32_t& to) {
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), to);
    return read.ec == std::errc() && read.ptr == digits.data() + digits.size() && to >= 0;
  };
  const std::size_t colon = text.find(':');
  std::int32_t least = 0;
  std::int32_t most = 0;
  const bool is_fine = colon == std::string_view::npos
                           ? number(text, least) && number(text, most)
                           : number(text.substr(0, colon), least) && number(text.substr(colon + 1), most);
  if (is_fine && least <= most && most > 0) return std::pair(least, most);
  return invalid("'" + std::string(text.substr(0, 64)) + "' is no number of replicas")
      .remedy("such as 2, or 1:4 for one at least and four at most; 0:4 sleeps when nobody asks");
}

// "10%" or "0.1".
Result<double> parse_share(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  const std::string_view digits = is_percent ? text.substr(0, text.size() - 1) : text;
  double share = 0;
  const auto read =
      std::from_chars(digits.data(), digits.data() + digits.size(), share, std::chars_format::fixed);
  if (is_percent) share /= 100;
  if (read.ec == std::errc() && read.ptr == digits.data() + digits.size() && share > 0 && share < 1)
    return share;
  return invalid("'" + std::string(text.substr(0, 64)) + "' is no part of the requests")
      .remedy("such as 10%");
}

// As nodes have it: a folder that is here is meant by its whole path.
Result<std::string> model_path(const std::string& model) {
  std::error_code ignored;
  if (fs::exists(model, ignored)) return fs::weakly_canonical(absolute_path(model), ignored).string();
  if (model.starts_with('/')) return model;
  return invalid("there is no model here")
      .within(model)
      .remedy("name a folder that all nodes can read, by its whole path where it is not here");
}

// What a client may call it by.
std::string name_of_model(const std::string& model) {
  std::string name = fs::path(model).filename().string();
  std::replace_if(
      name.begin(), name.end(),
      [](char letter) {
        const bool is_plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                              (letter >= '0' && letter <= '9');
        return !is_plain && letter != '-' && letter != '_' && letter != '.';
      },
      '-');
  return name;
}

class Serve final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("MODEL", words_[0],
                   "a folder of a run or of Hugging Face that all nodes can read; or update, scale, promote, "
                   "rollback or stop");
    flags.add_word("NAME", words_[1], "of the service that one of these words is for", false);
    flags.add_word("NEXT", words_[2], "update: the model that it is to serve", false);
    flags.add("name", name_, "that clients call the model by (default: the last part of MODEL)");
    flags.add("gpus", "G", share_into(), "of each replica, such as 2 or 0.25 (default: none, on CPUs)");
    flags.add("cpus", draft_.cpus_per_rank, "of each replica", {.min = 0, .max = 10'000});
    flags.add("memory", draft_.memory_per_rank, "of each replica");
    flags.add("gpu-model", draft_.gpu_model, "only on these GPUs");
    flags.add(
        "replicas", "MIN:MAX",
        [this](std::string_view text) -> Result<> {
          auto read = parse_replicas(text);
          if (!read) return std::move(read).error();
          replicas_ = *read;
          return {};
        },
        "how many there are at least and at most (default: 1); with 0 it sleeps when nobody asks");
    flags.add("idle", idle_, "time without a request after which it sleeps (default: 10m)");
    flags.add("target-ttft", target_ms_,
              "ms that first tokens are to take at most: more replicas come for that",
              {.min = 1, .max = target_ms_max});
    flags.add("quantize", weights_, "type of the weights in memory, such as int8");
    flags.add("engine", engine_, "a flag of `tutti engine`, such as context=4096; once for each");
    flags.add(
        "canary", "PART",
        [this](std::string_view text) -> Result<> {
          auto read = parse_share(text);
          if (!read) return std::move(read).error();
          canary_ = *read;
          return {};
        },
        "update: only this part of the requests at first, such as 10%; it is promoted or rolled back by "
        "how it does");
    flags.add("queue", draft_.queue, "in which its replicas are (default: default)");
    flags.add("priority", draft_.priority, "of its replicas among other jobs");
    flags.add("env", draft_.env, "K=V: a variable of its replicas; once for each");
    flags.add("secret", draft_.secrets, "that its replicas get as a file; once for each");
    flags.add("detach", detach_, "do not wait until it answers");
    flags.add("json", json_, "JSON for scripts");
  }

  Result<int> run() override {
    const std::string& action = words_[0];
    if (auto fits = check(); !fits) return std::move(fits).error().within("serve");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (action == "update") return update(*cluster);
    if (action == "stop") return stop(*cluster);
    if (action == "scale") return scale(*cluster);
    if (action == "promote" || action == "rollback") return steer(*cluster);
    return make(*cluster);
  }

 private:
  config::Flags::Setter share_into() {
    return [this](std::string_view text) -> Result<> {
      auto share = jobfile::parse_gpu_share(text);
      if (!share) return std::move(share).error();
      draft_.gpu_share = *share;
      return {};
    };
  }
  bool is_action() const {
    const std::string& word = words_[0];
    return word == "update" || word == "stop" || word == "scale" || word == "promote" || word == "rollback";
  }
  Result<> check() const {
    const std::string& action = words_[0];
    if (!is_action() && !words_[1].empty())
      return invalid("'" + words_[1].substr(0, 64) + "' is a word too many")
          .remedy("MODEL, update NAME MODEL, scale NAME, promote NAME, rollback NAME or stop NAME");
    if (is_action() && words_[1].empty())
      return invalid("which service?").remedy("`tutti serve " + action + " NAME`");
    if (action == "update" && words_[2].empty())
      return invalid("which model is it to serve?").remedy("`tutti serve update NAME MODEL`");
    if (action != "update" && !words_[2].empty())
      return invalid("'" + words_[2].substr(0, 64) + "' is a word too many");
    if (action == "scale" && !replicas_)
      return invalid("how many?").remedy("`tutti serve scale NAME --replicas MIN:MAX`");
    if (action != "update" && canary_) return invalid("--canary is for `tutti serve update NAME MODEL`");
    return {};
  }

  std::vector<std::string> engine_flags() const {
    std::vector<std::string> flags;
    if (!weights_.empty()) flags.insert(flags.end(), {"--weights", weights_});
    for (const std::string& flag : engine_) {
      const std::size_t equals = flag.find('=');
      flags.push_back("--" + flag.substr(0, equals));
      if (equals != std::string::npos) flags.push_back(flag.substr(equals + 1));
    }
    return flags;
  }
  json bounds() const {
    json request = json::object();
    if (replicas_) {
      request["replicas_min"] = replicas_->first;
      request["replicas_max"] = replicas_->second;
    }
    if (idle_ > Duration::zero()) request["idle_s"] = in_seconds(idle_);
    if (target_ms_ > 0) request["target_ttft_ms"] = target_ms_;
    return request;
  }
  static std::string path_of(const std::string& name) { return "services/" + url_encode(name); }

  Result<int> make(Cluster& cluster) {
    auto model = model_path(words_[0]);
    if (!model) return std::move(model).error().within("serve");
    const std::string name = name_.empty() ? name_of_model(*model) : name_;
    if (auto named = cluster::check_service_name(name); !named)
      return std::move(named).error().within("serve " + name.substr(0, cluster::service_name_bytes_max));
    draft_.name = name;
    draft_.workdir = "/";
    draft_.grace = replica_grace;
    draft_.command = {
        fs::read_symlink("/proc/self/exe").string(), "engine", *model, "--name", name, "--replica"};
    for (std::string& flag : engine_flags()) draft_.command.push_back(std::move(flag));
    auto specs = draft_.finish();
    if (!specs) return std::move(specs).error().within("serve");
    specs->front().user = user_name();
    auto encoded = wire::encode_submit({std::move(*specs), ""});
    if (!encoded) return std::move(encoded).error().within("serve");
    json request = bounds();
    request["job"] = json::parse(*encoded).at("jobs").front();
    if (auto done = cluster.put(path_of(name), request.dump()); !done)
      return std::move(done).error().within("serve " + name);
    return wait_for(cluster, name);
  }

  // What the engine was given before it gets again, unless it is given something else.
  Result<int> update(Cluster& cluster) {
    const std::string& name = words_[1];
    auto known = cluster.get(path_of(name));
    if (!known) return std::move(known).error().within("serve update " + name);
    auto model = model_path(words_[2]);
    if (!model) return std::move(model).error().within("serve update " + name);
    auto command = known->at("command").get<std::vector<std::string>>();
    if (command.size() < own_words || command[1] != "engine")
      return invalid("its replicas are no engines of tutti").within("serve update " + name);
    command[model_word] = *model;
    if (const auto flags = engine_flags(); !flags.empty()) {
      command.resize(own_words);
      command.insert(command.end(), flags.begin(), flags.end());
    }
    json request = bounds();
    request["command"] = command;
    if (canary_) request["canary_share"] = *canary_;
    if (auto done = cluster.put(path_of(name), request.dump()); !done)
      return std::move(done).error().within("serve update " + name);
    return canary_ ? tell(cluster, name) : wait_for(cluster, name);
  }

  Result<int> stop(Cluster& cluster) const {
    const std::string& name = words_[1];
    if (auto done = cluster.remove(path_of(name)); !done)
      return std::move(done).error().within("serve stop " + name);
    if (json_) std::printf("%s\n", json{{"stopped", name}}.dump().c_str());
    return exit_success;
  }
  Result<int> scale(Cluster& cluster) const {
    const std::string& name = words_[1];
    auto done = cluster.post(path_of(name) + "/scale", bounds().dump());
    if (!done) return std::move(done).error().within("serve scale " + name);
    return tell(cluster, name);
  }
  Result<int> steer(Cluster& cluster) const {
    const std::string& name = words_[1];
    auto done = cluster.post(path_of(name) + "/" + words_[0]);
    if (!done) return std::move(done).error().within("serve " + words_[0] + " " + name);
    return tell(cluster, name);
  }

  // What has become of it so far.
  Result<int> tell(Cluster& cluster, const std::string& name) const {
    auto service = cluster.get(path_of(name));
    if (!service) return std::move(service).error().within("serve " + name);
    if (json_)
      std::printf("%s\n", service->dump().c_str());
    else
      print_text(name + ": " + text_of(*service, "last_change") + "\n");
    return exit_success;
  }

  // Until what was asked for answers, or was given up.
  Result<int> wait_for(Cluster& cluster, const std::string& name) const {
    auto service = cluster.get(path_of(name));
    if (!service) return std::move(service).error().within("serve " + name);
    if (detach_) return show(cluster, name, *service);
    const int next = service->value("next_version", 0);
    const int wanted = next == 0 ? service->value("version", 0) : next;
    const OrderlyEnd orderly;
    std::string told;
    while (!is_there(*service, wanted)) {
      if (service->value("version", 0) != wanted && service->value("next_version", 0) != wanted)
        return failed(text_of(*service, "last_change")).within("serve " + name);
      const std::string reason = with_local_times(text_of(*service, "reason"));
      if (!reason.empty() && reason != told) print_note(name + " : " + reason);
      if (!reason.empty()) told = reason;
      std::this_thread::sleep_for(look_every);
      if (interrupted) {
        print_note(name + " : goes on; `tutti services` shows it, `tutti serve stop " + name + "` ends it");
        return exit_interrupted;
      }
      service = cluster.get(path_of(name));
      if (!service) return std::move(service).error().within("serve " + name);
    }
    return show(cluster, name, *service);
  }

  static bool is_there(const json& service, int version) {
    if (service.value("version", 0) != version || service.contains("next_version")) return false;
    return service.value("replicas_wanted", 0) == 0 || service.value("replicas_ready", 0) > 0;
  }

  Result<int> show(Cluster& cluster, const std::string& name, const json& service) const {
    if (json_) {
      std::printf("%s\n", service.dump().c_str());
      return exit_success;
    }
    const int ready = service.value("replicas_ready", 0);
    print_text(name + ": version " + std::to_string(service.value("version", 0)) + " of " +
               text_of(service, "model") + ", " + std::to_string(ready) + " of " +
               std::to_string(service.value("replicas_wanted", 0)) + " replicas ready\n");
    const auto gateways = cluster.get("gateways");
    const auto known = gateways ? gateways->value("gateways", json::array()) : json::array();
    const auto found = std::find_if(known.begin(), known.end(),
                                    [](const json& gateway) { return !text_of(gateway, "url").empty(); });
    print_text(found == known.end()
                   ? "no gateway is there: `tutti gateway` starts one, which answers for all services\n"
                   : "ask it at " + text_of(*found, "url") + "/v1, as the model " + name + "\n");
    return exit_success;
  }

  std::array<std::string, 3> words_;
  std::string name_;
  jobfile::Draft draft_;
  std::optional<std::pair<std::int32_t, std::int32_t>> replicas_;
  Duration idle_{};
  std::int64_t target_ms_ = 0;
  std::string weights_;
  std::vector<std::string> engine_;
  std::optional<double> canary_;
  bool detach_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_serve() { return std::make_unique<Serve>(); }

}  // namespace tutti::cli
