// A program for tests that computes here: y = x + 1 of bytes, and what goes wrong on request. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <vector>

#include "serve/program/program.hpp"

namespace tutti::serve {

class ToyProgram final : public Program {
 public:
  explicit ToyProgram(int lanes = 1) : lanes_(lanes) {}

  // An 'X' is not taken; with an 'M' the answer has one row for all; a 'D' ends the worker, for a while; for
  // an 'H' there is no memory.
  static constexpr char refused = 'X';
  static constexpr char merged = 'M';
  static constexpr char deadly = 'D';
  static constexpr char hungry = 'H';

  int lanes() const override { return lanes_; }
  const Signature& signature() const override { return signature_; }
  std::string describe() const override { return "a toy"; }
  Result<std::vector<Tensor>> run(int, const std::vector<Tensor>& inputs) override {
    {
      std::unique_lock lock(mutex_);
      runs_.push_back(inputs.front().shape);
      entered_.notify_all();
      opened_.wait(lock, [&] { return is_open_ || is_stopped_; });
      if (is_stopped_) return unknown("stopped");
    }
    const std::string& bytes = inputs.front().bytes;
    const auto has = [&](char letter) { return bytes.find(letter) != std::string::npos; };
    if (has(refused)) return invalid("an X is not taken");
    if (has(hungry)) throw std::bad_alloc();
    if (has(deadly)) return unknown("the worker with the model has ended: signal 9");
    Tensor output{"y", DataType::uint8, inputs.front().shape, bytes};
    std::for_each(output.bytes.begin(), output.bytes.end(), [](char& each) { ++each; });
    if (has(merged)) output = {"y", DataType::uint8, {1}, "m"};
    return std::vector<Tensor>{output};
  }
  ProgramState state() const override { return {}; }
  void stop() override {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    opened_.notify_all();
  }

  // While it is shut, whoever runs waits inside.
  void shut() {
    const std::scoped_lock lock(mutex_);
    is_open_ = false;
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  // Returns when so many runs have begun since it was made.
  void wait_for_runs(std::size_t count) {
    std::unique_lock lock(mutex_);
    entered_.wait(lock, [&] { return runs_.size() >= count; });
  }
  std::vector<Dimensions> runs() {
    const std::scoped_lock lock(mutex_);
    return runs_;
  }

 private:
  const int lanes_;
  const Signature signature_{.inputs = {{"x", DataType::uint8, std::nullopt}}, .outputs = {}};
  std::mutex mutex_;
  std::condition_variable entered_;
  std::condition_variable opened_;
  std::vector<Dimensions> runs_;  // the shape of each one's input
  bool is_open_ = true;
  bool is_stopped_ = false;
};

}  // namespace tutti::serve
