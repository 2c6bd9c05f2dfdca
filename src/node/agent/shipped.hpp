// Folders that users shipped with their jobs: fetched from the controller, only what this node lacks, and
// laid out for one attempt. The fetching has a thread of its own; the calls come from the agent's loop.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "net/http/client.hpp"
#include "net/sync/blobs.hpp"

namespace tutti::agent {

class Shipped {
 public:
  Shipped(net::Target controller, std::string token, const std::string& folder);
  Shipped(const Shipped&) = delete;
  Shipped& operator=(const Shipped&) = delete;
  ~Shipped() { finish(); }

  // Lays the folder of this manifest out under `name`; `done` gets its path, on the fetching thread.
  void prepare(const std::string& manifest, const std::string& name,
               std::function<void(Result<std::string>)> done);
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void finish();

 private:
  void run();
  Result<std::string> lay_out(const std::string& manifest, const std::string& name);
  Result<> fetch(net::Client& client, const std::string& hash);
  // False when the agent ends meanwhile.
  bool pause(Duration time);

  net::Target controller_;
  std::string token_;
  std::string folder_;
  sync::BlobStore blobs_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // started with the first task
};

}  // namespace tutti::agent
