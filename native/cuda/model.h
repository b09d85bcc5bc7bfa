// A Llama model or draft head on an NVIDIA GPU: specquant::Model over a packed file or a seed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/packed_file.h"
#include "core/synthetic_model.h"
#include "decode/device.h"

namespace specquant::cuda {

// Llama-3-8B, Llama-3-70B, Llama-3.2-1B or Llama-3.2-3B; throws std::invalid_argument with near
// names.
ModelShape synthetic_shape(const std::string& name);

// The residual stream and all sums are f32, the KV cache f16. The logits of a row are bitwise the
// same for any number of rows and sequences beside it. The file must outlive the model, and so must
// `target`, which a draft head needs: the model that it was trained for. Throws core::Error that
// says what to change: `out_of_memory`, `device`, `unsupported` for a precision that the file does
// not serve, `model` for a shape that the kernels cannot run, a draft head without its target or
// with another, `bad_request` for sizes below 1.
std::unique_ptr<Model> make_cuda_model(const core::PackedFile& file,
                                       std::span<const Precision> precisions, int max_batch,
                                       int max_context, const core::PackedFile* target = nullptr);
// Weights drawn from the seed on the device: 4-bit groups of 128, head and embedding 16 bits.
std::unique_ptr<Model> make_cuda_model(const core::SyntheticModel& synthetic,
                                       std::span<const Precision> precisions, int max_batch,
                                       int max_context);

// Seconds by the device's clock from the layers' kernel of a pass to the tokens that it chose, of
// all passes with logits since this was first asked of a model of `make_cuda_model` (0 then).
double device_seconds(Model& model);

struct DeviceDescription {
  std::string name, architecture;  // e.g. NVIDIA H200, sm_90
  int compiled;                    // the architecture that its kernels were compiled for, e.g. 90
  int multiprocessors;
};
// Throws core::Error of type `device` that says what is missing: driver, GPU or architecture.
DeviceDescription describe_device();

// False where an earlier failure, such as an access outside of memory, has cost this process the
// device: CUDA answers everything with that error from then on.
bool device_usable();

// Bytes a second of a kernel that reads a buffer far larger than the caches.
double measure_read_bandwidth();

}  // namespace specquant::cuda
