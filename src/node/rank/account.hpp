// The Unix account that a rank runs as, where its agent does not run all of them as itself: looked up by the
// agent, which waits for the node's directory of users, and put on by the rank's own process. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::rank {

// People have numbers in between; below are services, above are `nobody` and what the system invents, unless
// the node's directory has others.
struct PeopleIds {
  uid_t min = 1'000;
  uid_t max = 60'000;

  friend bool operator==(const PeopleIds&, const PeopleIds&) = default;
};
// "MIN-MAX", without root.
Result<PeopleIds> parse_people_ids(std::string_view text);
constexpr std::size_t account_name_bytes_max = 128;
constexpr std::size_t account_groups_max = 65'536;

// What files of ranks may not have, where the agent's own may have less.
constexpr mode_t rank_umask = 022;

struct Account {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // all that it is in, its own as well
  std::string home;
  std::string shell;

  friend bool operator==(const Account&, const Account&) = default;
};

// What can be the name of an account: nothing that a directory of users could take for a number, a pattern or
// a path.
bool is_account_name(std::string_view name);
// Refuses whom nothing runs as: root, nobody, those of root's group. Wherever it comes from: from the
// directory, and from a specification on the disk.
Result<> check_account(const Account& account);
// And whoever is no person.
Result<> check_person(const Account& account, const PeopleIds& people = {});

// Nothing if this node knows no such account; `invalid` if it may not be used, `failed` if the directory does
// not say. Asks the name service of the node, which may take any time: never on a loop.
Result<std::optional<Account>> find_account(const std::string& name, const PeopleIds& people = {});

// Makes this process that account, for good: groups, ids, no way back by set-uid programs, no capabilities,
// no keys of whoever started it, and nobody of the same account may look into it before it becomes another
// program. 0, or why it did not work; the process must not go on then. For a process of one thread.
int become(const Account& account);

}  // namespace tutti::rank
