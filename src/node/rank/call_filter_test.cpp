#include "node/rank/call_filter.hpp"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include <gtest/gtest.h>

#include "node/rank/child_test.hpp"

namespace tutti::rank {
namespace {

// In a child of its own, behind the filter.
bool holds_behind_it(const std::function<bool()>& holds) {
  return holds_in_a_child(
      [&] { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && forbid_calls() == 0 && holds(); });
}

bool is_refused(long number, long first = 0, long second = 0, long third = 0) {
  errno = 0;
  return syscall(number, first, second, third, 0, 0) == -1 && errno == EPERM;
}

class CallFilter : public testing::Test {
 protected:
  void SetUp() override {
#if !defined(__x86_64__) && !defined(__aarch64__)
    GTEST_SKIP() << "of this machine nothing is promised";
#endif
    if (!can_forbid_calls()) GTEST_SKIP() << "this kernel filters no calls";
  }
};

TEST_F(CallFilter, WhatNoTrainingNeedsIsRefused) {
  for (const long number : {SYS_bpf, SYS_add_key, SYS_keyctl, SYS_request_key, SYS_kexec_load,
                            SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_open_by_handle_at})
    EXPECT_TRUE(holds_behind_it([&] { return is_refused(number); })) << number;
  EXPECT_TRUE(holds_behind_it([] { return socket(AF_ALG, SOCK_SEQPACKET, 0) < 0 && errno == EPERM; }));
}

TEST_F(CallFilter, WhatProgramsNeedGoesOn) {
  EXPECT_TRUE(holds_behind_it([] {
    bool there = true;
    for (const int family : {AF_UNIX, AF_INET, AF_NETLINK})
      there = socket(family, SOCK_DGRAM, 0) >= 0 && there;
    int pair[2] = {};
    return there && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
  }));
  EXPECT_TRUE(holds_behind_it([] {
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    return ran;
  }));
  // A debugger, and a program that is started.
  EXPECT_TRUE(holds_behind_it([] { return ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }));
  EXPECT_TRUE(holds_behind_it([] {
    execlp("sh", "sh", "-c", "exec true", nullptr);
    return false;
  }));
}

TEST_F(CallFilter, WhatIsStartedHasItToo) {
  EXPECT_TRUE(holds_behind_it([] {
    return holds_in_a_child([] { return is_refused(SYS_keyctl) && prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2; });
  }));
}

#if defined(__x86_64__)
// getpid() by the numbers of 32 bits.
long asked_in_32_bits() {
  long result = 20;
  asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
  return result;
}

TEST_F(CallFilter, CallsOf32BitsAreNoWayAround) {
  if (!holds_in_a_child([] { return asked_in_32_bits() == getpid(); }))
    GTEST_SKIP() << "this kernel knows no calls of 32 bits";
  EXPECT_TRUE(holds_behind_it([] { return asked_in_32_bits() == -EPERM; }));
}
#endif

}  // namespace
}  // namespace tutti::rank
