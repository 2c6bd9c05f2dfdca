// The ranks of a model from both sides: who starts them, and what each of them does.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "comm/socket.hpp"
#include "serve/load/fingerprint.hpp"
#include "serve/parallel/parallel.hpp"
#include "serve/parallel/peers.hpp"
#include "serve/remote/lifeline.hpp"
#include "serve/remote/remote.hpp"
#include "serve/split/split.hpp"

namespace tutti::serve::parallel {
namespace {

constexpr const char* this_machine = "127.0.0.1";

// CPUs may take minutes for a long prompt of a large model; that one of them does not come is noticed by the
// others, much earlier.
constexpr Duration cpu_step_deadline = 10min;

bool is_socket(int descriptor) {
  struct stat about {};
  return ::fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode);
}

// Until nobody is at the other end of the socket any more.
void wait_until_gone(int descriptor) {
  pollfd wait{descriptor, 0, 0};
  while (::poll(&wait, 1, -1) < 0 && errno == EINTR) continue;
}

}  // namespace

Result<std::unique_ptr<Model>> open_model(const std::string& program, const Source& source,
                                          const LoadOptions& options) {
  if (auto fine = check_split(source.shape, options.ranks); !fine) return std::move(fine).error();
  const auto endpoint = comm::Endpoint::of(this_machine, 0);
  if (!endpoint) return endpoint.error();
  // Listens before anybody starts, so that its port is surely free and the others may come first.
  const auto listener = comm::listen_on(*endpoint);
  if (!listener) return listener.error();
  const auto port = comm::port_of(*listener);
  if (!port) return port.error();
  const std::string path = std::filesystem::absolute(source.path).lexically_normal().string();
  remote::Deadlines deadlines;
  if (options.device == Device::cpu) deadlines.step = cpu_step_deadline;
  std::vector<remote::Worker::Program> programs;
  for (int rank = 0; rank < options.ranks; ++rank) {
    LoadOptions own = options;
    own.rank = rank;
    own.port = *port;
    programs.push_back({.command = {program, "model", path, write_options(own)},
                        .name = "rank " + std::to_string(rank) + " of the model",
                        .listener = rank == 0 ? listener->get() : -1,
                        .deadlines = deadlines});
  }
  return open_ranks(programs);
}

Result<> host_model(std::span<const std::string> words, const MakeModel& on_gpu) {
  if (words.size() != 2 || !is_socket(remote::worker_descriptor))
    return invalid("model takes MODEL OPTIONS, and is started by `tutti engine`");
  remote::end_with_other_side(remote::worker_descriptor);
  const files::FileDescriptor line(::dup(remote::worker_descriptor));
  std::shared_ptr<Peers> peers;
  bool is_loaded = false;
  const auto make = [&]() -> Result<remote::Made> {
    auto options = read_options(words[1]);
    if (!options) return std::move(options).error();
    options->on_gpu = on_gpu;
    auto source = open_source(words[0]);
    if (!source) return std::move(source).error();
    std::string fingerprint = fingerprint_of(*source, options->adapters);
    if (options->ranks > 1) {
      auto met = connect({.rank = options->rank,
                          .size = options->ranks,
                          .master_address = this_machine,
                          .master_port = static_cast<std::uint16_t>(options->port),
                          .device_memory = options->device == Device::cuda,
                          .hub_listener = options->rank == 0 ? remote::listener_descriptor : -1});
      if (!met) return std::move(met).error();
      peers = std::move(*met);
      options->peers = peers;
    }
    auto model = make_model(*source, *options);
    if (!model) return std::move(model).error();
    if (auto fine = check_unchanged(*source, options->adapters, fingerprint); !fine)
      return std::move(fine).error();
    is_loaded = true;
    return remote::Made{std::move(*model), std::move(fingerprint)};
  };
  auto hosted = remote::host_model(remote::worker_descriptor, make);
  // Why it could not be loaded was told; the others would say only that this rank has left them.
  if (hosted && peers && !is_loaded) wait_until_gone(line.get());
  return hosted;
}

}  // namespace tutti::serve::parallel
