// Each function of math.hpp beside what plain libtorch computes in f64, forward and backward. What
// `tutti-worker check-train` begins with. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace tutti::train {

// The largest of several errors; one that is not a number stays.
class Largest {
 public:
  // Relative to the largest element; not a number if anything in it is not.
  void note(const at::Tensor& got, const at::Tensor& expected);
  void note(double error) {
    if (!(error <= value_)) value_ = error;
  }
  double value() const { return value_; }

 private:
  double value_ = 0;
};

void check_functions(at::Device device, at::ScalarType type,
                     const std::function<void(const char* name, double error)>& note);

}  // namespace tutti::train
