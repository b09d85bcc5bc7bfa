// What a forward leaves for the caller, taken from logits on the device.
#pragma once

#include "decode/device.h"

namespace specquant::cuda {

constexpr int kDeviceTopK = 32;   // the most entries of a row that the device picks
constexpr int kLogitChunks = 64;  // of a row, each searched by a block

struct LogitSum {
  float largest, total;  // log-sum = largest + log(total)
};

// The `k` best entries of each row to top[row][k] and its log-sum to log_sums[row]. `entries` has
// room for rows · kLogitChunks · k, `sums` for rows · kLogitChunks.
int launch_results(const float* logits, int rows, int vocabulary, int k, TopEntry* entries,
                   LogitSum* sums, TopEntry* top, float* log_sums, void* stream);

}  // namespace specquant::cuda
