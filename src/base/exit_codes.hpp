// What exit codes say to whoever started a program, where more than one program must know it.
#pragma once

namespace tutti {

// A rank that ends with it says that another attempt would end the same way: its job fails, however many
// restarts it has left. The number is EX_CONFIG of sysexits.h.
constexpr int exit_final = 78;
// A rank that ends with it says that what it needs was not there, such as room on a disk, and may be there
// later: each restart waits longer than the one before, however long the attempts last. EX_TEMPFAIL.
constexpr int exit_later = 75;

}  // namespace tutti
