// What a rank that runs as its user may not ask of the kernel, whoever else may: calls that no training
// needs, and by which users have become root before (a seccomp filter). It cannot be taken off, and what the
// rank starts has it too.
#pragma once

namespace tutti::rank {

// Of this process, from now on. After no_new_privs. 0, or an errno; that it cannot be had is none.
int forbid_calls();

// Whether that can be had. Of machines other than x86-64 and ARM64 nothing of it is promised.
bool can_forbid_calls();

}  // namespace tutti::rank
