#if defined(__x86_64__)

#include "base/hash/stripe_loop.hpp"

namespace tutti::hashing {

TakeStripes take_stripes_avx2() { return take_stripes_here; }

}  // namespace tutti::hashing

#endif
