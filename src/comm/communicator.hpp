// The ranks of a job in step: collective operations on plain memory that end within a deadline, either done
// or with an error that names who is to blame. Any thread may use a communicator; the order of its calls must
// be the same on all of its ranks.
//
//   auto world = Communicator::connect(*Options::from_environment());
//   world->all_reduce(gradients, gradients, count, DataType::f32, Reduction::average).wait();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "comm/allocate.hpp"
#include "comm/types.hpp"

namespace tutti::comm {

// What carries the bytes. `automatic` is shared memory inside a host and TCP between hosts.
enum class Transport { automatic, shm, tcp };

struct Options {
  int rank = 0;
  int size = 1;
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 0;
  std::string node;                 // for messages; TUTTI_NODE or the host's name if empty
  Duration connect_timeout = 120s;  // ranks may start late
  Duration deadline = 5s;           // of each operation
  Transport transport = Transport::automatic;
  bool device_memory = false;  // buffers may lie on a GPU, and are looked at
  // For rank 0: a socket that listens at the master's address already, so that its port is surely free. Taken
  // over.
  int hub_listener = -1;
  // What all ranks of the world have and nobody else: who comes without it gets no rank. Without one whoever
  // reaches the master's port may come.
  std::string secret{};

  // RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as every launcher sets them, and TUTTI_WORLD_SECRET, which
  // a cluster makes for each attempt.
  static Result<Options> from_environment();
};

class Lane;

// An operation under way. Cheap to copy; dropping it does not stop the operation.
class Work {
 public:
  struct State;
  Work(std::shared_ptr<Lane> lane, std::shared_ptr<State> state)
      : lane_(std::move(lane)), state_(std::move(state)) {}

  // Until it is done. Buffers may be touched again only after this. An operation on device memory is then in
  // line: what the caller's stream does from now on comes after it, and what the host wants to read needs a
  // synchronisation of that stream, as with any kernel. What goes wrong there later is said by the next call,
  // and by Communicator::check().
  Result<> wait();
  // Whether it has ended, on the device too.
  bool done() const;

 private:
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  struct Group;

  static Result<Communicator> connect(const Options& options);

  int rank() const;
  int size() const;
  const std::string& name() const;
  // The node that a rank of this communicator runs on.
  const std::string& node(int rank) const;
  // Whether all ranks share memory, and use it.
  bool on_one_host() const;

  // Input and output may be the same buffer; of blocks, a rank's own may lie in its place in the whole.
  // `count` is in elements: of the whole for the first, third and fourth, of one rank's block for the others.
  // The deadline counts from when the operation begins on this rank; 0 takes the one of the options.
  Work all_reduce(const void* in, void* out, std::size_t count, DataType type, Reduction reduction,
                  Duration deadline = {});
  Work reduce_scatter(const void* in, void* out, std::size_t count, DataType type, Reduction reduction,
                      Duration deadline = {});
  Work reduce(const void* in, void* out, std::size_t count, DataType type, Reduction reduction, int root,
              Duration deadline = {});
  Work broadcast(void* data, std::size_t count, DataType type, int root, Duration deadline = {});
  Work all_gather(const void* in, void* out, std::size_t count, DataType type, Duration deadline = {});
  Work all_to_all(const void* in, void* out, std::size_t count, DataType type, Duration deadline = {});
  Work gather(const void* in, void* out, std::size_t count, DataType type, int root, Duration deadline = {});
  Work scatter(const void* in, void* out, std::size_t count, DataType type, int root, Duration deadline = {});
  // Messages from one rank to another arrive in the order of their sends, and wait for no other operation.
  Work send(const void* data, std::size_t count, DataType type, int peer, Duration deadline = {});
  Work recv(void* data, std::size_t count, DataType type, int peer, Duration deadline = {});
  Work barrier(Duration deadline = {});

  // A communicator of the ranks that give the same colour, in the order of their keys, then of their ranks.
  // All ranks must call it. The name is for messages.
  Result<Communicator> split(int color, int key, const std::string& name = "");

  // With options.device_memory, device memory may be given wherever host memory may. The stream (a CUstream,
  // or a cudaStream_t) is the one that the caller's kernels run on: an operation begins after what is on it
  // when it is called. The default stream at first.
  void use_stream(void* stream);
  // How operations on device memory go: "nccl", "ipc", "host", or "" before the first. Except through the
  // host, their calls do not wait for the device, and all communicators of a process must call them in one
  // order on all ranks; the first call of a group, and one that is larger than those before, may wait for the
  // others.
  std::string device_way() const;
  // Whether results on device memory that the caller's stream was synchronised for can be believed: an error
  // if the world has a fault. To be asked before they are used for anything that stays.
  Result<> check() const;

  // Ends every wait of every rank with an error that gives the reason.
  void abort(const std::string& why);

 private:
  explicit Communicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  std::shared_ptr<Group> group_;
};

}  // namespace tutti::comm
