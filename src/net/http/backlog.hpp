// What waits in memory for readers that are slower than what is written for them, of all connections
// together. What several of them wait for is there once, and counts once. Beyond the budget the slowest are
// let go first: those who have much waiting and have not taken anything for long. On the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <unordered_map>

namespace tutti::net {

class Backlog {
 public:
  // Somebody for whom something may wait.
  class Reader {
   public:
    // `spared`: it is let go only when all others have been.
    explicit Reader(bool spared = false) : spared_(spared) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    virtual ~Reader() = default;

    // What waits for it, as if it waited alone.
    std::size_t waiting_bytes() const { return waiting_bytes_; }

   protected:
    // It is too slow: releases what can be released now, and tells how much more it will release soon.
    // It throws nothing.
    virtual std::size_t let_go() = 0;

   private:
    friend class Backlog;
    const bool spared_;
    std::size_t waiting_bytes_ = 0;
    std::size_t texts_ = 0;
    std::size_t leaving_bytes_ = 0;
    std::uint64_t took_at_ = 0;  // by the number of texts that were held until then
  };

  // `give_back` runs when much of what waited is gone, so that its memory can go back to the system.
  explicit Backlog(std::size_t bytes_max, std::function<void()> give_back = nullptr)
      : bytes_max_(bytes_max), give_back_(std::move(give_back)) {}
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // The text waits for the reader, until it is released. It may let readers go, this one too. Where there is
  // no memory to count it that is thrown, and it does not wait.
  void hold(Reader& reader, const std::string& text);
  void release(Reader& reader, const std::string& text);
  // It has taken a part of what waits for it.
  void took(Reader& reader) const { reader.took_at_ = held_; }

  // In memory, for all of them.
  std::size_t bytes() const { return bytes_; }

 private:
  double slowness(const Reader& reader) const;
  void make_room();

  std::size_t bytes_max_;
  std::function<void()> give_back_;
  std::size_t bytes_ = 0;
  std::size_t leaving_bytes_ = 0;  // of those, what readers that were let go will release
  std::size_t bytes_most_ = 0;     // since memory was given back
  bool makes_room_ = false;
  std::uint64_t held_ = 0;                                     // texts, ever
  std::set<Reader*> readers_;                                  // for whom something waits
  std::unordered_map<const std::string*, std::size_t> texts_;  // and for how many of them
};

}  // namespace tutti::net
