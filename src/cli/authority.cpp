#include "cli/authority.hpp"

#include <nlohmann/json.hpp>

#include "cli/cluster.hpp"
#include "cli/command.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr std::size_t named_nodes_max = 10;

std::string nodes_of(const json& behind) {
  std::string text;
  for (std::size_t at = 0; at < std::min(behind.size(), named_nodes_max); ++at)
    text += (text.empty() ? "" : ", ") + behind[at].get<std::string>();
  return text + (behind.size() > named_nodes_max ? ", …" : "");
}

std::string shown(const json& view) {
  const std::string next = view.value("next", "");
  const std::string old = view.value("old", "");
  const json behind = view.value("behind", json::array());
  std::string text = "signs    " + view.at("ca").get<std::string>() + "\n";
  if (view.contains("until")) text += "until    " + view.at("until").get<std::string>() + "\n";
  if (!next.empty()) text += "next     " + next + "\n";
  if (!old.empty()) text += "old      " + old + "\n";
  if (!behind.empty())
    text += "waits    for " + std::to_string(behind.size()) + (behind.size() == 1 ? " node: " : " nodes: ") +
            nodes_of(behind) + "\n";
  if (!next.empty() && behind.empty()) text += "then     `tutti controller ca rotate`: the next one signs\n";
  if (!old.empty() && behind.empty())
    text += "then     `tutti controller ca rotate --finish`: the old one is trusted no more\n";
  return text;
}

}  // namespace

Result<int> run_controller_ca(const std::string& step, bool finish) {
  if (!step.empty() && step != "rotate")
    return invalid("unknown word '" + step + "'").within("controller ca").remedy("did you mean 'rotate'?");
  if (finish && step.empty()) return invalid("--finish goes with `ca rotate`").within("controller ca");
  auto cluster = Cluster::find();
  if (!cluster) return std::move(cluster).error();
  auto view = step.empty() ? cluster->get("authority")
                           : cluster->post("authority/rotate", json{{"finish", finish}}.dump());
  if (!view) return std::move(view).error().within("controller ca");
  print_text(shown(*view));
  return exit_success;
}

}  // namespace tutti::cli
