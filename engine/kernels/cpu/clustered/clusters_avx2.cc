#include "engine/kernels/cpu/bits_avx2.h"
#include "engine/kernels/cpu/clustered/centroids.inl.h"
#include "engine/kernels/cpu/clustered/hamming.inl.h"
#include "engine/kernels/cpu/clustered/hash_codes.inl.h"
#include "engine/kernels/cpu/clustered/query_space.inl.h"
#include "engine/kernels/cpu/cpu_features.h"

namespace castor::kernels {

const ClusterKernel kClusterAvx2 = {
    .backend = "cpu-avx2",
    .runs_here = &HasAvx2,
    .packed_planes_floats = &HashCodes<Avx2Bits>::PackedFloats,
    .pack_planes = &HashCodes<Avx2Bits>::Pack,
    .hash_scratch_floats = &HashCodes<Avx2Bits>::ScratchFloats,
    .hash = &HashCodes<Avx2Bits>::Run,
    .slice_codes = &Hamming<Avx2Bits>::Slice,
    .pick_centroids = &Hamming<Avx2Bits>::Pick,
    .assign_codes = &Hamming<Avx2Bits>::Assign,
    .move_codes = &Hamming<Avx2Bits>::Move,
    .update_centroids = &Hamming<Avx2Bits>::Update,
    .metric_floats = &QuerySpace<Avx2Bits>::MetricFloats,
    .measure_scratch_floats = &QuerySpace<Avx2Bits>::MeasureScratchFloats,
    .query_scratch_floats = &QuerySpace<Avx2Bits>::ScratchFloats,
    .measure_keys = &QuerySpace<Avx2Bits>::Measure,
    .draw_centroid = &QuerySpace<Avx2Bits>::Draw,
    .map_centroids = &QuerySpace<Avx2Bits>::Map,
    .assign_queries = &QuerySpace<Avx2Bits>::Assign,
    .add_queries = &QuerySpace<Avx2Bits>::Add,
    .attend_scratch_floats = &Centroids<Avx2Bits>::ScratchFloats,
    .attend = &Centroids<Avx2Bits>::Run,
};

}  // namespace castor::kernels
