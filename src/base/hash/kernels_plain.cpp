#include "base/hash/stripe_loop.hpp"

namespace tutti::hashing {

TakeStripes take_stripes_plain() { return take_stripes_here; }

}  // namespace tutti::hashing
