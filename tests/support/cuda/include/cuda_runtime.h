// The part of CUDA C++ that our kernels use, on top of the emulator; see ../emulator.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"
#include "tests/support/cuda/emulator.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// Set for the running thread.
inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;
inline constexpr int warpSize = 32;

// ---- launches
// ------------------------------------------------------------------------------------

namespace castor::cuda_emulator {

inline constexpr size_t kSharedWithoutAsking = 48 * 1024;
inline constexpr size_t kMaxShared = 227 * 1024;

// How much dynamic shared memory each kernel asked for.
inline std::map<const void*, size_t>& SharedLimits() {
  static std::map<const void*, size_t> limits;
  return limits;
}

inline cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel,
                               const dim3& cluster) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const size_t threads = size_t{block.x} * block.y * block.z;
  const bool shape = grid.x > 0 && grid.x < (1u << 31) && grid.y > 0 && grid.y <= 65535 &&
                     grid.z > 0 && grid.z <= 65535 && threads > 0 && threads <= 1024 &&
                     block.z <= 64 && cluster.x * cluster.y * cluster.z <= 8 &&
                     grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0;
  const auto asked = SharedLimits().find(kernel);
  const size_t limit = asked == SharedLimits().end() ? kSharedWithoutAsking : asked->second;
  if (!shape || config.dynamicSmemBytes > limit) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

}  // namespace castor::cuda_emulator

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  using namespace castor::cuda_emulator;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > kMaxShared) return cudaErrorInvalidValue;
  SharedLimits()[reinterpret_cast<const void*>(kernel)] =
      std::max<size_t>(kSharedWithoutAsking, value);
  return cudaSuccess;
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  using namespace castor::cuda_emulator;
  dim3 cluster;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      cluster = config->attrs[i].val.clusterDim;
    }
  }
  const cudaError_t error = CheckLaunch(*config, reinterpret_cast<const void*>(kernel), cluster);
  if (error != cudaSuccess) return error;
  struct Context {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } context{kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
  RunGrid(
      {config->gridDim, config->blockDim, cluster, config->dynamicSmemBytes},
      [](void* c) {
        auto* const call = static_cast<Context*>(c);
        std::apply(call->kernel, call->arguments);
      },
      &context);
  return cudaSuccess;
}

inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

// ---- barriers
// ------------------------------------------------------------------------------------

inline void __syncthreads() { castor::cuda_emulator::SyncBlock(false); }
inline int __syncthreads_or(int predicate) {
  return castor::cuda_emulator::SyncBlock(predicate != 0).count != 0;
}
inline int __syncthreads_and(int predicate) {
  const auto votes = castor::cuda_emulator::SyncBlock(predicate != 0);
  return votes.count == votes.threads;
}
inline int __syncthreads_count(int predicate) {
  return castor::cuda_emulator::SyncBlock(predicate != 0).count;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- warp operations
// ------------------------------------------------------------------------------

namespace castor::cuda_emulator {

template <typename In, typename Out = In>
struct Lane {
  In in{};
  int from = 0;  // the lane whose `in` becomes `out`
  Out out{};
};

template <typename T>
T Shuffle(uint32_t mask, T value, int from) {
  Lane<T> lane{value, from, {}};
  WarpOperation(
      mask,
      [](uint32_t lanes_in, void* const* lanes) {
        for (int i = 0; i < 32; ++i) {
          if ((lanes_in >> i & 1) == 0) continue;
          auto* const mine = static_cast<Lane<T>*>(lanes[i]);
          if ((lanes_in >> mine->from & 1) == 0) Fail("a shuffle reads a lane outside its mask");
          mine->out = static_cast<Lane<T>*>(lanes[mine->from])->in;
        }
      },
      &lane);
  return lane.out;
}

// Combines `value` over all lanes of the mask, in lane order.
template <typename T, typename Combine>
T Reduce(uint32_t mask, T value, Combine) {
  Lane<T> lane{value, 0, {}};
  WarpOperation(
      mask,
      [](uint32_t lanes_in, void* const* lanes) {
        const int first = std::countr_zero(lanes_in);
        T all = static_cast<Lane<T>*>(lanes[first])->in;
        for (int i = first + 1; i < 32; ++i) {
          if (lanes_in >> i & 1) all = Combine{}(all, static_cast<Lane<T>*>(lanes[i])->in);
        }
        for (int i = first; i < 32; ++i) {
          if (lanes_in >> i & 1) static_cast<Lane<T>*>(lanes[i])->out = all;
        }
      },
      &lane);
  return lane.out;
}

struct Add {
  unsigned operator()(unsigned a, unsigned b) const { return a + b; }
};
struct Or {
  unsigned operator()(unsigned a, unsigned b) const { return a | b; }
};
struct And {
  unsigned operator()(unsigned a, unsigned b) const { return a & b; }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// The first lane, and the one past the last, of the group of `width` lanes that this lane is in.
inline int GroupBegin(int width) { return static_cast<int>(LaneIndex()) / width * width; }

}  // namespace castor::cuda_emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  namespace e = castor::cuda_emulator;
  return e::Shuffle(mask, value, e::GroupBegin(width) + (lane & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  namespace e = castor::cuda_emulator;
  const int lane = static_cast<int>(e::LaneIndex());
  const int from = lane ^ bits;
  return e::Shuffle(mask, value, from < e::GroupBegin(width) + width ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  namespace e = castor::cuda_emulator;
  const int lane = static_cast<int>(e::LaneIndex());
  const int from = lane - static_cast<int>(delta);
  return e::Shuffle(mask, value, from >= e::GroupBegin(width) ? from : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  namespace e = castor::cuda_emulator;
  const int lane = static_cast<int>(e::LaneIndex());
  const int from = lane + static_cast<int>(delta);
  return e::Shuffle(mask, value, from < e::GroupBegin(width) + width ? from : lane);
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  int nothing = 0;
  castor::cuda_emulator::WarpOperation(
      mask, [](uint32_t, void* const*) {}, &nothing);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  namespace e = castor::cuda_emulator;
  return e::Reduce(mask, predicate != 0 ? 1u << e::LaneIndex() : 0u, e::Or{});
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  namespace e = castor::cuda_emulator;
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && e::Shuffle(mask, value, lane) == value) same |= 1u << lane;
  }
  return same;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return castor::cuda_emulator::Reduce(mask, value, castor::cuda_emulator::Add{});
}
inline int __reduce_add_sync(unsigned mask, int value) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return castor::cuda_emulator::Reduce(mask, value, castor::cuda_emulator::Or{});
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
  return castor::cuda_emulator::Reduce(mask, value, castor::cuda_emulator::And{});
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value) {
  return castor::cuda_emulator::Reduce(mask, value, castor::cuda_emulator::Min{});
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value) {
  return castor::cuda_emulator::Reduce(mask, value, castor::cuda_emulator::Max{});
}

// ---- atomics, on integers only: results must not depend on an order
// --------------------------------

namespace castor::cuda_emulator {

template <typename T, typename Change>
T Exchange(T* at, Change change) {
  static_assert(std::is_integral_v<T>);
  const T old = *at;
  *at = change(old);
  return old;
}

// Sums wrap, for signed types too.
template <typename T>
T Wrapped(T a, std::type_identity_t<T> b) {
  using Unsigned = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
}

}  // namespace castor::cuda_emulator

template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(
      at, [&](T old) { return castor::cuda_emulator::Wrapped(old, value); });
}
template <typename T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(at, [&](T old) { return old < value ? old : value; });
}
template <typename T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(at, [&](T old) { return old > value ? old : value; });
}
template <typename T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(at, [&](T old) { return static_cast<T>(old | value); });
}
template <typename T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(at, [&](T old) { return static_cast<T>(old & value); });
}
template <typename T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(at, [&](T) { return value; });
}
template <typename T>
T atomicCAS(T* at, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(at, [&](T old) { return old == compare ? value : old; });
}

// ---- arithmetic
// ----------------------------------------------------------------------------------

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

template <typename T>
T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}
template <typename T>
T __ldg(const T* at) {
  return *at;
}
using std::isfinite;
using std::isinf;
using std::isnan;
