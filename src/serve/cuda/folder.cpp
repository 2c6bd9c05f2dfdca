// A model from a folder: what its files say is checked before anything is reserved.
#include "learn/checkpoint/import.hpp"
#include "serve/cuda/model.hpp"

namespace tutti::serve::cuda {

Result<std::unique_ptr<Model>> open_model(const std::string& folder, const Options& options) {
  const auto opened = checkpoint::open_foreign(folder);
  if (!opened) return opened.error();
  return make_model(
      opened->shape, options,
      [&](const std::string& tensor, std::int64_t first_row, std::int64_t rows, std::span<float> floats) {
        return opened->weights.read_rows(tensor, first_row, rows, floats);
      },
      [&](const std::string& tensor, std::int64_t first_row, std::int64_t rows, safetensors::Type type,
          std::span<std::byte> bytes) {
        return opened->weights.read_stored(tensor, first_row, rows, type, bytes);
      });
}

}  // namespace tutti::serve::cuda
