// Trees on their way out: what ranks have left of shipped folders, and of places of their own. Whoever had
// them may have made them to hurt, and go on changing them, so that one cannot be removed now: it is tried
// again now and then, and counts meanwhile. From the agent's loop; the work is done on a lane.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/files/files.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "net/http/loop.hpp"
#include "node/agent/lane.hpp"

namespace tutti::agent {

constexpr Duration removals_every = 1min;
// What stays beyond is left to the next agent. Of one account no more than its share: what others left is
// tried again all the same.
constexpr std::size_t staying_max = 1000;
constexpr std::size_t staying_of_one_max = 100;
constexpr std::size_t removals_per_round_max = 50;
constexpr Bytes staying_bytes_max = gib(1);  // of one tree: a look at more is not worth its time

// Whose it is, by what lies in it: "" if all of that is this process's own. Waits for its disk, not for what
// somebody has mounted in it.
std::string owner_of_tree(const std::string& path);
// As an account is called there.
std::string account_owner(uid_t account);

class Removals {
 public:
  // `folder`: what they pass through.
  Removals(net::Loop& loop, std::string folder, Duration every = removals_every,
           files::RemoveOptions options = {});
  Removals(const Removals&) = delete;
  Removals& operator=(const Removals&) = delete;

  // Out of the way at once, so that a later agent does not take what is left of it for something whole. Work
  // for one owner is done one by one; where it is not said whose a tree is, the tree tells.
  void move_out(const std::string& path, const std::string& owner = "");
  // Where it is. One that is not there is fine.
  void remove(const std::string& path, const std::string& owner = "");
  // What an earlier agent was about to remove.
  void remove_left();
  // What somebody else could not remove.
  void stays(const std::string& path) { remove(path); }
  // What those trees take.
  Bytes bytes() const { return bytes_; }

 private:
  struct Staying {
    std::string owner;
    Bytes bytes;
    bool under_way = false;
  };

  struct End {
    std::string why{};  // it stays; "" if it has gone
    Bytes bytes{};
  };

  static End remove_tree(const std::string& path, const files::RemoveOptions& options);
  void of_its_owner(const std::string& path, const std::string& owner,
                    const std::function<void(const std::string& owner)>& then);
  std::size_t staying_of(const std::string& owner) const;
  void done(const std::string& path, const std::string& owner, const End& end);
  void try_again();

  std::string folder_;
  files::RemoveOptions options_;
  std::uint64_t moved_ = 0;
  std::map<std::string, Staying> staying_;
  std::string tried_last_;
  Bytes bytes_;
  Lane lane_;
  std::shared_ptr<net::Loop::Handle> timer_;
};

}  // namespace tutti::agent
