#include "comm/device.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/lines.hpp"
#include "comm/process.hpp"
#include "comm/ptx.hpp"

namespace tutti::comm {
namespace {

constexpr unsigned stream_non_blocking = 1;
constexpr unsigned ipc_lazy_peer_access = 1;
constexpr unsigned register_portable_mapped = 3;
constexpr int not_ready = 600;
constexpr unsigned threads_of_block = 256;
constexpr unsigned blocks_max = 1024;
// The caller's own kernels may take this long.
constexpr auto ready_time_max = std::chrono::minutes(10);
// Host memory that data passes through, at most.
constexpr std::size_t ranks_of_table_max = 256;

struct Sizes {
  std::size_t in = 0;
  std::size_t out = 0;
};

// What an operation reads and writes on this rank, in bytes.
Sizes sizes_of(const Call& call, int size, int me) {
  const std::size_t block = call.bytes();
  const std::size_t all = block * static_cast<std::size_t>(size);
  const bool root = call.root == me;
  switch (call.operation) {
    case Operation::all_reduce:
      return {block, block};
    case Operation::reduce:
      return {block, root ? block : 0};
    case Operation::reduce_scatter:
      return {all, block};
    case Operation::all_gather:
      return {block, all};
    case Operation::broadcast:
      return {root ? block : 0, root ? 0 : block};
    case Operation::all_to_all:
      return {all, all};
    case Operation::gather:
      return {block, root ? all : 0};
    case Operation::scatter:
      return {root ? all : 0, block};
    case Operation::send:
      return {block, 0};
    case Operation::recv:
      return {0, block};
    case Operation::barrier:
      return {};
  }
  return {};
}

}  // namespace

struct DeviceCollectives::Place {
  cuda::DeviceId device{};
  std::uint64_t host = 0;
  std::int64_t pid = 0;
  std::uint32_t nccl = 0;
  std::uint32_t shareable = 0;
  std::uint32_t on_device = 1;  // all of it
  std::uint32_t unused = 0;
  struct Piece {
    cuda::IpcHandle handle{};
    std::uint64_t allocation = 0;  // 0: this rank has no such buffer in the operation
    std::uint64_t offset = 0;
  } in, out;
};

DeviceCollectives::~DeviceCollectives() {
  if (context_ == nullptr) return;
  const cuda::ContextGuard guard(context_);
  for (const auto& [key, pointer] : mapped_) cuda::driver()->ipc_close(pointer);
  if (staging_registered_) cuda::driver()->host_unregister(staging_.data());
  if (table_.data() != nullptr) cuda::driver()->host_unregister(table_.data());
}

Result<> DeviceCollectives::prepare(cuda::Context context) {
  if (context_ != nullptr) return {};
  const cuda::Driver& driver = *cuda::driver();
  int device = 0;
  if (auto done = cuda::check(driver.context_device(&device), "the context has no device"); !done)
    return done;
  if (auto done = cuda::check(driver.device_uuid(&device_, device), "the device has no id"); !done)
    return done;
  if (auto done = cuda::check(driver.stream_create(&stream_, stream_non_blocking), "no stream"); !done)
    return done;
  auto table = allocate(2 * ranks_of_table_max * sizeof(cuda::Pointer));
  if (!table) return std::move(table).error();
  auto pinned =
      cuda::check(driver.host_register(table->data(), table->size(), register_portable_mapped), "no table");
  if (!pinned) return pinned;
  table_ = std::move(*table);
  context_ = context;
  return {};
}

Outcome DeviceCollectives::run(const Call& call, cuda::Event ready, const Limits& limits) {
  const cuda::Place in = cuda::place_of(call.in);
  const cuda::Context context = in.device ? in.context : cuda::place_of(call.out).context;
  const cuda::ContextGuard guard(context);
  if (auto prepared = prepare(context); !prepared) return Outcome::failed(prepared.error().text());
  if (ready != nullptr) cuda::driver()->stream_wait_event(stream_, ready, 0);
  // What the caller still computes is its own time, and not a peer's fault.
  const auto begin = Clock::now();
  Limits own = limits;
  own.deadline = begin + ready_time_max;
  if (auto complete = finish(own); !complete.ok()) {
    return complete.kind == Outcome::Kind::late
               ? Outcome::failed("the device does not finish what the operation waits for")
               : complete;
  }
  own.deadline = limits.deadline + (Clock::now() - begin);
  return run_ready(call, own);
}

Outcome DeviceCollectives::run_ready(const Call& call, const Limits& limits) {
  std::vector<Place> places;
  if (auto met = meet(call, limits, places); !met.ok()) return met;
  way_ = choose(call, places);
  switch (way_) {
    case Way::nccl:
      return run_nccl(call, limits);
    case Way::ipc:
      return run_ipc(call, places, limits);
    case Way::host:
      return run_host(call, limits);
  }
  return {};
}

const char* DeviceCollectives::way() const {
  switch (way_) {
    case Way::nccl:
      return "nccl";
    case Way::ipc:
      return "ipc";
    case Way::host:
      return "host";
  }
  return "";
}

// The ranks tell one another where their data lies; by then it is complete.
Outcome DeviceCollectives::meet(const Call& call, const Limits& limits, std::vector<Place>& places) {
  const cuda::Driver& driver = *cuda::driver();
  Place mine;
  mine.device = device_;
  mine.host = std::hash<std::string>{}(host_identity());
  mine.pid = getpid();
  mine.nccl = Nccl::available() ? 1 : 0;
  mine.shareable = 1;
  const Sizes sizes = sizes_of(call, size_, me_);
  const auto describe = [&](const std::byte* data, std::size_t bytes, Place::Piece& piece) {
    if (bytes == 0) return;
    const cuda::Place place = cuda::place_of(data);
    cuda::Pointer base = 0;
    std::size_t length = 0;
    piece.allocation = place.allocation;
    const bool found = place.device && driver.address_range(&base, &length, cuda::pointer(data)) == 0 &&
                       driver.ipc_get(&piece.handle, base) == 0;
    if (!found) mine.shareable = 0;
    if (!place.device) mine.on_device = 0;
    piece.offset = cuda::pointer(data) - base;
  };
  describe(call.in, sizes.in, mine.in);
  describe(call.out, sizes.out, mine.out);
  // Blocks that arrive where others still read would be lost.
  if (call.operation == Operation::all_to_all && call.in == call.out) mine.shareable = 0;
  places.resize(static_cast<std::size_t>(size_));
  const Call gather{.operation = Operation::all_gather,
                    .in = reinterpret_cast<const std::byte*>(&mine),
                    .out = reinterpret_cast<std::byte*>(places.data()),
                    .count = sizeof mine,
                    .type = DataType::u8};
  return host_.run(gather, limits);
}

DeviceCollectives::Way DeviceCollectives::choose(const Call& call, const std::vector<Place>& places) const {
  bool nccl = call.operation != Operation::barrier;
  bool ipc = places.size() <= ranks_of_table_max;
  for (const Place& one : places) {
    nccl = nccl && one.nccl != 0 && one.on_device != 0;
    ipc = ipc && one.shareable != 0 && one.host == places.front().host && one.device == places.front().device;
    for (const Place& other : places) {
      const bool same_device = one.host == other.host && one.device == other.device;
      if (&one != &other && same_device) nccl = false;  // which NCCL refuses
      if (&one != &other && one.host == other.host && one.pid == other.pid) ipc = false;
    }
  }
  if (nccl) return Way::nccl;
  return ipc ? Way::ipc : Way::host;
}

Outcome DeviceCollectives::run_nccl(const Call& call, const Limits& limits) {
  if (!nccl_) {
    Nccl::Id id{};
    if (me_ == 0) {
      auto made = Nccl::make_id();
      if (!made) return Outcome::failed(made.error().text());
      id = *made;
    }
    auto* const bytes = reinterpret_cast<std::byte*>(id.data());
    const Call tell_id{.operation = Operation::broadcast,
                       .in = bytes,
                       .out = bytes,
                       .count = id.size(),
                       .type = DataType::u8,
                       .root = 0};
    if (auto told = host_.run(tell_id, limits); !told.ok()) return told;
    auto joined = Nccl::join(id, size_, me_);
    if (!joined) return Outcome::failed(joined.error().text());
    nccl_ = std::move(*joined);
  }
  if (auto launched = nccl_->launch(call, stream_); !launched)
    return Outcome::failed(launched.error().text());
  auto finished = finish(limits);
  if (!finished.ok()) nccl_->abort();
  return finished;
}

// A device does not know deadlines, so the host watches it.
Outcome DeviceCollectives::finish(const Limits& limits) {
  for (;;) {
    const int status = cuda::driver()->stream_query(stream_);
    if (status == 0) return {};
    if (status != not_ready) return Outcome::failed(cuda::check(status, "the device failed").error().text());
    if (limits.fault->raised()) return Outcome::fault();
    if (Clock::now() >= limits.deadline) return Outcome::late(-1);
    std::this_thread::yield();
  }
}

Outcome DeviceCollectives::run_host(const Call& call, const Limits& limits) {
  const cuda::Driver& driver = *cuda::driver();
  const Sizes sizes = sizes_of(call, size_, me_);
  const std::size_t out_at = whole_lines(sizes.in);
  if (staging_.size() < out_at + sizes.out) {
    if (staging_registered_) driver.host_unregister(staging_.data());
    auto bigger = allocate(out_at + sizes.out);
    if (!bigger) return Outcome::failed(bigger.error().text());
    staging_ = std::move(*bigger);
    // Without it the copies are slower, and right all the same.
    staging_registered_ =
        driver.host_register(staging_.data(), staging_.size(), register_portable_mapped) == 0;
  }
  Call on_host = call;
  on_host.in = staging_.data();
  on_host.out = staging_.data() + out_at;
  if (call.operation == Operation::broadcast) on_host.out = staging_.data();
  const auto copy = [&](const void* to, const void* from, std::size_t bytes) -> Outcome {
    if (bytes == 0) return {};
    auto done = cuda::check(driver.copy(cuda::pointer(to), cuda::pointer(from), bytes, stream_), "copy");
    if (!done) return Outcome::failed(done.error().text());
    return finish(limits);
  };
  if (auto copied = copy(on_host.in, call.in, sizes.in); !copied.ok()) return copied;
  if (auto done = host_.run(on_host, limits); !done.ok()) return done;
  return copy(call.out, on_host.out, sizes.out);
}

Result<std::byte*> DeviceCollectives::reach(const Place& place, bool input) {
  const Place::Piece& piece = input ? place.in : place.out;
  if (piece.allocation == 0) return static_cast<std::byte*>(nullptr);
  const std::pair key(static_cast<pid_t>(place.pid), piece.allocation);
  auto found = mapped_.find(key);
  if (found == mapped_.end()) {
    cuda::Pointer mapped = 0;
    auto opened = cuda::check(cuda::driver()->ipc_open(&mapped, piece.handle, ipc_lazy_peer_access),
                              "another rank's device memory cannot be opened");
    if (!opened) return std::move(opened).error();
    found = mapped_.emplace(key, mapped).first;
  }
  return cuda::memory(found->second + piece.offset);
}

Result<cuda::Function> DeviceCollectives::kernel(DataType type, Reduction reduction) {
  cuda::Function& known = kernels_[{type, reduction}];
  if (known != nullptr) return known;
  cuda::Module module = nullptr;
  const std::string text = reduce_ptx(type, reduction);
  auto done = cuda::check(cuda::driver()->module_load(&module, text.c_str()), "the kernel cannot be loaded");
  if (done)
    done = cuda::check(cuda::driver()->module_function(&known, module, "reduce"), "the kernel is not there");
  if (!done) return std::move(done).error();
  return known;
}

Result<> DeviceCollectives::launch(const Call& call, const std::vector<cuda::Pointer>& table,
                                   std::size_t sources, std::size_t targets, std::size_t count) {
  if (count == 0) return {};
  auto function = kernel(call.type, call.reduction);
  if (!function) return std::move(function).error();
  std::memcpy(table_.data(), table.data(), table.size() * sizeof(cuda::Pointer));
  cuda::Pointer table_at = cuda::pointer(table_.data());
  auto source_count = static_cast<std::uint32_t>(sources);
  auto target_count = static_cast<std::uint32_t>(targets);
  std::uint64_t elements = count;
  std::uint64_t divide = call.reduction == Reduction::average ? static_cast<std::uint64_t>(size_) : 0;
  std::array<void*, 5> parameters{&table_at, &source_count, &target_count, &elements, &divide};
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::size_t>((count + threads_of_block - 1) / threads_of_block, 1, blocks_max));
  return cuda::check(cuda::driver()->launch(*function, blocks, 1, 1, threads_of_block, 1, 1, 0, stream_,
                                            parameters.data(), nullptr),
                     "the kernel cannot be launched");
}

// As in host memory: each rank reduces a slice straight from and into the others' buffers.
Result<> DeviceCollectives::reduce_ipc(const Call& call, const std::vector<const std::byte*>& in,
                                       const std::vector<std::byte*>& out) {
  const std::size_t element = size_of(call.type);
  const auto size = static_cast<std::size_t>(size_);
  const auto me = static_cast<std::size_t>(me_);
  std::size_t begin = 0;
  std::size_t bytes = call.bytes();
  std::size_t out_begin = 0;
  if (call.operation == Operation::reduce_scatter) {
    begin = me * bytes;
  } else {
    const std::size_t slice = part_bytes(bytes, size);
    begin = out_begin = std::min(bytes, me * slice);
    bytes = std::min(slice, bytes - begin);
  }
  std::vector<cuda::Pointer> table;
  table.reserve(2 * size);
  for (const std::byte* source : in) table.push_back(cuda::pointer(source + begin));
  std::size_t targets = 0;
  for (std::size_t member = 0; member < size; ++member) {
    const bool wanted = call.operation == Operation::all_reduce ||
                        (call.operation == Operation::reduce && static_cast<int>(member) == call.root) ||
                        (call.operation == Operation::reduce_scatter && member == me);
    if (!wanted) continue;
    table.push_back(cuda::pointer(out[member] + out_begin));
    ++targets;
  }
  return launch(call, table, size, targets, bytes / element);
}

// Each rank fetches what it wants.
Result<> DeviceCollectives::move_ipc(const Call& call, const std::vector<const std::byte*>& in) {
  const std::size_t bytes = call.bytes();
  const auto me = static_cast<std::size_t>(me_);
  const auto fetch = [&](std::size_t from, std::size_t block, std::size_t to) -> Result<> {
    const std::byte* const source = in[from] + block * bytes;
    std::byte* const target = call.out + to * bytes;
    if (source == target || bytes == 0) return {};
    return cuda::check(cuda::driver()->copy(cuda::pointer(target), cuda::pointer(source), bytes, stream_),
                       "copy");
  };
  const auto root = static_cast<std::size_t>(std::max(call.root, 0));
  switch (call.operation) {
    case Operation::broadcast:
      return me_ == call.root ? Result<>() : fetch(root, 0, 0);
    case Operation::scatter:
      return fetch(root, me, 0);
    case Operation::send:
      return {};
    case Operation::recv:
      return fetch(0, 0, 0);
    case Operation::gather:
      if (me_ != call.root) return {};
      break;
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::barrier:
      break;
  }
  for (std::size_t member = 0; member < in.size(); ++member) {
    const std::size_t block = call.operation == Operation::all_to_all ? me : 0;
    if (auto fetched = fetch(member, block, member); !fetched) return fetched;
  }
  return {};
}

Outcome DeviceCollectives::run_ipc(const Call& call, const std::vector<Place>& places, const Limits& limits) {
  std::vector<const std::byte*> in(places.size());
  std::vector<std::byte*> out(places.size());
  Result<> mine;
  for (std::size_t member = 0; member < places.size() && mine; ++member) {
    if (static_cast<int>(member) == me_) {
      in[member] = call.in;
      out[member] = call.out;
      continue;
    }
    auto their_in = reach(places[member], true);
    auto their_out = their_in ? reach(places[member], false) : Result<std::byte*>(nullptr);
    if (their_in && their_out) {
      in[member] = *their_in;
      out[member] = *their_out;
    } else {
      mine = their_in ? their_out.error() : their_in.error();
    }
  }
  const bool reduces = call.operation == Operation::all_reduce || call.operation == Operation::reduce ||
                       call.operation == Operation::reduce_scatter;
  if (mine) mine = reduces ? reduce_ipc(call, in, out) : move_ipc(call, in);
  if (!mine) return Outcome::failed(mine.error().text());
  if (auto finished = finish(limits); !finished.ok()) return finished;
  // Nobody touches its buffers again before all are done with them.
  return host_.run({.operation = Operation::barrier}, limits);
}

}  // namespace tutti::comm
