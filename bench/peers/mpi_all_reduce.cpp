// Times Open MPI's all-reduce of f32 sums, in place, for bench_comm. mpirun starts one of these a rank.
#include <mpi.h>

#include "peers/timing.hpp"

namespace {

using tutti::bench::Library;
using tutti::bench::Values;

Library join(int& count, char**& words) {
  MPI_Init(&count, &words);
  Library library;
  MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &library.ranks);
  library.max_over_ranks = [](double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  };
  library.prepare = [](const Values& values) {
    return [data = values.data(), elements = static_cast<int>(values.size())] {
      MPI_Allreduce(MPI_IN_PLACE, data, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
  };
  return library;
}

}  // namespace

int main(int count, char** words) {
  const Library library = join(count, words);
  const auto plan = tutti::bench::read_plan(count, words, 1);
  tutti::bench::print_times(library, plan.sizes, plan.seconds);
  MPI_Finalize();
  if (!plan.sizes.empty()) return 0;
  std::fprintf(stderr, "usage: peer_mpi_all_reduce SECONDS BYTES...\n");
  return 2;
}
