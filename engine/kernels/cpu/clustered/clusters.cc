#include "engine/kernels/cpu/clustered/centroids.inl.h"
#include "engine/kernels/cpu/clustered/hamming.inl.h"
#include "engine/kernels/cpu/clustered/hash_codes.inl.h"
#include "engine/kernels/cpu/clustered/query_space.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

const ClusterKernel CASTOR_SIMD_NAME(kCluster) = {
    .backend = Simd::kBackend,
    .runs_here = &Simd::RunsHere,
    .packed_planes_floats = &HashCodes<Simd>::PackedFloats,
    .pack_planes = &HashCodes<Simd>::Pack,
    .hash_scratch_floats = &HashCodes<Simd>::ScratchFloats,
    .hash = &HashCodes<Simd>::Run,
    .slice_codes = &Hamming<Simd>::Slice,
    .pick_centroids = &Hamming<Simd>::Pick,
    .assign_codes = &Hamming<Simd>::Assign,
    .move_codes = &Hamming<Simd>::Move,
    .update_centroids = &Hamming<Simd>::Update,
    .metric_floats = &QuerySpace<Simd>::MetricFloats,
    .measure_scratch_floats = &QuerySpace<Simd>::MeasureScratchFloats,
    .query_scratch_floats = &QuerySpace<Simd>::ScratchFloats,
    .measure_keys = &QuerySpace<Simd>::Measure,
    .draw_centroid = &QuerySpace<Simd>::Draw,
    .map_centroids = &QuerySpace<Simd>::Map,
    .assign_queries = &QuerySpace<Simd>::Assign,
    .add_queries = &QuerySpace<Simd>::Add,
    .attend_scratch_floats = &Centroids<Simd>::ScratchFloats,
    .attend = &Centroids<Simd>::Run,
};

}  // namespace castor::kernels
