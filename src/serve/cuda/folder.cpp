// A model from a folder: what its files say is checked before anything is reserved.
#include <map>
#include <vector>

#include "base/files/files.hpp"
#include "learn/checkpoint/import.hpp"
#include "serve/cuda/model.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr std::size_t config_bytes_max = std::size_t{4} << 20;

}  // namespace

Result<std::unique_ptr<Model>> open_model(const std::string& folder, const Options& options) {
  const auto config = files::read_existing_file(folder + "/config.json", config_bytes_max);
  if (!config) return config.error();
  auto shape = model::parse_config(*config);
  if (!shape) return std::move(shape).error().within(folder);
  auto weights = checkpoint::ForeignWeights::open(folder, *shape);
  if (!weights) return std::move(weights).error();
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const model::Unit& unit : model::units(*shape))
    for (const model::Tensor& tensor : unit.tensors) shapes.emplace(tensor.name, tensor.shape);
  return make_model(*shape, options,
                    [&](const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                        std::span<float> floats) -> Result<> {
                      checkpoint::Box box = checkpoint::whole(shapes.at(tensor));
                      box.offset[0] = first_row;
                      box.extent[0] = rows;
                      return weights->read(tensor, box, floats);
                    });
}

}  // namespace tutti::serve::cuda
