// Times Gloo's all-reduce of f32 sums over TCP, in place, for bench_comm. Alone it forks all ranks; given a
// rank, it is that one.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <memory>
#include <string>

#include "peers/timing.hpp"

namespace {

using tutti::bench::Library;
using tutti::bench::Values;
using Context = std::shared_ptr<gloo::rendezvous::Context>;
using Algorithm = gloo::AllreduceOptions::Algorithm;

struct Place {
  int rank = 0;
  int ranks = 1;
  std::string store;    // an empty folder that all ranks see
  std::string address;  // of this rank
};

Context connect(const Place& place) {
  auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(place.address.c_str()));
  auto context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.ranks);
  gloo::rendezvous::FileStore store(place.store);
  context->connectFullMesh(store, device);
  return context;
}

double max_over_ranks(const Context& context, double value) {
  gloo::AllreduceOptions options(context);
  options.setOutput(&value, 1);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::max<double>));
  gloo::allreduce(options);
  return value;
}

std::function<void()> prepare_by_options(const Context& context, Algorithm algorithm, const Values& values) {
  auto options = std::make_shared<gloo::AllreduceOptions>(context);
  options->setAlgorithm(algorithm);
  options->setOutput(values.data(), values.size());
  options->setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  return [options] { gloo::allreduce(*options); };
}

// Its older programming interface, whose algorithms own their buffers.
template <template <typename> typename Older>
std::function<void()> prepare_older(const Context& context, const Values& values) {
  auto algorithm = std::make_shared<Older<float>>(context, std::vector<float*>{values.data()},
                                                  static_cast<int>(values.size()));
  return [algorithm] { algorithm->run(); };
}

std::function<void()> prepare(const Context& context, const std::string& algorithm, const Values& values) {
  if (algorithm == "ring") return prepare_by_options(context, Algorithm::RING, values);
  if (algorithm == "bcube") return prepare_by_options(context, Algorithm::BCUBE, values);
  if (algorithm == "ring_chunked") return prepare_older<gloo::AllreduceRingChunked>(context, values);
  if (algorithm == "halving_doubling") return prepare_older<gloo::AllreduceHalvingDoubling>(context, values);
  throw std::invalid_argument("unknown algorithm '" + algorithm +
                              "'; ring, bcube, ring_chunked, halving_doubling");
}

void measure(const Place& place, const std::string& algorithm, const tutti::bench::Plan& plan) {
  const Context context = connect(place);
  const Library library{.rank = place.rank,
                        .ranks = place.ranks,
                        .max_over_ranks = [&](double value) { return max_over_ranks(context, value); },
                        .prepare = [&](const Values& values) { return prepare(context, algorithm, values); }};
  tutti::bench::print_times(library, plan.sizes, plan.seconds);
}

// The rank that this process is to be: it goes on as the first, its children as the others.
int fork_ranks(int ranks) {
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return rank;
  }
  return 0;
}

int wait_for_children() {
  int status = 0;
  int worst = 0;
  while (::wait(&status) > 0) worst = status == 0 ? worst : 1;
  return worst;
}

}  // namespace

int main(int count, char** words) {
  if (count < 8) {
    std::fprintf(stderr,
                 "usage: peer_gloo_all_reduce RANKS RANK|all STORE ADDRESS ALGORITHM SECONDS BYTES...\n");
    return 2;
  }
  Place place{.ranks = std::atoi(words[1]), .store = words[3], .address = words[4]};
  place.rank = std::string(words[2]) == "all" ? fork_ranks(place.ranks) : std::atoi(words[2]);
  try {
    measure(place, words[5], tutti::bench::read_plan(count, words, 6));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", place.rank, failure.what());
    return 1;
  }
  return wait_for_children();
}
