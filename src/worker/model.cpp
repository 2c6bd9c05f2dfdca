#include "worker/model.hpp"

#include "serve/load/load.hpp"
#include "serve/remote/remote.hpp"

namespace tutti::worker {

Result<int> host_model(std::span<const std::string> words) {
  if (words.size() != 2) return invalid("model takes MODEL OPTIONS, and is started by `tutti engine`");
  const auto make = [&]() -> Result<std::unique_ptr<serve::Model>> {
    auto options = serve::read_options(words[1]);
    if (!options) return std::move(options).error();
    auto source = serve::open_source(words[0]);
    if (!source) return std::move(source).error();
    return serve::make_model(*source, *options);
  };
  if (auto done = serve::remote::host_model(serve::remote::worker_descriptor, make); !done)
    return std::move(done).error();
  return 0;
}

}  // namespace tutti::worker
