// What is in memory of bodies and messages that others still send, or that nobody has answered yet, of all
// connections together and of each address. Beyond the budget unfinished ones are let go: those that are
// large and have been under way for long. On the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace tutti::net {

class Incoming : public std::enable_shared_from_this<Incoming> {
 public:
  struct Limits {
    std::size_t bytes = 0;
    std::size_t bytes_per_address = 0;
  };

  // One body or message. It must be destroyed after its bytes, so that their memory can be given back.
  class Arrival {
   public:
    // `let_go` runs at most once, and soon frees the bytes: there is no room for them. It throws nothing.
    Arrival(std::shared_ptr<Incoming> incoming, std::string address, std::function<void()> let_go);
    Arrival(const Arrival&) = delete;
    Arrival& operator=(const Arrival&) = delete;
    ~Arrival() { release(); }

    // So much of it is here now. It may let others go, or this one. Where there is no memory to count it that
    // is thrown, and it counts as before.
    void hold(std::size_t bytes);
    // All of it is here: it is not let go any more, and counts until it is released.
    void complete();
    void release();
    bool was_let_go() const { return was_let_go_; }

   private:
    friend class Incoming;
    const std::shared_ptr<Incoming> incoming_;
    const std::string address_;
    const std::function<void()> let_go_;
    std::size_t bytes_ = 0;
    std::uint64_t begun_at_ = 0;  // by the number of pieces that had come until then
    bool is_complete_ = false;
    bool was_let_go_ = false;
  };

  // `give_back` runs when much of what was held is gone, so that its memory can go back to the system.
  explicit Incoming(Limits limits, std::function<void()> give_back = nullptr)
      : limits_(limits), give_back_(std::move(give_back)) {}
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  // Whether one more of this address may begin that will have so many bytes: not where it would not fit even
  // if all unfinished ones were let go.
  bool has_room(const std::string& address, std::size_t bytes) const;
  // In memory, for all of them.
  std::size_t bytes() const { return total_.bytes + leaving_bytes_; }

 private:
  struct Sum {
    std::size_t bytes = 0;           // without those that were let go
    std::size_t complete_bytes = 0;  // of those
    std::set<Arrival*> unfinished;
  };
  void change(Arrival& arrival, std::size_t bytes);
  void make_room(const Sum& sum, std::size_t bytes_max);
  void let_go(Arrival& arrival);
  double slowness(const Arrival& arrival) const;

  const Limits limits_;
  const std::function<void()> give_back_;
  Sum total_;
  std::map<std::string, Sum> by_address_;
  std::size_t leaving_bytes_ = 0;  // of those that were let go and are not gone yet
  std::size_t bytes_most_ = 0;     // since memory was given back
  std::uint64_t pieces_ = 0;       // ever
};

}  // namespace tutti::net
