// Threads that compute one thing together, phase by phase. Between two phases they wait for one another: at
// first turning, because most phases take microseconds, then asleep, so that an idle engine costs nothing.
// One run() at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <thread>
#include <vector>

namespace tutti::serve::cpu {

class Team;

// Cores that this process may use.
int usable_cores();

// One thread of a team, inside run().
class Member {
 public:
  Member(Team& team, int index) : team_(team), index_(index) {}

  int index() const { return index_; }
  // Returns when all members have come here: what they wrote before can be read.
  void meet();
  // Calls work(begin, end) until [0, count) is done, in pieces of `grain` that go to whoever is free. All
  // members call it with the same numbers, and leave it together. Where there is no memory for a piece the
  // rest is done, and run() throws that at its end.
  template <class Work>
  void share(std::int64_t count, std::int64_t grain, Work&& work);

 private:
  Team& team_;
  int index_;
};

class Team {
 public:
  // 0: one thread a core that this process may use.
  explicit Team(int threads);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  int size() const { return size_; }
  // On all members at once, the caller being one of them. Outside of share() nothing may be thrown: the
  // others would wait for ever.
  void run(const std::function<void(Member&)>& work);

 private:
  friend class Member;
  // About 50 microseconds.
  static constexpr int turns_max = 1'000;

  static void wait_while(const std::atomic<std::uint32_t>& number, std::uint32_t is);
  void meet();
  void loop(int index);
  void end_all();

  int size_;
  const std::function<void(Member&)>* work_ = nullptr;
  bool ends_ = false;
  // Each on a line of its own: they are written while others are read.
  alignas(64) std::atomic<std::uint32_t> run_{0};         // counts the calls of run()
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // counts the meetings
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::int64_t> next_{0};  // the first piece that nobody has taken
  std::atomic<bool> wants_memory_ = false;         // a piece had none
  std::vector<std::thread> threads_;
};

template <class Work>
void Member::share(std::int64_t count, std::int64_t grain, Work&& work) {
  while (true) {
    const std::int64_t begin = team_.next_.fetch_add(grain, std::memory_order_relaxed);
    if (begin >= count) break;
    try {
      work(begin, begin + grain < count ? begin + grain : count);
    } catch (const std::bad_alloc&) {
      team_.wants_memory_ = true;
    }
  }
  meet();
}

}  // namespace tutti::serve::cpu
