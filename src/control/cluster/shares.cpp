#include "control/cluster/shares.hpp"

#include <algorithm>

namespace tutti::cluster {

Result<> Shares::admit(const std::string& user, std::size_t more, std::size_t most,
                       const std::string& what) const {
  if (more == 0) return {};
  const std::size_t held = of_user(user);
  const std::size_t left = most - std::min(all(), most);
  if (more <= left && held + more <= times_what_is_left * (left - more)) return {};
  const std::string of_all = " of the " + std::to_string(most) + " " + what + " that the cluster takes";
  const std::string adds = " and this would add " + std::to_string(more);
  const auto& users = held_.holders();
  const auto most_held = std::max_element(users.begin(), users.end(), [](const auto& one, const auto& other) {
    return one.second < other.second;
  });
  // The remedy is for the one who holds too much, who may be another one than is refused.
  if (most_held == users.end() || held == most_held->second)
    return failed("user '" + user + "' holds " + std::to_string(held) + of_all + "," + adds +
                  "; one user may hold at most three times what is left for the others")
        .remedy("cancel some, or submit again when some have ended");
  return failed("user '" + user + "' holds " + std::to_string(held) + of_all + "," + adds + "; " +
                std::to_string(left) + " are left, and user '" + most_held->first + "' holds " +
                std::to_string(most_held->second))
      .remedy("submit again when some have ended; user '" + most_held->first + "' can cancel some");
}

}  // namespace tutti::cluster
