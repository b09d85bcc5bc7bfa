// Which kernels a pass takes, by the GPU and by its rows.
#pragma once

#include "cuda/step.cuh"
#include "cuda/wide.cuh"

namespace specquant::cuda {

template <class Format>
int launch_step(const StepArgs& args, int multiprocessors, void* stream) {
  if (args.rows <= kNarrowRows) {
    return launch_narrow_step<Kernels::sm_90, Format>(args, multiprocessors, stream);
  }
  if (args.rows <= 32) return launch_wide_step<Format, 4>(args, multiprocessors, stream);
  return launch_wide_step<Format, 8>(args, multiprocessors, stream);
}

template <class Format>
int launch_head(const HeadArgs& args, int multiprocessors, void* stream) {
  if (args.rows <= kNarrowRows) {
    return launch_narrow_head<Kernels::sm_90, Format>(args, multiprocessors, stream);
  }
  if (args.rows <= 32) return launch_wide_head<Format, 4>(args, multiprocessors, stream);
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
      head_launcher<Format>(kernels)};
}

}  // namespace specquant::cuda
