#include "engine/attention/clustered/hash_planes.h"

#include "engine/attention/count.h"
#include "engine/kernels/philox.h"

namespace castor::attention {

using kernels::Philox;
using kernels::PhiloxNormal;
using kernels::RandomStream;

PlaneNumbers DrawPlanes(const Clustered& parameters, int64_t head_dim) {
  PlaneNumbers planes;
  planes.normals.reserve((Count(parameters.bits) * head_dim).value());
  for (int t = 0; t < parameters.bits; ++t) {
    const auto plane = static_cast<uint32_t>(t);
    for (int64_t e = 0; e < head_dim; ++e) {
      planes.normals.push_back(PhiloxNormal(
          Philox(RandomStream::kPlane, static_cast<uint32_t>(e), plane, parameters.seed)));
    }
    planes.biases.push_back(
        parameters.hash_bias ? PhiloxNormal(Philox(RandomStream::kBias, 0, plane, parameters.seed))
                             : 0);
  }
  return planes;
}

}  // namespace castor::attention
