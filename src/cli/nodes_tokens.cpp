#include "cli/nodes_tokens.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/cluster.hpp"
#include "cli/command.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "control/wire/membership.hpp"

namespace tutti::cli {

using nlohmann::json;

Result<int> run_nodes_token(const TokenWish& wish, bool as_json) {
  auto cluster = Cluster::find();
  if (!cluster) return std::move(cluster).error();
  const wire::JoinTokenWish asked{static_cast<std::int32_t>(wish.uses_wanted), wish.life, wish.name_pattern};
  auto made = cluster->post("join-tokens", wire::encode(asked));
  if (!made) return std::move(made).error().within("nodes token");
  if (as_json) {
    std::printf("%s\n", made->dump().c_str());
    return exit_success;
  }
  print_text("tutti agent join " + made->at("address").get<std::string>() + " --token " +
             made->at("token").get<std::string>() + " --ca " + made->at("ca").get<std::string>() + "\n");
  const int uses = made->at("uses").get<int>();
  print_note(with_local_times(
      "for " + std::string(uses == 1 ? "one server" : std::to_string(uses) + " servers") + ", until " +
      made->at("expires_at").get<std::string>() + "; the token is not shown again"));
  return exit_success;
}

Result<int> run_nodes_tokens(bool as_json) {
  auto cluster = Cluster::find();
  if (!cluster) return std::move(cluster).error();
  auto list = cluster->get("join-tokens");
  if (!list) return std::move(list).error();
  if (as_json) {
    std::printf("%s\n", list->at("tokens").dump().c_str());
    return exit_success;
  }
  TextTable table({"TOKEN", "STATE", "USES LEFT", "NAMES", "UNTIL"});
  for (const auto& token : list->at("tokens")) {
    const std::string pattern = token.value("name_pattern", "");
    table.add({token.at("id").get<std::string>(), token.at("state").get<std::string>(),
               std::to_string(token.at("uses_left").get<int>()), pattern.empty() ? "any" : pattern,
               with_local_times(token.at("expires_at").get<std::string>())});
  }
  print_text(table.text());
  return exit_success;
}

Result<int> run_revoke_token(const std::string& id) {
  if (id.empty())
    return invalid("the id of the token is missing")
        .within("nodes tokens revoke")
        .remedy("`tutti nodes tokens` lists them");
  auto cluster = Cluster::find();
  if (!cluster) return std::move(cluster).error();
  if (auto done = cluster->remove("join-tokens/" + url_encode(id)); !done)
    return std::move(done).error().within("nodes tokens revoke " + id);
  return exit_success;
}

}  // namespace tutti::cli
