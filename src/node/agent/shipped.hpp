// Folders that users shipped with their jobs: fetched from the controller, only what this node lacks, and
// laid out for one attempt. A few threads of its own do it, so that one slow folder does not hold up the
// others; users take turns, and nobody is given all of the threads. The calls come from the agent's loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "net/http/client.hpp"
#include "net/sync/blobs.hpp"
#include "net/sync/manifest.hpp"
#include "node/keeper/processes.hpp"
#include "node/rank/isolation.hpp"

namespace tutti::agent {

constexpr std::size_t shipped_threads_max = 4;

// What a disk has to give, or is asked for.
struct DiskRoom {
  Bytes bytes;
  std::int64_t files = 0;
};
// Of the disk of a folder.
using FreeRoom = std::function<DiskRoom(const std::string& folder)>;
DiskRoom free_room_in(const std::string& folder);

class Shipped {
 public:
  Shipped(net::Target controller, std::string token, const std::string& folder,
          FreeRoom free_room = free_room_in);
  Shipped(const Shipped&) = delete;
  Shipped& operator=(const Shipped&) = delete;
  ~Shipped() { finish(); }

  // Gets the folder's path, on any thread, or what kept it back. That the disk has less to give than the
  // folder takes is known before anything is written; one that fits once others are laid out waits for them.
  using Done = std::function<void(Result<std::string>, keeper::Hindrance)>;

  // Lays the folder of this manifest out under `name`, when it is the user's turn. It belongs to whom the
  // ranks run as, if that is somebody else than this agent.
  void prepare(const std::string& user, const std::string& manifest, const std::string& name, Done done,
               std::shared_ptr<const rank::Isolation> isolation = {});
  // Nobody wants what is prepared under this name. What waits is done at once, with an error; what is being
  // fetched or laid out ends before its next file or chunk.
  void drop(const std::string& name);
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void finish();

 private:
  struct Task {
    std::string user;
    std::string manifest;
    std::string name;
    Done done;
    std::shared_ptr<const rank::Isolation> isolation;
    std::atomic<bool> unwanted = false;
    keeper::Hindrance hindrance = keeper::Hindrance::node;
    DiskRoom promised;                // what it will still take; under the lock
    DiskRoom fetched;                 // what it has brought into the cache
    std::vector<std::string> chunks;  // that it relies on; under the lock of the cache
  };
  using TaskPointer = std::shared_ptr<Task>;

  // Under the lock: of those that wait for nobody else of their name, the first of the user who has had no
  // turn for longest.
  TaskPointer next_task();
  std::size_t working_for(const std::string& user) const;
  // False if the system has none to give.
  bool add_thread();
  void run();
  Result<std::string> tried(Task& task);
  Result<std::string> lay_out(Task& task);
  DiskRoom needed_by(const sync::Manifest& manifest) const;
  // Promises the task what it needs, once the disk has it.
  Result<> take_room(const sync::Manifest& manifest, Task& task);
  // What the disk lacks for the task beside what is promised to others; and without those.
  struct Lack {
    DiskRoom now;
    DiskRoom alone;
  };
  Lack lack_of(const DiskRoom& needed, const Task& by);
  // Removes so much of the cache, of what no task under way relies on.
  void trim_for(const DiskRoom& lacking);
  // It is in the cache now, and promised no more.
  void count_fetched(Bytes content, Task& task);
  Result<> fetch(net::Client& client, const std::string& hash, Task& task);
  // False when the agent ends or the task is dropped meanwhile.
  bool pause(Duration time, const Task& task);

  net::Target controller_;
  std::string token_;
  std::string folder_;
  FreeRoom free_room_;
  sync::BlobStore blobs_;
  std::mutex cache_mutex_;  // while the disk is asked for room; taken before the other, never by the loop
  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<TaskPointer> waiting_;
  std::map<std::string, TaskPointer> working_;  // by name: two of them would be in each other's way
  std::map<std::string, std::uint64_t> turns_;  // of users who wait or are worked for: when they had the last
  std::uint64_t turn_ = 0;
  bool trimming_ = false;    // blobs: nothing is begun meanwhile
  std::uint64_t ended_ = 0;  // tasks, since the agent began
  bool stopping_ = false;
  std::size_t idle_ = 0;
  std::vector<std::thread> threads_;  // started when there is work for them
};

}  // namespace tutti::agent
