// A process that computes for another ends with it, also while it loads or is in the middle of a step that
// never ends: nobody is left to whom it could be of use, and what it holds of a device is wanted. Any thread.
#pragma once

namespace tutti::serve::remote {

// From now on, when the other side of this socket has gone. The socket stays the caller's.
void end_with_other_side(int descriptor);

}  // namespace tutti::serve::remote
