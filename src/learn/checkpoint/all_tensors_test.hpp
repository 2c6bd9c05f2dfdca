// Everything that a checkpoint holds, for tests that compare one with another.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "learn/checkpoint/read.hpp"

namespace tutti::checkpoint {

inline std::map<std::string, std::vector<float>> all_tensors(const Result<Checkpoint>& opened) {
  std::map<std::string, std::vector<float>> tensors;
  EXPECT_TRUE(opened) << opened.error().text();
  if (!opened) return tensors;
  for (const auto& [name, stored] : opened->tensors()) {
    const Box box = whole(stored.shape);
    std::vector<float>& values = tensors[name];
    values.resize(static_cast<std::size_t>(box.elements()));
    const auto read = opened->read(name, box, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(read) << read.error().text();
  }
  return tensors;
}

}  // namespace tutti::checkpoint
