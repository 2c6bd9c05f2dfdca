#include "comm/nccl.hpp"

#include <dlfcn.h>

#include <optional>
#include <thread>

namespace tutti::comm {
namespace {

struct UniqueId {
  Nccl::Id bytes;
};

// Of NCCL 2.14, which later ones understand: they look at the version.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

constexpr int in_progress = 7;
// Until it is looked again whether NCCL has come on.
constexpr auto settle_pause = std::chrono::microseconds(20);

// The documented binary interface of NCCL 2.
struct Library {
  const char* (*error_string)(int status);
  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(void** communicator, int size, UniqueId, int rank, Config*);
  int (*async_error)(void*, int* status);
  int (*destroy)(void*);
  int (*abort)(void*);
  int (*all_reduce)(const void* in, void* out, std::size_t count, int type, int op, void*, cuda::Stream);
  int (*reduce)(const void* in, void* out, std::size_t count, int type, int op, int root, void*,
                cuda::Stream);
  int (*broadcast)(const void* in, void* out, std::size_t count, int type, int root, void*, cuda::Stream);
  int (*all_gather)(const void* in, void* out, std::size_t count, int type, void*, cuda::Stream);
  int (*reduce_scatter)(const void* in, void* out, std::size_t count, int type, int op, void*, cuda::Stream);
  int (*send)(const void* data, std::size_t count, int type, int peer, void*, cuda::Stream);
  int (*recv)(void* data, std::size_t count, int type, int peer, void*, cuda::Stream);
  int (*group_start)();
  int (*group_end)();
};

std::optional<Library> load() {
  void* const opened = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (opened == nullptr) return std::nullopt;
  Library all{};
  const auto find = [&](const char* name, auto& function) {
    void* const symbol = dlsym(opened, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    return symbol != nullptr;
  };
  const bool complete =
      find("ncclGetErrorString", all.error_string) && find("ncclGetUniqueId", all.get_unique_id) &&
      find("ncclCommInitRankConfig", all.init_rank) && find("ncclCommDestroy", all.destroy) &&
      find("ncclCommGetAsyncError", all.async_error) && find("ncclCommAbort", all.abort) &&
      find("ncclAllReduce", all.all_reduce) && find("ncclReduce", all.reduce) &&
      find("ncclBroadcast", all.broadcast) && find("ncclAllGather", all.all_gather) &&
      find("ncclReduceScatter", all.reduce_scatter) && find("ncclSend", all.send) &&
      find("ncclRecv", all.recv) && find("ncclGroupStart", all.group_start) &&
      find("ncclGroupEnd", all.group_end);
  if (!complete) return std::nullopt;
  return all;
}

const std::optional<Library>& library() {
  static const std::optional<Library> loaded = load();
  return loaded;
}

Result<> check(int status, const char* what) {
  if (status == 0 || status == in_progress) return {};
  return failed(std::string("NCCL: ") + what + ": " + library()->error_string(status));
}

int type_number(DataType type) {
  switch (type) {
    case DataType::u8:
      return 1;
    case DataType::i32:
      return 2;
    case DataType::i64:
      return 4;
    case DataType::f16:
      return 6;
    case DataType::f32:
      return 7;
    case DataType::f64:
      return 8;
    case DataType::bf16:
      return 9;
  }
  return -1;
}

int reduction_number(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return 0;
    case Reduction::product:
      return 1;
    case Reduction::max:
      return 2;
    case Reduction::min:
      return 3;
    case Reduction::average:
      return 4;
  }
  return -1;
}

}  // namespace

bool Nccl::available() { return library().has_value(); }

Result<Nccl::Id> Nccl::make_id() {
  UniqueId id{};
  if (auto made = check(library()->get_unique_id(&id), "no id"); !made) return std::move(made).error();
  return id.bytes;
}

Outcome Nccl::join(const Id& id, int size, int rank, const Limits& limits, std::unique_ptr<Nccl>& joined) {
  std::unique_ptr<Nccl> made(new Nccl(size, rank));
  Config config;
  auto begun =
      check(library()->init_rank(&made->communicator_, size, UniqueId{id}, rank, &config), "no communicator");
  if (!begun) return Outcome::failed(begun.error().text());
  if (auto done = made->settle(limits); !done.ok()) return done;
  joined = std::move(made);
  return {};
}

Nccl::~Nccl() {
  if (communicator_ != nullptr) library()->destroy(communicator_);
}

void Nccl::abort() {
  const std::lock_guard lock(mutex_);
  if (communicator_ != nullptr) library()->abort(communicator_);
  communicator_ = nullptr;
}

std::string Nccl::problem() {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return "";
  int status = 0;
  auto asked = check(library()->async_error(communicator_, &status), "no answer");
  if (asked) asked = check(status, "the group");
  return asked ? "" : asked.error().text();
}

// Until what was asked of NCCL is done on the host: a stream may get more only then.
Outcome Nccl::settle(const Limits& limits) {
  for (;;) {
    int status = 0;
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ == nullptr) return Outcome::fault();
      status = in_progress;
      if (auto asked = check(library()->async_error(communicator_, &status), "no answer"); !asked)
        return Outcome::failed(asked.error().text());
    }
    if (status == 0) return {};
    if (auto fine = check(status, "the group"); !fine) return Outcome::failed(fine.error().text());
    const bool late = Clock::now() >= limits.deadline;
    if (late || limits.fault->raised()) {
      abort();
      return late ? Outcome::late(-1) : Outcome::fault();
    }
    std::this_thread::sleep_for(settle_pause);
  }
}

Outcome Nccl::launch(const Call& call, cuda::Stream stream, const Limits& limits) {
  {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return Outcome::fault();
    if (auto put_there = put(call, stream); !put_there) return Outcome::failed(put_there.error().text());
  }
  return settle(limits);
}

Result<> Nccl::put(const Call& call, cuda::Stream stream) {
  const Library& nccl = *library();
  const int type = type_number(call.type);
  const int op = reduction_number(call.reduction);
  switch (call.operation) {
    case Operation::all_reduce:
      return check(nccl.all_reduce(call.in, call.out, call.count, type, op, communicator_, stream),
                   "all_reduce");
    case Operation::reduce:
      return check(nccl.reduce(call.in, call.out, call.count, type, op, call.root, communicator_, stream),
                   "reduce");
    case Operation::reduce_scatter:
      return check(nccl.reduce_scatter(call.in, call.out, call.count, type, op, communicator_, stream),
                   "reduce_scatter");
    case Operation::all_gather:
      return check(nccl.all_gather(call.in, call.out, call.count, type, communicator_, stream), "all_gather");
    case Operation::broadcast:
      return check(nccl.broadcast(call.in, call.out, call.count, type, call.root, communicator_, stream),
                   "broadcast");
    // A pair's group has the sender first.
    case Operation::send:
      return check(nccl.send(call.in, call.count, type, 1, communicator_, stream), "send");
    case Operation::recv:
      return check(nccl.recv(call.out, call.count, type, 0, communicator_, stream), "recv");
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return put_blocks(call, stream);
    case Operation::barrier:
      return {};
  }
  return {};
}

Result<> Nccl::put_blocks(const Call& call, cuda::Stream stream) {
  const Library& nccl = *library();
  const int type = type_number(call.type);
  const std::size_t bytes = call.bytes();
  const bool all = call.operation == Operation::all_to_all;
  const bool sends_many = all || (call.operation == Operation::scatter && call.root == rank_);
  const bool receives_many = all || (call.operation == Operation::gather && call.root == rank_);
  Result<> first;
  const auto add = [&](int status, const char* what) {
    if (first) first = check(status, what);
  };
  add(nccl.group_start(), "group");
  for (int peer = 0; peer < size_; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * bytes;
    if (sends_many) add(nccl.send(call.in + at, call.count, type, peer, communicator_, stream), "send");
    if (receives_many) add(nccl.recv(call.out + at, call.count, type, peer, communicator_, stream), "recv");
  }
  if (call.operation == Operation::gather)
    add(nccl.send(call.in, call.count, type, call.root, communicator_, stream), "send");
  if (call.operation == Operation::scatter)
    add(nccl.recv(call.out, call.count, type, call.root, communicator_, stream), "recv");
  add(nccl.group_end(), "group");
  return first;
}

}  // namespace tutti::comm
