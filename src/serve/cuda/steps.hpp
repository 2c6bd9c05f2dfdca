// The steps of a resident model: their inputs on their way to the device, the pass through the model, and
// what was recorded of it at the start. One thread at a time. Needs CUDA.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "serve/cuda/forward.hpp"
#include "serve/cuda/inputs.hpp"
#include "serve/cuda/resident.hpp"

namespace tutti::serve::cuda {

class Steps {
 public:
  // Warmed up, by all ranks together. The model outlives it.
  static Result<std::unique_ptr<Steps>> make(const Resident& resident);
  ~Steps();
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // Under way when this returns. `places`: where the tokens are that chunks may follow.
  Result<> run(std::span<const Chunk> chunks, std::span<const std::int32_t> places);

  // Of the last step.
  std::int32_t rows() const { return rows_; }
  const RowPlace& place_of(std::int32_t row) const { return row_places_[static_cast<std::size_t>(row)]; }

  Forward& forward() { return forward_; }
  const Forward& forward() const { return forward_; }
  bool overlaps() const { return overlaps_; }
  Queue queue() const { return {resident_.stream.get(), overlaps_}; }
  // Whether all launches since the last question were taken.
  Result<> launched();
  // Waits for all that is under way.
  Result<> finish() const;

 private:
  Steps(const Resident& resident, std::unique_ptr<Products> products, OwnEvent sent);
  Result<> warm_up();
  Result<> run_buckets();
  Result<> record(const StepCounts& counts);
  Result<> send(std::span<const Chunk> chunks, const StepCounts& counts,
                std::span<const std::int32_t> places);
  StepView view_of(const StepCounts& counts) const;

  const Resident& resident_;
  std::unique_ptr<Products> products_;
  OwnEvent sent_;  // the inputs of the last step
  Forward forward_;
  bool overlaps_;
  std::vector<std::int32_t> buckets_;
  std::map<std::int32_t, OwnGraph> graphs_;  // by their rows
  std::int32_t rows_ = 0;
  std::vector<RowPlace> row_places_;
};

}  // namespace tutti::serve::cuda
