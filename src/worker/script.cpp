#include "worker/script.hpp"

#include "serve/load/script.hpp"
#include "serve/remote/program.hpp"
#include "serve/remote/remote.hpp"
#include "serve/script/script.hpp"

namespace tutti::worker {

Result<int> host_script(std::span<const std::string> words) {
  if (words.size() != 2) return invalid("script takes MODEL OPTIONS, and is started by `tutti engine`");
  const auto make = [&]() -> Result<serve::remote::Hosted> {
    auto options = serve::read_script_options(words[1]);
    if (!options) return std::move(options).error();
    return serve::load_script(words[0], *options);
  };
  if (auto done = serve::remote::host_program(serve::remote::worker_descriptor, make); !done)
    return std::move(done).error();
  return 0;
}

}  // namespace tutti::worker
