// The time of one forward by its number of rows: T(n), the basis of the cost model.
#pragma once

#include <map>
#include <vector>

#include "decode/device.h"
#include "worker/requests.h"

namespace specquant::worker {

// Seconds of each repeat by number of rows, after `context` tokens in the cache of every sequence.
// The numbers take turns, in an order drawn anew for each repeat, after a round of warming up.
std::map<int, std::vector<double>> forward_times(Model& model, const ForwardRequest& request);

}  // namespace specquant::worker
