#include "control/people/role.hpp"

#include <algorithm>

namespace tutti::people {

std::string_view name_of(Role role) {
  switch (role) {
    case Role::viewer:
      return "viewer";
    case Role::user:
      return "user";
    case Role::queue_admin:
      return "queue-admin";
    case Role::operate:
      return "operator";
    case Role::admin:
      return "admin";
  }
  return "";
}

std::optional<Role> role_named(std::string_view name) {
  const auto* const found =
      std::find_if(roles.begin(), roles.end(), [&](Role role) { return name_of(role) == name; });
  return found == roles.end() ? std::nullopt : std::optional(*found);
}

std::string text_of(const Grant& grant) {
  return std::string(name_of(grant.role)) + (grant.queue.empty() ? "" : ":" + grant.queue);
}

bool is_within(std::string_view queue, std::string_view whole) {
  return whole.empty() ||
         (queue.starts_with(whole) && (queue.size() == whole.size() || queue[whole.size()] == '/'));
}

}  // namespace tutti::people
