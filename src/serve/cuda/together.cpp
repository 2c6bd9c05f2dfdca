// What the ranks of a model that is split tell each other in a step. All of it is put on the step's queue:
// the host waits for nobody.
#include "serve/cuda/device.hpp"
#include "serve/cuda/forward.hpp"

namespace tutti::serve::cuda {

Result<> Forward::problem() const {
  if (problem_) return *problem_;
  return {};
}

void Forward::clear_stream(const Step& step) {
  const auto bytes = static_cast<std::size_t>(step.view.tokens.count * sizes_.hidden) * sizeof(float);
  auto done = checked(
      cudaMemsetAsync(scratch_.stream, 0, bytes, static_cast<cudaStream_t>(step.queue.stream)), "a step");
  if (!done && !problem_) problem_ = std::move(done).error();
}

// The stream of the first rank has all that was before, so that its sum with what the others have is the
// stream of all.
void Forward::sum(const Step& step) {
  if (peers_ == nullptr || problem_) return;
  auto done = peers_->sum(scratch_.stream, static_cast<std::size_t>(step.view.tokens.count * sizes_.hidden));
  if (!done) problem_ = std::move(done).error();
}

// The rows of a rank arrive side by side, and its part of each goes to its place.
void Forward::gather(const Step& step) {
  if (peers_ == nullptr || problem_) return;
  const std::int64_t rows = step.view.row_count;
  const std::int64_t width = weights_.head.rows;
  auto done = peers_->gather(scratch_.part_logits, scratch_.gathered, static_cast<std::size_t>(rows * width));
  for (int rank = 0; done && is_first() && rank < part_.count; ++rank) {
    const HeadRows from = head_of_part(shape_.vocabulary, {rank, part_.count}, row_elements);
    if (from.count == 0) break;
    done =
        checked(cudaMemcpy2DAsync(
                    scratch_.logits + from.first, static_cast<std::size_t>(sizes_.vocabulary) * sizeof(float),
                    scratch_.gathered + rank * rows * width, static_cast<std::size_t>(width) * sizeof(float),
                    static_cast<std::size_t>(from.count) * sizeof(float), static_cast<std::size_t>(rows),
                    cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(step.queue.stream)),
                "gathering logits");
  }
  if (!done) problem_ = std::move(done).error();
}

}  // namespace tutti::serve::cuda
