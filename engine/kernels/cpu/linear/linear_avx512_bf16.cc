#include "engine/kernels/cpu/avx512_bf16.h"
#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/linear.inl.h"

namespace castor::kernels {
namespace {

struct DotSteps : BFloat16Steps<Avx512Bf16> {
  static void MultiplyAdd(Vec x, Vec w, Vec& sum) { sum = Avx512Bf16::MultiplyAddPairs(x, w, sum); }
};

}  // namespace

const LinearKernel kLinearBFloat16Avx512Bf16 = MakeLinearKernel<Avx512Bf16, DotSteps>(
    Avx512Bf16::kBackend, &Avx512Bf16::RunsHere, &HasFastBFloat16Products);

}  // namespace castor::kernels
