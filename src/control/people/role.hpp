// What people may do, from the least to the most: each role may what those before it may. It is given for a
// part of the tree of queues, and holds in all below that. Pure values.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::people {

enum class Role {
  viewer,       // sees its queues, their jobs and their logs
  user,         // submits there, and ends what is his own
  queue_admin,  // ends what is others', shapes the parts of the queue, lets people in
  operate,      // of the whole cluster alone: nodes, the fabric, every queue
  admin,        // of the whole cluster alone: people and their tokens
};

inline constexpr std::array roles{Role::viewer, Role::user, Role::queue_admin, Role::operate, Role::admin};

// "queue-admin"; operate is called "operator".
std::string_view name_of(Role role);
std::optional<Role> role_named(std::string_view name);

// The whole cluster, of which every queue is a part.
inline constexpr std::string_view everything;

struct Grant {
  Role role = Role::viewer;
  std::string queue;  // with its parts; "": everything

  friend auto operator<=>(const Grant&, const Grant&) = default;
};

// "user:research/vision", or "operator" for everything.
std::string text_of(const Grant& grant);

// The queue is that one or a part of it.
bool is_within(std::string_view queue, std::string_view whole);

}  // namespace tutti::people
