// Where the tensors of one unit of the model lie in flat memory, and which part of it a rank owns: a unit on
// paper. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "learn/checkpoint/box.hpp"
#include "learn/model/shape.hpp"

namespace tutti::train {

// With a tied head, the first and the last stage of a pipeline both hold the embedding.
enum class Role { single, first_of_two, second_of_two };

// Which of the slices that tensors are cut into this rank has.
struct Cut {
  std::int64_t slices = 1;
  std::int64_t slice = 0;
  std::int64_t vocabulary_multiple = 1;  // rows of a cut vocabulary are padded to it
};

// A tensor of the model, as far as this rank has it.
struct Slot {
  model::Tensor tensor;
  checkpoint::Box box;              // which part of it
  std::vector<std::int64_t> shape;  // of the part here, with the padding of a cut vocabulary
  std::int64_t begin = 0;           // in the flat memory
  std::int64_t count = 0;
  bool ours = true;      // counted and saved by this rank, not by another one with the same values
  bool partial = false;  // whole here and on the other slices, each of which sees some of the rows

  std::int64_t end() const { return begin + count; }
};

Slot slot_of(const model::Tensor& tensor, Role role, const Cut& cut);

// Neighbouring slots as one matrix or vector.
struct View {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // 0: a vector
  std::size_t slot = 0;      // the first of them
  std::size_t slots = 1;
};

// Elements of flat memory.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
};

// What two ranges share, counted from the beginning of the second; empty if nothing.
Range inside(const Range& range, const Range& of);

// A piece of a slot inside a range of the flat memory.
struct Piece {
  const Slot* slot;
  checkpoint::Box box;  // of the whole tensor
  std::int64_t at = 0;  // where it begins, counted from the range's beginning
  std::int64_t count = 0;
};

class Layout {
 public:
  // Tensors that decay come first. The memory is padded, so that the replicas have equal parts of it.
  Layout(std::vector<model::Tensor> tensors, Role role, const Cut& cut, std::int64_t replicas);

  const std::vector<Slot>& slots() const { return slots_; }
  Role role() const { return role_; }
  std::int64_t count() const { return count_; }
  Range whole() const { return {0, count_}; }
  Range part(std::int64_t replica) const;
  Range decaying() const { return {0, decaying_end_}; }
  // Runs of slots that this rank answers for.
  std::vector<Range> ours() const;
  View view(const std::vector<std::string>& names) const;
  std::vector<Piece> pieces(const Range& range) const;

 private:
  std::vector<Slot> slots_;
  Role role_;
  std::int64_t replicas_;
  std::int64_t count_ = 0;
  std::int64_t decaying_end_ = 0;
};

}  // namespace tutti::train
