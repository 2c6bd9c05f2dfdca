#include "node/rank/call_filter.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/files/files.hpp"

namespace tutti::rank {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t own_calls = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t own_calls = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t own_calls = 0;
#endif

// Numbers above belong to the calls of x32.
constexpr std::uint32_t calls_end = 0x40000000;
constexpr std::size_t setting_bytes_max = 16;

// Programs of the kernel's own, keys, modules, files by their numbers. What a mount or a namespace of users
// may do is left to the node's settings: containers that need no root are made of them.
constexpr std::uint32_t forbidden[] = {
    SYS_bpf,           SYS_add_key,          SYS_request_key, SYS_keyctl,
    SYS_kexec_load,    SYS_kexec_file_load,  SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_open_by_handle_at};

sock_filter load(std::size_t offset) {
  return {.code = BPF_LD | BPF_W | BPF_ABS, .jt = 0, .jf = 0, .k = static_cast<std::uint32_t>(offset)};
}
sock_filter answer(std::uint32_t what) { return {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = what}; }
sock_filter skip_one_unless(std::uint16_t comparison, std::uint32_t value) {
  return {.code = static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K), .jt = 0, .jf = 1, .k = value};
}

// Where the node's operator lets everybody have it.
bool may_handle_faults() {
  const auto setting = files::read_file("/proc/sys/vm/unprivileged_userfaultfd", setting_bytes_max);
  return setting && *setting && (*setting)->starts_with('1');
}

std::vector<sock_filter> program() {
  constexpr std::uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> steps{load(offsetof(seccomp_data, arch))};
  // Calls of 32 bits have other numbers, and would be a way around all of this.
  steps.push_back({.code = BPF_JMP | BPF_JEQ | BPF_K, .jt = 1, .jf = 0, .k = own_calls});
  steps.push_back(answer(refuse));
  steps.push_back(load(offsetof(seccomp_data, nr)));
  const auto refuse_if = [&](std::uint16_t comparison, std::uint32_t value) {
    steps.push_back(skip_one_unless(comparison, value));
    steps.push_back(answer(refuse));
  };
  refuse_if(BPF_JGE, calls_end);
  for (const std::uint32_t call : forbidden) refuse_if(BPF_JEQ, call);
  if (!may_handle_faults()) refuse_if(BPF_JEQ, SYS_userfaultfd);
  // The kernel's ciphers for programs: those of libraries are as fast.
  steps.push_back({.code = BPF_JMP | BPF_JEQ | BPF_K, .jt = 1, .jf = 0, .k = SYS_socket});
  steps.push_back(answer(SECCOMP_RET_ALLOW));
  steps.push_back(load(offsetof(seccomp_data, args)));
  refuse_if(BPF_JEQ, AF_ALG);
  steps.push_back(answer(SECCOMP_RET_ALLOW));
  return steps;
}

}  // namespace

bool can_forbid_calls() { return own_calls == 0 || prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0; }

int forbid_calls() {
  if (own_calls == 0 || !can_forbid_calls()) return 0;
  auto steps = program();
  const sock_fprog all{.len = static_cast<unsigned short>(steps.size()), .filter = steps.data()};
  // Without the flag kernels before 5.16 make whoever has a filter compute slower, against what none of this
  // is about; those before 4.17 do not know it.
  for (const unsigned long flags : {SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0UL}) {
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &all) == 0) return 0;
    if (errno != EINVAL) return errno;
  }
  return errno;
}

}  // namespace tutti::rank
