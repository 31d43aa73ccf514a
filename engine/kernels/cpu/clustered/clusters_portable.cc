#include "engine/kernels/cpu/bits_portable.h"
#include "engine/kernels/cpu/clustered/centroids.inl.h"
#include "engine/kernels/cpu/clustered/hamming.inl.h"
#include "engine/kernels/cpu/clustered/hash_codes.inl.h"
#include "engine/kernels/cpu/clustered/query_space.inl.h"

namespace castor::kernels {

const ClusterKernel kClusterPortable = {
    .backend = "cpu-portable",
    .runs_here = +[] { return true; },
    .packed_planes_floats = &HashCodes<PortableBits>::PackedFloats,
    .pack_planes = &HashCodes<PortableBits>::Pack,
    .hash_scratch_floats = &HashCodes<PortableBits>::ScratchFloats,
    .hash = &HashCodes<PortableBits>::Run,
    .slice_codes = &Hamming<PortableBits>::Slice,
    .pick_centroids = &Hamming<PortableBits>::Pick,
    .assign_codes = &Hamming<PortableBits>::Assign,
    .move_codes = &Hamming<PortableBits>::Move,
    .update_centroids = &Hamming<PortableBits>::Update,
    .metric_floats = &QuerySpace<PortableBits>::MetricFloats,
    .measure_scratch_floats = &QuerySpace<PortableBits>::MeasureScratchFloats,
    .query_scratch_floats = &QuerySpace<PortableBits>::ScratchFloats,
    .measure_keys = &QuerySpace<PortableBits>::Measure,
    .draw_centroid = &QuerySpace<PortableBits>::Draw,
    .map_centroids = &QuerySpace<PortableBits>::Map,
    .assign_queries = &QuerySpace<PortableBits>::Assign,
    .add_queries = &QuerySpace<PortableBits>::Add,
    .attend_scratch_floats = &Centroids<PortableBits>::ScratchFloats,
    .attend = &Centroids<PortableBits>::Run,
};

}  // namespace castor::kernels
