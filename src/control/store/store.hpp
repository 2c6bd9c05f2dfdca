// The port to what outlives a crash: objects by key, a revision that grows with each commit, atomic commits.
// One loop calls it; an adapter may be slow, and says so in its own header.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::store {

struct Write {
  std::string key;
  std::optional<std::string> value;  // nothing: the key is removed
};

struct Contents {
  std::uint64_t revision = 0;
  std::map<std::string, std::string> objects;
};

struct CommitResult {
  enum class Status {
    done,
    conflict,  // somebody else has written: nothing of this commit landed
    unknown,   // it may have landed or not: load again
  };
  Status status = Status::done;
  std::uint64_t revision = 0;  // of the store after a commit that is done
  std::string why;             // for people, if it is not done
  // It is done with room that was put aside for what frees room, which is not whole any more.
  bool from_reserve = false;
};

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  using Each = std::function<Result<>(std::string_view key, std::string_view value)>;

  // One object after the other, in the order of their keys, until one is refused: what is stored need not fit
  // into memory twice. Answers the revision.
  virtual Result<std::uint64_t> read(const Each& each) = 0;
  // All at once.
  Result<Contents> load() {
    Contents contents;
    auto revision = read([&contents](std::string_view key, std::string_view value) -> Result<> {
      contents.objects.emplace_hint(contents.objects.end(), key, value);
      return {};
    });
    if (!revision) return std::move(revision).error();
    contents.revision = *revision;
    return contents;
  }
  // All of the writes or none, durable when it returns `done`. `revision` is the one this writer saw last.
  virtual CommitResult commit(std::uint64_t revision, std::span<const Write> writes) = 0;
  // The same for what frees room: where there is none left, a store may have put some aside for this.
  virtual CommitResult commit_from_reserve(std::uint64_t revision, std::span<const Write> writes) {
    return commit(revision, writes);
  }
  // A moment without hurry: gives back to the disk a little of what is not needed any more. Says so if what
  // is committed would be lost.
  virtual Result<> tidy() { return {}; }
};

}  // namespace tutti::store
