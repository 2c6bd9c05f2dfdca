// `tutti queues`: the shares of the cluster as a tree, and who uses what; `set` creates and changes one, `rm`
// removes one.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr double no_limit = -1;
constexpr double priority_none = 1000;

Result<double> parse_gpus(std::string_view text) {
  double gpus = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, gpus, std::chars_format::fixed);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(gpus >= 0))
    return invalid("'" + std::string(text.substr(0, 64)) + "' is not a number of GPUs")
        .remedy("such as 8 or 0.5");
  return gpus;
}

Result<double> parse_limit(std::string_view text) {
  if (text == "none") return no_limit;
  auto gpus = parse_gpus(text);
  if (!gpus) return std::move(gpus).error().remedy("`none` takes the limit away");
  return gpus;
}

// "none" is the largest that there is.
Result<double> parse_priority(std::string_view text) {
  if (text == "none") return priority_none;
  int priority = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, priority);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    return invalid("'" + std::string(text.substr(0, 64)) + "' is no priority")
        .remedy("such as 10; `none` takes the limit away");
  return priority;
}

config::Flags::Setter store(std::optional<double>& target, Result<double> (*parse)(std::string_view)) {
  return [&target, parse](std::string_view text) -> Result<> {
    auto value = parse(text);
    if (!value) return std::move(value).error();
    target = *value;
    return {};
  };
}

std::string limit_text(const json& queue, const char* key) {
  return queue.contains(key) ? short_number(queue[key].get<double>()) : "none";
}

// What was used lately, as it counts against a queue or user.
std::string past_text(const json& view) {
  const double past = view.at("gpus_past").get<double>();
  return past > 0 && past < 0.01 ? "<0.01" : short_number(std::round(past * 100) / 100);
}

// In the tree a queue stands below the one it is a part of.
void add_rows(const json& queue, bool in_tree, TextTable& table) {
  const std::string name = queue.at("name").get<std::string>();
  const auto depth = in_tree ? static_cast<std::size_t>(std::count(name.begin(), name.end(), '/')) : 0;
  const std::string indent(2 * depth, ' ');
  const auto counts = [](const json& view) {
    return std::array{short_number(view.at("gpus").get<double>()), past_text(view),
                      std::to_string(view.at("running").get<int>()),
                      std::to_string(view.at("queued").get<int>())};
  };
  const auto own = counts(queue);
  table.add({indent + (in_tree ? name.substr(name.rfind('/') + 1) : name),
             short_number(queue.at("guarantee_gpus").get<double>()), limit_text(queue, "limit_gpus"),
             limit_text(queue, "user_limit_gpus"), short_number(queue.at("weight").get<double>()), own[0],
             own[1], own[2], own[3]});
  for (const auto& user : queue.at("users")) {
    const auto of_user = counts(user);
    table.add({indent + "  user " + user.at("name").get<std::string>(), "", "", "", "", of_user[0],
               of_user[1], of_user[2], of_user[3]});
  }
}

std::string table_of(const json& queues, bool in_tree) {
  TextTable table(
      {"QUEUE", "GUARANTEE", "LIMIT", "PER USER", "WEIGHT", "GPUS IN USE", "LATELY", "RUNNING", "QUEUED"});
  for (const auto& queue : queues) add_rows(queue, in_tree, table);
  return table.text();
}

class Queues final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("ACTION", action_, "`set` creates or changes a queue, `rm` removes it; none: shows all",
                   false);
    flags.add_word("NAME", name_, "of the queue; research/vision is a part of research", false);
    flags.add("guarantee", "N", store(guarantee_, parse_gpus),
              "set: GPUs that it gets back from others whenever it needs them");
    flags.add("limit", "N|none", store(limit_, parse_limit), "set: GPUs that it never exceeds");
    flags.add("user-limit", "N|none", store(user_limit_, parse_limit), "set: the same for each of its users");
    flags.add("weight", "W", store(weight_, parse_gpus),
              "set: its part of what nobody is guaranteed (default: 1)");
    flags.add("priority-max", "N|none", store(priority_max_, parse_priority),
              "set: the largest --priority that its jobs may have");
    flags.add("json", json_, "JSON for scripts");
  }

  Result<int> run() override {
    if (auto fits = check_words(); !fits) return std::move(fits).error().within("queues");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    const std::string path = "queues/" + url_encode(name_);
    if (action_ == "rm") {
      if (auto done = cluster->remove(path); !done)
        return std::move(done).error().within("queues rm " + name_);
      if (json_) std::printf("%s\n", json{{"removed", name_}}.dump().c_str());
      return exit_success;
    }
    if (action_ == "set") {
      if (auto done = cluster->put(path, wanted().dump()); !done)
        return std::move(done).error().within("queues set " + name_);
    }
    return show(*cluster);
  }

 private:
  bool names_a_value() const { return guarantee_ || limit_ || user_limit_ || weight_ || priority_max_; }

  Result<> check_words() const {
    const std::vector<std::string> actions{"set", "rm"};
    if (!action_.empty() && std::find(actions.begin(), actions.end(), action_) == actions.end())
      return invalid("unknown word '" + action_.substr(0, 64) + "'")
          .remedy(did_you_mean(action_, actions))
          .remedy("set, rm, or nothing to see all queues");
    if (!action_.empty() && name_.empty())
      return invalid("which queue?").remedy("`tutti queues " + action_ + " NAME`");
    if (action_ != "set" && names_a_value())
      return invalid(
          "--guarantee, --limit, --user-limit, --weight and --priority-max are for `tutti queues set NAME`");
    return {};
  }

  // Only what was given: the rest stays as it is.
  json wanted() const {
    json body = json::object();
    if (guarantee_) body["guarantee_gpus"] = *guarantee_;
    if (limit_) body["limit_gpus"] = *limit_;
    if (user_limit_) body["user_limit_gpus"] = *user_limit_;
    if (weight_) body["weight"] = *weight_;
    if (priority_max_) body["priority_max"] = static_cast<int>(*priority_max_);
    return body;
  }

  // All of them, or the one that was set.
  Result<int> show(Cluster& cluster) const {
    auto document = cluster.get("queues");
    if (!document) return std::move(document).error().within("queues");
    json queues = json::array();
    for (auto& queue : document->at("queues")) {
      if (name_.empty() || queue.at("name") == name_) queues.push_back(std::move(queue));
    }
    const json& shown = name_.empty() || queues.empty() ? queues : queues.front();
    if (json_) {
      std::printf("%s\n", shown.dump().c_str());
    } else {
      print_text(table_of(queues, name_.empty()));
    }
    return exit_success;
  }

  std::string action_;
  std::string name_;
  std::optional<double> guarantee_;
  std::optional<double> limit_;
  std::optional<double> user_limit_;
  std::optional<double> weight_;
  std::optional<double> priority_max_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_queues() { return std::make_unique<Queues>(); }

}  // namespace tutti::cli
