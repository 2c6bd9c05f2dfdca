#include <algorithm>

#include "net/pki/pki.hpp"

namespace tutti::pki {
namespace {

constexpr std::string_view scheme = "tutti://";
constexpr std::string_view controller_path = "controller";
constexpr std::string_view node_path = "node/";

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

bool is_cluster(std::string_view text) {
  return !text.empty() && text.size() <= cluster_name_bytes_max &&
         std::all_of(text.begin(), text.end(), is_plain);
}

// As control/wire has it: nothing in it means anything to a path, a shell or a terminal.
bool is_node(std::string_view text) {
  return !text.empty() && text.size() <= name_bytes_max && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char letter) {
           return is_plain(letter) || letter == '.' || letter == '_' || letter == '-';
         });
}

}  // namespace

std::string to_uri(const Name& name) {
  std::string cluster = std::string(scheme) + name.cluster;
  switch (name.role) {
    case Role::authority:
      return cluster;
    case Role::controller:
      return cluster + "/" + std::string(controller_path);
    case Role::node:
      return cluster + "/" + std::string(node_path) + name.node;
  }
  return cluster;
}

Result<Name> parse_uri(std::string_view uri) {
  const Error wrong = invalid("it is no name of a cluster, a controller or a node");
  if (!uri.starts_with(scheme)) return wrong;
  uri.remove_prefix(scheme.size());
  const auto slash = uri.find('/');
  Name name{.cluster = std::string(uri.substr(0, slash)), .role = Role::authority};
  if (!is_cluster(name.cluster)) return wrong;
  if (slash == std::string_view::npos) return name;
  const std::string_view path = uri.substr(slash + 1);
  if (path == controller_path) {
    name.role = Role::controller;
    return name;
  }
  if (!path.starts_with(node_path) || !is_node(path.substr(node_path.size()))) return wrong;
  name.role = Role::node;
  name.node = path.substr(node_path.size());
  return name;
}

}  // namespace tutti::pki
