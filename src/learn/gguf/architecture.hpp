// A model as llama.cpp knows it: which of its architectures it is, what that one is told, and what its
// tensors are made of. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/gguf/format.hpp"
#include "learn/model/shape.hpp"

namespace tutti::gguf {

// A tensor of the file: ours, one below the other.
struct Planned {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::string> parts;  // names of ours
  bool always_f32 = false;         // whatever the type of the others is
  // Rows of each so many are put in the order in which llama.cpp turns pairs: neighbours, where ours are half
  // a head apart. 0: as they are.
  std::int64_t paired_rows = 0;
  std::vector<float> numbers;  // that follow from the shape, where there are no parts
};

// What the architecture is told, and the tensors. A model that llama.cpp would compute otherwise is refused
// by the name of what it lacks.
struct Architecture {
  std::string name;
  Fields fields;
  std::vector<Planned> tensors;
};
Result<Architecture> architecture_of(const model::Shape& shape);

}  // namespace tutti::gguf
