#include "learn/train/workspace.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "learn/train/failure.hpp"

namespace tutti::train {

at::Tensor flat_memory(std::int64_t count, at::ScalarType type, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(type);
  if (!device.is_cpu()) return at::zeros({count}, options);
  const auto bytes = static_cast<std::size_t>(count) * at::elementSize(type);
  auto buffer =
      std::make_shared<comm::SharedBuffer>(require(comm::allocate(std::max<std::size_t>(bytes, 1))));
  return at::from_blob(
      buffer->data(), {count}, [buffer](void*) {}, options);
}

at::Tensor shaped(const at::Tensor& flat, const View& view) {
  if (view.columns == 0) return flat.as_strided({view.rows}, {1}, flat.storage_offset() + view.begin);
  return flat.as_strided({view.rows, view.columns}, {view.columns, 1}, flat.storage_offset() + view.begin);
}

at::Tensor sliced(const at::Tensor& flat, const Range& range) {
  return flat.slice(0, range.begin, range.end);
}

at::Tensor Workspace::take(std::int64_t count, at::ScalarType type) {
  const auto found = std::find_if(pool_.begin(), pool_.end(), [&](const at::Tensor& buffer) {
    return buffer.numel() == count && buffer.scalar_type() == type;
  });
  if (found == pool_.end()) return flat_memory(count, type, keeping_.device);
  at::Tensor buffer = *found;
  pool_.erase(found);
  return buffer;
}

void Workspace::give(at::Tensor buffer) { pool_.push_back(std::move(buffer)); }

void Workspace::reduce_beside(Pending reducing, at::Tensor buffer,
                              std::function<void(const at::Tensor&)> then) {
  reductions_.push_back({std::move(reducing), std::move(buffer), std::move(then)});
}

void Workspace::settle(std::size_t left_max) {
  while (reductions_.size() > left_max) {
    Reduction oldest = std::move(reductions_.front());
    reductions_.pop_front();
    oldest.reducing.wait();
    oldest.then(oldest.buffer);
    give(std::move(oldest.buffer));
  }
}

}  // namespace tutti::train
