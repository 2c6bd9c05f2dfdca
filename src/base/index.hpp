// A number of ours, which may be signed or narrow, as the index of a container.
#pragma once

#include <concepts>
#include <cstddef>

namespace tutti {

constexpr std::size_t at(std::integral auto index) { return static_cast<std::size_t>(index); }

}  // namespace tutti
