// The weights of a model on the device, by precision, and what they prove.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/packed_file.h"
#include "core/synthetic_model.h"
#include "cuda/weights.h"
#include "decode/device.h"

namespace specquant::cuda {

// The weights that one precision reads, and the kernels that read them.
struct WeightSet {
  std::vector<const DeviceMatrix*> layers;  // [layer][kind]
  const DeviceMatrix* embedding = nullptr;
  const DeviceMatrix* head = nullptr;
  DeviceBuffer table;  // of the layers' addresses
  Launchers layer_launchers, head_launchers;
};

class ModelWeights {
 public:
  // From a packed file, or, where that is null, drawn from the seed. Throws core::Error as
  // make_cuda_model.
  ModelWeights(const core::PackedFile* file, const core::SyntheticModel& synthetic);

  void add(Precision precision);
  const WeightSet& set(Precision precision) const;           // throws std::invalid_argument
  const float* norms() const { return norms_.as<float>(); }  // as StepArgs

  std::map<std::string, int64_t> bytes_by_kind() const;
  Proof proof(Precision precision) const;

 private:
  void place_norms();
  const DeviceMatrix& place(const std::string& tensor, int rows, int columns, WeightFormat format);
  WeightFormat layer_format(Precision precision) const;
  WeightFormat vocabulary_format(Precision precision, const std::string& tensor) const;

  const core::PackedFile* file_;
  const ModelShape shape_;
  const uint64_t seed_;
  std::map<std::string, DeviceMatrix> matrices_;  // by tensor and format
  DeviceBuffer norms_;
  std::map<Precision, WeightSet> sets_;
};

}  // namespace specquant::cuda
