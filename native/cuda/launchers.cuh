// Which kernels a pass takes, by the GPU and by its rows.
#pragma once

#include "cuda/step.cuh"
#include "cuda/wide.cuh"

namespace specquant::cuda {

// The most rows of a narrow pass. 16-bit activations of more than eight, beside weights that are
// unpacked, need more registers than there are, so that wide passes are faster.
template <class Format>
constexpr int narrow_rows(Kernels kernels) {
  const bool unpacks = Format::kAct == Act::f16 && Format::kStageColumns == 128;
  return kernels == Kernels::sm_90 && unpacks ? 8 : kNarrowRows;
}

template <class Format>
int launch_step(const StepArgs& args, int multiprocessors, void* stream) {
  if (args.wide_rows == 0) {
    return launch_narrow_step<Kernels::sm_90, Format>(args, multiprocessors, stream);
  }
  if (args.wide_rows == 32) return launch_wide_step<Format, 4>(args, multiprocessors, stream);
  return launch_wide_step<Format, 8>(args, multiprocessors, stream);
}

template <class Format>
int launch_head(const HeadArgs& args, int multiprocessors, void* stream) {
  if (args.wide_rows == 0) {
    return launch_narrow_head<Kernels::sm_90, Format>(args, multiprocessors, stream);
  }
  if (args.wide_rows == 32) return launch_wide_head<Format, 4>(args, multiprocessors, stream);
  return launch_wide_head<Format, 8>(args, multiprocessors, stream);
}

template <class Format>
HeadLaunch head_launcher(Kernels kernels) {
  return kernels == Kernels::sm_90 ? launch_head<Format>
                                   : launch_narrow_head<Kernels::sm_80, Format>;
}

template <class Format>
Launchers launchers(Kernels kernels) {
  return {
      kernels == Kernels::sm_90 ? launch_step<Format> : launch_narrow_step<Kernels::sm_80, Format>,
      head_launcher<Format>(kernels), narrow_rows<Format>(kernels)};
}

}  // namespace specquant::cuda
