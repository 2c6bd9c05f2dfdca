// The CUDA driver, opened at run time: comm runs on servers with and without one from the same program. Only
// what comm needs of it. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace tutti::comm::cuda {

// The driver's own types, as its documented binary interface has them.
using Pointer = unsigned long long;
using Context = void*;
using Stream = void*;
using Event = void*;
using Module = void*;
using Function = void*;
struct IpcHandle {
  std::array<char, 64> bytes{};
};
using DeviceId = std::array<char, 16>;  // the same in every process of a host

// A step of a batch of memory operations on a stream.
struct MemoryStep {
  static constexpr int wait_value_32 = 1;  // until the number has reached the value; numbers wrap around
  static constexpr int write_value_32 = 2;

  // Without initial values: batches are made often, and hardly ever full.
  int operation;
  Pointer address;
  std::uint32_t value;
  std::uint32_t unused;
  unsigned flags;
  Pointer alias;
  std::uint64_t reserved;
};
static_assert(sizeof(MemoryStep) == 48);

struct Driver {
  int (*init)(unsigned flags);
  int (*error_string)(int status, const char** text);
  int (*pointer_attribute)(void* data, int attribute, Pointer pointer);
  int (*context_current)(Context*);
  int (*context_push)(Context);
  int (*context_pop)(Context*);
  int (*context_device)(int* device);
  int (*device_uuid)(DeviceId* id, int device);
  int (*stream_priorities)(int* least, int* greatest);
  int (*stream_create)(Stream*, unsigned flags, int priority);
  int (*stream_destroy)(Stream);
  int (*stream_query)(Stream);
  int (*stream_wait_event)(Stream, Event, unsigned flags);
  int (*event_create)(Event*, unsigned flags);
  int (*event_record)(Event, Stream);
  int (*event_destroy)(Event);
  int (*copy)(Pointer to, Pointer from, std::size_t bytes, Stream);
  int (*memory_steps)(Stream, unsigned count, MemoryStep* steps, unsigned flags);  // null in old drivers
  int (*memory_allocate)(Pointer*, std::size_t bytes);
  int (*memory_free)(Pointer);
  int (*ipc_get)(IpcHandle*, Pointer);
  int (*ipc_open)(Pointer*, IpcHandle, unsigned flags);
  int (*ipc_close)(Pointer);
  int (*host_register)(void* data, std::size_t bytes, unsigned flags);
  int (*host_unregister)(void* data);
  int (*host_pointer)(Pointer*, void* data, unsigned flags);
  int (*module_load)(Module*, const void* image);
  int (*module_function)(Function*, Module, const char* name);
  int (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** parameters,
                void** extra);
};

// Null on a server without one.
const Driver* driver();

// Memory on a device, and where it belongs.
struct Place {
  bool device = false;
  Context context = nullptr;
};
Place place_of(const void* data);

// "what: the driver's words", for a status other than 0.
Result<> check(int status, const std::string& what);

// Makes a context the thread's own for a while.
class ContextGuard {
 public:
  explicit ContextGuard(Context context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  bool pushed_;  // not if it was the thread's own already
};

// The driver speaks of addresses as numbers.
inline Pointer pointer(const void* data) { return reinterpret_cast<Pointer>(data); }
inline std::byte* memory(Pointer pointer) {
  return reinterpret_cast<std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace tutti::comm::cuda
