#include "engine/kernels/cpu/bits_portable.h"
#include "engine/kernels/cpu/centroids.inl.h"
#include "engine/kernels/cpu/hamming.inl.h"
#include "engine/kernels/cpu/hash_codes.inl.h"

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
    .attend_scratch_floats = &Centroids<PortableBits>::ScratchFloats,
    .attend = &Centroids<PortableBits>::Run,
};

}  // namespace castor::kernels
