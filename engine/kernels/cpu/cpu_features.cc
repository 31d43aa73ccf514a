#include "engine/kernels/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace castor::kernels {

#if defined(__x86_64__)

namespace {

// Asks cpuid itself: clang 16's __builtin_cpu_supports does not know this name.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

// Cached: in a virtual machine the cpuid instruction leaves the guest and takes tens of
// microseconds, more than a small attention.
bool HasAvx2() {
  static const bool has =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  return has;
}

bool HasAvx512() {
  static const bool has = HasAvx2() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

bool HasAvx512Bf16() {
  static const bool has = HasAvx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}

bool HasAvx512Vnni() {
  static const bool has = HasAvx512() && __builtin_cpu_supports("avx512vnni");
  return has;
}

bool HasFastBFloat16Products() {
  static const bool has = HasAvx512Bf16() && __builtin_cpu_is("amd");
  return has;
}

#else

bool HasAvx2() { return false; }
bool HasAvx512() { return false; }
bool HasAvx512Bf16() { return false; }
bool HasAvx512Vnni() { return false; }
bool HasFastBFloat16Products() { return false; }

#endif

}  // namespace castor::kernels
