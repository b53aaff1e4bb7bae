// The kinds of kernel behind LaunchProjection, for float16 and bfloat16.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_KERNELS_H_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_KERNELS_H_

#include <cuda_runtime.h>

#include "backend/kernels/element_type.h"
#include "backend/kernels/launch.h"
#include "backend/kernels/projection.h"

namespace seq2seq::kernels {

// Up to 64 rows: bound by latency and by the weights' bytes.
cudaError_t LaunchFewRowsProjection(ElementType type, const ProjectionArgs& args,
                                    const LaunchContext& context);

// More rows, in blocks of up to 64.
cudaError_t LaunchWideProjection(ElementType type, const ProjectionArgs& args,
                                 const LaunchContext& context);

// More rows, with the matrix products of warpgroups, on devices that IsHopper() is true of.
cudaError_t LaunchWarpgroupProjection(ElementType type, const ProjectionArgs& args,
                                      const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_KERNELS_H_
