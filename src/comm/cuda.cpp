#include "comm/cuda.hpp"

#include <dlfcn.h>

#include <optional>

namespace tutti::comm::cuda {
namespace {

constexpr int attribute_context = 1;
constexpr int attribute_memory_type = 2;
constexpr unsigned memory_type_device = 2;

template <class F>
bool find(void* library, const char* name, F& function) {
  void* const symbol = dlsym(library, name);
  function = reinterpret_cast<F>(symbol);
  return symbol != nullptr;
}

std::optional<Driver> load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return std::nullopt;
  Driver all{};
  const bool complete =
      find(library, "cuInit", all.init) && find(library, "cuGetErrorString", all.error_string) &&
      find(library, "cuPointerGetAttribute", all.pointer_attribute) &&
      find(library, "cuCtxGetCurrent", all.context_current) &&
      find(library, "cuCtxPushCurrent_v2", all.context_push) &&
      find(library, "cuCtxPopCurrent_v2", all.context_pop) &&
      find(library, "cuCtxGetDevice", all.context_device) &&
      find(library, "cuDeviceGetUuid", all.device_uuid) &&
      find(library, "cuCtxGetStreamPriorityRange", all.stream_priorities) &&
      find(library, "cuStreamCreateWithPriority", all.stream_create) &&
      find(library, "cuStreamDestroy_v2", all.stream_destroy) &&
      find(library, "cuStreamQuery", all.stream_query) &&
      find(library, "cuStreamWaitEvent", all.stream_wait_event) &&
      find(library, "cuEventCreate", all.event_create) && find(library, "cuEventRecord", all.event_record) &&
      find(library, "cuEventDestroy_v2", all.event_destroy) && find(library, "cuMemcpyAsync", all.copy) &&
      find(library, "cuMemAlloc_v2", all.memory_allocate) && find(library, "cuMemFree_v2", all.memory_free) &&
      find(library, "cuIpcGetMemHandle", all.ipc_get) &&
      find(library, "cuIpcOpenMemHandle_v2", all.ipc_open) &&
      find(library, "cuIpcCloseMemHandle", all.ipc_close) &&
      find(library, "cuMemHostRegister_v2", all.host_register) &&
      find(library, "cuMemHostUnregister", all.host_unregister) &&
      find(library, "cuMemHostGetDevicePointer_v2", all.host_pointer) &&
      find(library, "cuModuleLoadData", all.module_load) &&
      find(library, "cuModuleGetFunction", all.module_function) &&
      find(library, "cuLaunchKernel", all.launch);
  if (!complete) return std::nullopt;
  find(library, "cuStreamBatchMemOp_v2", all.memory_steps);
  return all;
}

}  // namespace

const Driver* driver() {
  static const std::optional<Driver> loaded = load();
  return loaded ? &*loaded : nullptr;
}

Place place_of(const void* data) {
  Place place;
  const Driver* const calls = driver();
  if (calls == nullptr || data == nullptr) return place;
  unsigned type = 0;
  if (calls->pointer_attribute(&type, attribute_memory_type, pointer(data)) != 0) return place;
  if (type != memory_type_device) return place;
  place.device = calls->pointer_attribute(&place.context, attribute_context, pointer(data)) == 0;
  return place;
}

Result<> check(int status, const std::string& what) {
  if (status == 0) return {};
  const char* text = nullptr;
  driver()->error_string(status, &text);
  return failed(what + ": " + (text != nullptr ? text : "CUDA error " + std::to_string(status)));
}

ContextGuard::ContextGuard(Context context) {
  Context current = nullptr;
  driver()->context_current(&current);
  pushed_ = current != context;
  if (pushed_) driver()->context_push(context);
}

ContextGuard::~ContextGuard() {
  if (!pushed_) return;
  Context popped = nullptr;
  driver()->context_pop(&popped);
}

}  // namespace tutti::comm::cuda
