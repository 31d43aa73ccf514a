// The kernel of cast.h, written once over the vectors of simd.h. Each instruction set's file
// includes this and instantiates CastOver<V> with its own V, for the reason given in flash.inl.h.
#include "engine/kernels/cpu/cast/cast.h"

#include <cstdint>

#include "engine/kernels/cpu/cast/cast_combine.inl.h"
#include "engine/kernels/cpu/cast/cast_inside.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

template <typename V>
class CastOver {
 public:
  static int64_t ScratchFloats(const CastShape& shape) {
    const int64_t inside = CastInside<V>::ScratchFloats(shape);
    const int64_t combine = CastCombine<V>::ScratchFloats(shape);
    return inside > combine ? inside : combine;
  }

  static void PackSurrogates(const CastShape& shape, const void* surrogates, float* packed) {
    ForElement<V>(shape.element, [&](auto element) {
      CastCombine<V>::template PackSurrogates<decltype(element)>(shape, surrogates, packed);
    });
  }

  static void Affinities(const CastShape& shape, const CastSequence& sequence, int64_t head_begin,
                         int64_t head_end, int64_t begin, int64_t end, float* affinities,
                         int64_t stride, float* scratch) {
    ForElement<V>(shape.element, [&](auto element) {
      CastCombine<V>(shape, sequence, scratch)
          .template Affinities<decltype(element)>(head_begin, head_end, begin, end, affinities,
                                                  stride);
    });
  }

  static void Inside(const CastShape& shape, const CastSequence& sequence,
                     const CastCluster& cluster, int64_t begin, int64_t end, int64_t key_begin,
                     int64_t key_end, float* inside, float* summary, float* scratch) {
    ForElement<V>(shape.element, [&](auto element) {
      CastInside<V>(shape, sequence, cluster, scratch)
          .template Run<decltype(element)>(begin, end, key_begin, key_end, inside, summary);
    });
  }

  static void Combine(const CastShape& shape, const CastSequence& sequence, int64_t head,
                      const float* summaries, const CastOwnClusters& own, int64_t begin,
                      int64_t end, float* scratch) {
    ForElement<V>(shape.element, [&](auto element) {
      CastCombine<V>(shape, sequence, scratch)
          .template Combine<decltype(element)>(head, summaries, own, begin, end);
    });
  }

  static constexpr CastKernel Kernel(const char* backend, bool (*runs_here)()) {
    return {backend, runs_here, &ScratchFloats, &PackSurrogates, &Affinities, &Inside, &Combine};
  }
};

const CastKernel CASTOR_SIMD_NAME(kCast) = CastOver<Simd>::Kernel(Simd::kBackend, &Simd::RunsHere);

}  // namespace castor::kernels
