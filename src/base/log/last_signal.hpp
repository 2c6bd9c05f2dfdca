// What a program that serves says when a signal ends it that it does not expect: a fault of its own, or one
// that somebody has sent. Without it such a program would be gone, and nobody knew why. Main thread.
#pragma once

#include <string>

namespace tutti::log {

// From now on one line goes to stderr, and the signal ends the program as it would have. `part` is who says
// it. What others have taken or ignore stays theirs.
void tell_last_signal(const std::string& part);
// As it was before.
void forget_last_signal();

}  // namespace tutti::log
