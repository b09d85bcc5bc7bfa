// What a loaded model was made for, and the checks of requests against it: alike on every device.
#pragma once

#include "decode/device.h"

namespace specquant {

class ModelLimits {
 public:
  // Throws core::Error of type `bad_request` for a size below 1.
  ModelLimits(const ModelShape& shape, int max_batch, int max_context);

  // These throw std::invalid_argument that names what is out of range. A row of logits has
  // `entries` values.
  void check_forward(std::span<const Rows> batch, const Want& want, int entries) const;
  void check_slot(int slot, int length) const;
  // Of Model::compact.
  void check_path(int slot, int base, std::span<const int> path) const;

 private:
  ModelShape shape_;
  int max_batch_, max_context_;
};

}  // namespace specquant
