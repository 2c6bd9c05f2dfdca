// What exit codes say to whoever started a program, where more than one program must know it.
#pragma once

namespace tutti {

// A rank that ends with it says that another attempt would end the same way: its job fails, however many
// restarts it has left. The number is EX_CONFIG of sysexits.h.
constexpr int exit_final = 78;

}  // namespace tutti
