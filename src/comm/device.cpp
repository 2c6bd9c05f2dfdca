#include "comm/device.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "comm/lines.hpp"
#include "comm/process.hpp"

namespace tutti::comm {
namespace {

constexpr unsigned ipc_lazy_peer_access = 1;
constexpr unsigned register_portable_mapped = 3;
constexpr int not_ready = 600;
// The caller's own kernels may take this long.
constexpr auto ready_time_max = std::chrono::minutes(10);

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

// For the driver to use a page at its address in this process, as the kernels' numbers need it.
Result<> register_page(std::byte* data, std::size_t bytes) {
  const cuda::Driver& driver = *cuda::driver();
  auto done = cuda::check(driver.host_register(data, bytes, register_portable_mapped),
                          "host memory cannot be shown to the device");
  if (!done) return done;
  cuda::Pointer seen = 0;
  if (driver.host_pointer(&seen, data, 0) == 0 && seen == cuda::pointer(data)) return {};
  driver.host_unregister(data);
  return failed("the device sees host memory at another address");
}

}  // namespace

struct DeviceCollectives::Introduction {
  cuda::DeviceId device{};
  std::uint64_t host = 0;
  std::int64_t pid = 0;
  std::uint32_t nccl = 0;
  std::uint32_t signals = 0;  // the device can wait for numbers in memory
  SharedPlace line;
};

struct DeviceCollectives::Staging {
  cuda::IpcHandle handle{};
  std::uint64_t there = 0;
};

// What still runs there keeps its memory, until the process ends.
DeviceCollectives::~DeviceCollectives() {
  if (context_ == nullptr) return;
  const cuda::ContextGuard guard(context_);
  const bool idle = !share_ || share_->finished_all();
  if (!idle) {
    static_cast<void>(queue_.release());
    static_cast<void>(nccl_.release());
    static_cast<void>(std::make_unique<SharedBuffer>(std::move(line_)).release());
    static_cast<void>(std::make_unique<SharedMappings>(std::move(mappings_)).release());
    return;
  }
  const cuda::Driver& driver = *cuda::driver();
  nccl_.reset();
  queue_.reset();
  for (const cuda::Pointer pointer : peer_stagings_) {
    if (pointer != 0) driver.ipc_close(pointer);
  }
  if (staging_ != 0) driver.memory_free(staging_);
  for (void* const page : registered_) driver.host_unregister(page);
  if (line_registered_) driver.host_unregister(line_.data());
  if (host_staging_registered_) driver.host_unregister(host_staging_.data());
}

bool DeviceCollectives::streams() const {
  const Way way = way_.load(std::memory_order_acquire);
  return way == Way::nccl || way == Way::ipc;
}

const char* DeviceCollectives::way() const {
  switch (way_.load(std::memory_order_acquire)) {
    case Way::nccl:
      return "nccl";
    case Way::ipc:
      return "ipc";
    case Way::host:
      return "host";
    case Way::undecided:
      return "";
  }
  return "";
}

void DeviceCollectives::release() {
  if (nccl_) nccl_->abort();
  share_->release();
}

Result<> DeviceCollectives::prepare(cuda::Context context) {
  if (context_ == context) return {};
  if (context_ != nullptr) return failed("the buffers of one group lie on several devices");
  const cuda::Driver& driver = *cuda::driver();
  int device = 0;
  if (auto done = cuda::check(driver.context_device(&device), "the context has no device"); !done)
    return done;
  if (auto done = cuda::check(driver.device_uuid(&device_, device), "the device has no id"); !done)
    return done;
  auto line = allocate(sizeof(DeviceLine));
  if (!line) return std::move(line).error();
  line_ = std::move(*line);
  context_ = context;
  queue_ = std::make_unique<CudaQueue>();
  if (auto opened = queue_->open(); !opened) return opened;
  line_registered_ = driver.memory_steps != nullptr && register_page(line_.data(), line_.size()).ok();
  return {};
}

// The caller's stream says with a number that it has come so far, which costs less than an event.
Result<> DeviceCollectives::begin_after(const Input& input) {
  if (input.event != nullptr) return queue_->begin_after(input.event);
  if (way_ == Way::host) return queue_->begin_after_stream(input.stream);
  const std::array steps{share_->after_caller()};
  return CudaQueue::put_flags(input.stream, steps);
}

// An operation that reads or writes host memory beside device memory has no place on a stream.
Result<> DeviceCollectives::check_places(const Call& call) const {
  if (call.in == call.out) return {};  // and it was looked at already
  const Sizes sizes = sizes_of(call, size_, me_);
  const auto fits = [&](const std::byte* data, std::size_t bytes) {
    return bytes == 0 || cuda::place_of(data).context == context_;
  };
  if (fits(call.in, sizes.in) && fits(call.out, sizes.out)) return {};
  return invalid("the input and the output of " + std::string(name_of(call.operation)) +
                 " do not lie on one device")
      .remedy("give device memory for both, or host memory for both");
}

Outcome DeviceCollectives::run(Collectives& host, const Call& call, const Input& input, const Limits& limits,
                               std::optional<Ticket>& ticket) {
  const cuda::ContextGuard guard(input.context);
  const auto failure = [](const Result<>& done) { return Outcome::failed(done.error().text()); };
  if (auto prepared = prepare(input.context); !prepared) return failure(prepared);
  if (way_ == Way::undecided) {
    if (auto agreed = agree(host, limits); !agreed.ok()) return agreed;
  }
  if (way_ == Way::ipc) {
    const std::size_t half = std::min(DeviceShare::half_for(call, size_), half_bytes_limit_);
    if (share_->half_bytes() == 0 || (half > share_->half_bytes() && !messages_)) {
      if (auto grown = grow(host, half, limits); !grown.ok()) return grown;
    }
  }
  if (way_ != Way::host) {
    if (auto fits = check_places(call); !fits) return failure(fits);
  }
  if (auto waits = begin_after(input); !waits) return failure(waits);
  if (way_ == Way::host) return run_host(host, call, limits);
  ticket.emplace();
  if (way_ == Way::ipc) return share_->enqueue(*queue_, call, limits.descriptor, *ticket);
  return share_->enclose(
      *queue_, [&] { return nccl_->launch(call, queue_->stream(), limits); }, *ticket);
}

Result<> DeviceCollectives::follow(cuda::Stream caller, const Ticket& ticket) const {
  const cuda::ContextGuard guard(context_);
  const std::array steps{share_->end_of(ticket)};
  return CudaQueue::put_flags(caller, steps);
}

template <class Told>
Outcome DeviceCollectives::tell(Collectives& host, const Told& mine, std::vector<Told>& all,
                                const Limits& limits) const {
  all.resize(static_cast<std::size_t>(size_));
  const Call gather{.operation = Operation::all_gather,
                    .in = reinterpret_cast<const std::byte*>(&mine),
                    .out = reinterpret_cast<std::byte*>(all.data()),
                    .count = sizeof mine,
                    .type = DataType::u8};
  return host.run(gather, limits);
}

Outcome DeviceCollectives::all_say_yes(Collectives& host, bool mine, const Limits& limits, bool& all) const {
  std::vector<std::uint64_t> said;
  auto told = tell(host, static_cast<std::uint64_t>(mine ? 1 : 0), said, limits);
  all = told.ok() && std::find(said.begin(), said.end(), 0U) == said.end();
  return told;
}

Outcome DeviceCollectives::agree(Collectives& host, const Limits& limits) {
  Introduction mine;
  mine.device = device_;
  mine.host = std::hash<std::string>{}(host_identity());
  mine.pid = getpid();
  mine.nccl = Nccl::available() ? 1 : 0;
  mine.signals = line_registered_ ? 1 : 0;
  if (auto place = find_shared({line_.data(), line_.size()})) mine.line = *place;
  std::vector<Introduction> all;
  if (auto told = tell(host, mine, all, limits); !told.ok()) return told;
  switch (choose(all)) {
    case Way::nccl:
      return join_nccl(host, limits);
    case Way::ipc:
      return meet_ipc(host, all, limits);
    case Way::host:
    case Way::undecided:
      way_ = Way::host;
  }
  return {};
}

DeviceCollectives::Way DeviceCollectives::choose(const std::vector<Introduction>& all) const {
  bool nccl = true;
  bool ipc = all.size() <= DeviceLine::ranks_max;
  for (const Introduction& one : all) {
    nccl = nccl && one.nccl != 0 && one.signals != 0;
    ipc = ipc && one.signals != 0 && one.host == all.front().host && one.device == all.front().device;
    for (const Introduction& other : all) {
      const bool same_device = one.host == other.host && one.device == other.device;
      if (&one != &other && same_device) nccl = false;  // which NCCL refuses
      if (&one != &other && one.host == other.host && one.pid == other.pid) ipc = false;
    }
  }
  if (nccl) return Way::nccl;
  return ipc ? Way::ipc : Way::host;
}

Outcome DeviceCollectives::join_nccl(Collectives& host, const Limits& limits) {
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
  if (auto told = host.run(tell_id, limits); !told.ok()) return told;
  if (auto joined = Nccl::join(id, size_, me_, limits, nccl_); !joined.ok()) return joined;
  auto* const own = reinterpret_cast<DeviceLine*>(line_.data());
  share_ = std::make_unique<DeviceShare>(std::vector<DeviceShare::Peer>{{own, nullptr}}, 0);
  way_ = Way::nccl;
  return {};
}

// Opens the others' pages. If one rank cannot, all go through the host.
Outcome DeviceCollectives::meet_ipc(Collectives& host, const std::vector<Introduction>& all,
                                    const Limits& limits) {
  std::vector<DeviceShare::Peer> peers(all.size());
  bool mine = true;
  for (std::size_t member = 0; member < all.size() && mine; ++member) {
    if (static_cast<int>(member) == me_) {
      peers[member].line = reinterpret_cast<DeviceLine*>(line_.data());
      continue;
    }
    auto page = mappings_.reach(static_cast<pid_t>(all[member].pid), all[member].line, sizeof(DeviceLine));
    mine = page.ok() && register_page(*page, sizeof(DeviceLine)).ok();
    if (!mine) continue;
    registered_.push_back(*page);
    peers[member].line = reinterpret_cast<DeviceLine*>(*page);
  }
  bool yes = false;
  if (auto told = all_say_yes(host, mine, limits, yes); !told.ok()) return told;
  if (!yes) {
    way_ = Way::host;
    return {};
  }
  share_ = std::make_unique<DeviceShare>(std::move(peers), me_);
  peer_stagings_.assign(all.size(), 0);
  way_ = Way::ipc;
  return {};
}

// Larger staging memory on all ranks, or, where one of them has no room for it, what there is.
Outcome DeviceCollectives::grow(Collectives& host, std::size_t half_bytes, const Limits& limits) {
  const cuda::Driver& driver = *cuda::driver();
  const auto begin = Clock::now();
  if (auto drained = drain(limits); !drained.ok()) return drained;
  Limits own = limits;
  own.deadline += Clock::now() - begin;  // what this rank computes is not a peer's time
  Staging mine;
  cuda::Pointer bigger = 0;
  if (driver.memory_allocate(&bigger, 2 * half_bytes) == 0)
    mine.there = driver.ipc_get(&mine.handle, bigger) == 0 ? 1 : 0;
  std::vector<Staging> all;
  if (auto told = tell(host, mine, all, own); !told.ok()) return told;
  std::vector<cuda::Pointer> opened(all.size(), 0);
  bool fine = std::all_of(all.begin(), all.end(), [](const Staging& one) { return one.there != 0; });
  for (std::size_t member = 0; member < all.size() && fine; ++member) {
    if (static_cast<int>(member) == me_) continue;
    fine = driver.ipc_open(&opened[member], all[member].handle, ipc_lazy_peer_access) == 0;
  }
  bool yes = false;
  if (auto told = all_say_yes(host, fine, own, yes); !told.ok()) return told;
  // Memory is freed by its owner when nobody has it open any more.
  if (yes) {
    std::swap(opened, peer_stagings_);
    std::swap(bigger, staging_);
    std::vector<std::byte*> stagings;
    for (const cuda::Pointer pointer : peer_stagings_) stagings.push_back(cuda::memory(pointer));
    stagings[static_cast<std::size_t>(me_)] = cuda::memory(staging_);
    share_->use_staging(stagings, half_bytes);
  } else {
    half_bytes_limit_ = share_->half_bytes();
    if (half_bytes_limit_ == 0) way_ = Way::host;
  }
  for (const cuda::Pointer pointer : opened) {
    if (pointer != 0) driver.ipc_close(pointer);
  }
  if (auto closed = host.run({.operation = Operation::barrier}, own); !closed.ok()) return closed;
  if (bigger != 0) driver.memory_free(bigger);
  return {};
}

// Until the group's operations so far are done on this rank.
Outcome DeviceCollectives::drain(const Limits& limits) const {
  const auto deadline = Clock::now() + ready_time_max;
  while (!share_->finished_all()) {
    if (limits.fault->raised()) return Outcome::fault();
    if (Clock::now() >= deadline) return Outcome::failed("the device does not finish earlier operations");
    std::this_thread::yield();
  }
  return {};
}

Outcome DeviceCollectives::finish_stream(const Limits& limits) const {
  for (;;) {
    const int status = cuda::driver()->stream_query(queue_->stream());
    if (status == 0) return {};
    if (status != not_ready) return Outcome::failed(cuda::check(status, "the device failed").error().text());
    if (limits.fault->raised()) return Outcome::fault();
    if (Clock::now() >= limits.deadline) return Outcome::late(-1);
    std::this_thread::yield();
  }
}

Outcome DeviceCollectives::run_host(Collectives& host, const Call& call, const Limits& limits) {
  const cuda::Driver& driver = *cuda::driver();
  // What the caller still computes is its own time, and not a peer's fault.
  const auto begin = Clock::now();
  Limits own = limits;
  own.deadline = begin + ready_time_max;
  if (auto complete = finish_stream(own); !complete.ok()) {
    return complete.kind == Outcome::Kind::late
               ? Outcome::failed("the device does not finish what the operation waits for")
               : complete;
  }
  own.deadline = limits.deadline + (Clock::now() - begin);
  const Sizes sizes = sizes_of(call, size_, me_);
  const std::size_t out_at = whole_lines(sizes.in);
  if (host_staging_.size() < out_at + sizes.out) {
    if (host_staging_registered_) driver.host_unregister(host_staging_.data());
    auto bigger = allocate(out_at + sizes.out);
    if (!bigger) return Outcome::failed(bigger.error().text());
    host_staging_ = std::move(*bigger);
    // Without it the copies are slower, and right all the same.
    host_staging_registered_ =
        driver.host_register(host_staging_.data(), host_staging_.size(), register_portable_mapped) == 0;
  }
  Call on_host = call;
  on_host.in = host_staging_.data();
  on_host.out = host_staging_.data() + out_at;
  if (call.operation == Operation::broadcast) on_host.out = host_staging_.data();
  const auto copy = [&](const void* to, const void* from, std::size_t bytes) -> Outcome {
    if (bytes == 0) return {};
    auto done =
        cuda::check(driver.copy(cuda::pointer(to), cuda::pointer(from), bytes, queue_->stream()), "copy");
    if (!done) return Outcome::failed(done.error().text());
    return finish_stream(own);
  };
  if (auto copied = copy(on_host.in, call.in, sizes.in); !copied.ok()) return copied;
  if (auto done = host.run(on_host, own); !done.ok()) return done;
  return copy(call.out, on_host.out, sizes.out);
}

}  // namespace tutti::comm
