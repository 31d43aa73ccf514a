#include "engine/kernels/cpu/bits_avx512.h"
#include "engine/kernels/cpu/clustered/centroids.inl.h"
#include "engine/kernels/cpu/clustered/hamming.inl.h"
#include "engine/kernels/cpu/clustered/hash_codes.inl.h"
#include "engine/kernels/cpu/clustered/query_space.inl.h"
#include "engine/kernels/cpu/cpu_features.h"

namespace castor::kernels {

const ClusterKernel kClusterAvx512 = {
    .backend = "cpu-avx512",
    .runs_here = &HasAvx512,
    .packed_planes_floats = &HashCodes<Avx512Bits>::PackedFloats,
    .pack_planes = &HashCodes<Avx512Bits>::Pack,
    .hash_scratch_floats = &HashCodes<Avx512Bits>::ScratchFloats,
    .hash = &HashCodes<Avx512Bits>::Run,
    .slice_codes = &Hamming<Avx512Bits>::Slice,
    .pick_centroids = &Hamming<Avx512Bits>::Pick,
    .assign_codes = &Hamming<Avx512Bits>::Assign,
    .move_codes = &Hamming<Avx512Bits>::Move,
    .update_centroids = &Hamming<Avx512Bits>::Update,
    .metric_floats = &QuerySpace<Avx512Bits>::MetricFloats,
    .measure_scratch_floats = &QuerySpace<Avx512Bits>::MeasureScratchFloats,
    .query_scratch_floats = &QuerySpace<Avx512Bits>::ScratchFloats,
    .measure_keys = &QuerySpace<Avx512Bits>::Measure,
    .draw_centroid = &QuerySpace<Avx512Bits>::Draw,
    .map_centroids = &QuerySpace<Avx512Bits>::Map,
    .assign_queries = &QuerySpace<Avx512Bits>::Assign,
    .add_queries = &QuerySpace<Avx512Bits>::Add,
    .attend_scratch_floats = &Centroids<Avx512Bits>::ScratchFloats,
    .attend = &Centroids<Avx512Bits>::Run,
};

}  // namespace castor::kernels
