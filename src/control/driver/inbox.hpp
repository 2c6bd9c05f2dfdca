// What waits for a turn. What the ranks of a node do is gathered by node, the newest word of each rank alone,
// and comes into turns in bounded pieces: a node that reports without end delays itself. Not for several
// threads at once.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/portions.hpp"
#include "control/driver/turns.hpp"

namespace tutti::driver {

constexpr std::size_t waiting_items_max = 200'000;  // beyond it requests are refused
constexpr std::size_t items_per_turn_max = 1'000;   // so that a turn is short, and answers do not wait long
constexpr std::size_t submit_bytes_per_turn_max = 16 << 20;
// Submits that wait, of all users, who share it: beyond it they are refused.
constexpr std::size_t submit_waiting_bytes_max = std::size_t{256} << 20;
// Some ask for as much as many others do: what is asked of a whole array, and each ten elements of a new one.
constexpr std::size_t effort_per_turn_max = items_per_turn_max;
constexpr std::size_t effort_of_whole_array = 100;
constexpr std::size_t elements_per_effort = 10;
constexpr std::size_t reports_per_turn_max = 20'000;         // of all nodes
constexpr std::size_t reports_of_node_per_turn_max = 2'000;  // the rest comes behind what the others said
// Of one node: beyond it they are dropped, and the node is asked to tell everything again.
constexpr std::size_t reports_waiting_max = 200'000;
constexpr std::size_t reports_waiting_bytes_max = 16 << 20;
constexpr std::size_t all_reports_waiting_bytes_max = 256 << 20;  // of all nodes
constexpr std::size_t hellos_waiting_bytes_max = 256 << 20;       // the same holds for these

class Inbox {
 public:
  // False if it is refused because too much waits: then it is left as it was. Where there is no memory for it
  // that is thrown, and what waits goes on as before.
  bool add(Item& item);
  // A question or a sign of life: never refused.
  void add_always(Item item) { items_.push_back(std::move(item)); }

  // What comes next, not more than a turn should take.
  std::vector<Item> take();

  bool empty() const { return items_.empty(); }
  // How many of those that wait want an answer.
  std::size_t asked() const { return asked_; }
  // Something was dropped since this was last asked: of these nodes alone, or of anybody.
  std::set<std::string> take_missed_nodes() { return std::exchange(missed_nodes_, {}); }
  bool take_missed() { return std::exchange(missed_, false); }

 private:
  // The reports of a node, in the order in which they came; the queue has one entry for all of them.
  struct Reports {
    using Key = std::tuple<cluster::JobId, std::int32_t, std::int32_t, cluster::RankState>;
    std::deque<cluster::RankReport> waiting;
    std::map<Key, cluster::RankReport*> newest;
    std::size_t bytes = 0;
  };

  void add_hello(Item& item, const cluster::Hello& hello);
  void add_reports(cluster::Reported& reported);
  // All that a node has reported and that was not taken.
  void drop_reports(const std::string& node);
  void take_reports(cluster::Reported& reported, std::size_t& room);

  std::deque<Item> items_;
  std::map<std::string, Reports> reports_;
  // Entries of the queue whose reports a Hello has replaced: what was said since it comes behind it.
  std::map<std::string, std::size_t> replaced_;
  std::size_t reports_bytes_ = 0;        // of all of them
  std::map<std::string, Item*> hellos_;  // in the queue: of each node the last, which tells all
  std::size_t hellos_bytes_ = 0;
  Portions submit_bytes_{submit_waiting_bytes_max};  // by user
  std::size_t asked_ = 0;
  std::set<std::string> missed_nodes_;
  bool missed_ = false;
};

}  // namespace tutti::driver
