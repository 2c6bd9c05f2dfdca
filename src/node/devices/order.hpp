// Keeps the index of each device while the devices of a node change: ranks hold devices by index, so one that
// falls silent must not shift those after it. A pure function: any thread.
#pragma once

#include <vector>

#include "control/cluster/model.hpp"

namespace tutti::devices {

// `found` in the order of `known`: a device is where it was, one that is gone or does not answer is silent, a
// new one comes last.
std::vector<cluster::Device> keep_order(const std::vector<cluster::Device>& known,
                                        const std::vector<cluster::Device>& found);

}  // namespace tutti::devices
