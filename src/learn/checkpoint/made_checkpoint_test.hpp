// A folder of its own for each test, tensors in memory, and ranks that write parts of them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/write.hpp"

namespace tutti::checkpoint {

// A whole tensor of floats.
struct Made {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> numbers;
};

inline Made make_tensor(std::string name, std::vector<std::int64_t> shape, Prng& prng) {
  Made made{std::move(name), shape, std::vector<float>(static_cast<std::size_t>(whole(shape).elements()))};
  for (float& number : made.numbers) number = static_cast<float>(prng.unit() - 0.5);
  return made;
}

// The elements of a box, one after the other.
inline std::vector<float> cut(const Made& made, const Box& box) {
  std::vector<float> numbers;
  for (std::int64_t element = 0; element < box.elements(); ++element) {
    std::int64_t rest = element;
    std::int64_t index = 0;
    std::int64_t step = 1;
    for (std::size_t at = made.shape.size(); at-- > 0;) {
      index += (box.offset[at] + rest % box.extent[at]) * step;
      rest /= box.extent[at];
      step *= made.shape[at];
    }
    numbers.push_back(made.numbers[static_cast<std::size_t>(index)]);
  }
  return numbers;
}

// The pieces of one rank, with the memory that they lie in.
class Rank {
 public:
  void hold(const Made& made, const Box& box) { held_.push_back({&made, box, cut(made, box)}); }

  Result<FileRecord> write(const std::string& part, int rank) const {
    std::vector<Piece> pieces;
    for (const Held& held : held_) {
      pieces.push_back({held.made->name, safetensors::Type::f32, held.made->shape, held.box,
                        std::as_bytes(std::span(held.numbers))});
    }
    return write_file(part, rank, pieces);
  }

 private:
  struct Held {
    const Made* made;
    Box box;
    std::vector<float> numbers;
  };
  std::vector<Held> held_;
};

inline Result<> write_checkpoint(const std::string& folder, const State& state,
                                 const std::vector<Rank>& ranks) {
  if (const auto claimed = claimed_by(folder); claimed && !*claimed) {
    if (auto mine = claim(folder, state.attempt); !mine) return mine;
  }
  const auto part = begin(folder, state.step, state.attempt);
  if (!part) return part.error();
  std::vector<FileRecord> records;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    auto record = ranks[rank].write(*part, static_cast<int>(rank));
    if (!record) return std::move(record).error();
    records.push_back(std::move(*record));
  }
  return commit(folder, state.attempt, state, records);
}

// Two ranks with the halves of one matrix.
inline Result<> write_small_checkpoint(const std::string& folder, std::int64_t step,
                                       std::int64_t attempt = 0) {
  Prng prng(static_cast<std::uint64_t>(step));
  const Made matrix = make_tensor("model/matrix", {4, 6}, prng);
  std::vector<Rank> ranks(2);
  ranks[0].hold(matrix, {{0, 0}, {2, 6}});
  ranks[1].hold(matrix, {{2, 0}, {2, 6}});
  return write_checkpoint(folder, {.step = step, .attempt = attempt, .mesh = "2x1x1"}, ranks);
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-checkpoint-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~CheckpointTest() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove(folder_ + ".committed");
  }

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  bool exists(const std::string& name) const { return std::filesystem::exists(path(name)); }

  std::string read_text(const std::string& name) const {
    std::stringstream content;
    content << std::ifstream(path(name), std::ios::binary).rdbuf();
    return content.str();
  }
  void write_text(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  // Flips one bit of a byte, counted from the end if negative.
  void flip(const std::string& name, std::int64_t at) const {
    std::string content = read_text(name);
    const auto index = static_cast<std::size_t>(at < 0 ? static_cast<std::int64_t>(content.size()) + at : at);
    content.at(index) = static_cast<char>(content.at(index) ^ 0x10);
    write_text(name, content);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      all.push_back(entry.path().filename().string());
    }
    std::ranges::sort(all);
    return all;
  }

 private:
  std::string folder_;
};

}  // namespace tutti::checkpoint
