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

// ---- launches -----------------------------------------------------------------------------------

namespace castor::cuda_emulator {

inline constexpr size_t kSharedWithoutAsking = 48 * 1024;
inline constexpr size_t kMaxShared = 227 * 1024;

// The dynamic shared memory that each kernel asked for.
inline std::map<const void*, size_t>& SharedLimits() {
  static std::map<const void*, size_t> limits;
  return limits;
}

inline cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const size_t threads = size_t{block.x} * block.y * block.z;
  const bool shape = grid.x > 0 && grid.x < (1u << 31) && grid.y > 0 && grid.y <= 65535 &&
                     grid.z > 0 && grid.z <= 65535 && threads > 0 && threads <= 1024 &&
                     block.z <= 64;
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
  const cudaError_t error = CheckLaunch(*config, reinterpret_cast<const void*>(kernel));
  if (error != cudaSuccess) return error;
  struct Context {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } context{kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
  RunGrid(
      {config->gridDim, config->blockDim, config->dynamicSmemBytes},
      [](void* c) {
        auto* const call = static_cast<Context*>(c);
        std::apply(call->kernel, call->arguments);
      },
      &context);
  return cudaSuccess;
}

// ---- barriers -----------------------------------------------------------------------------------

inline void __syncthreads() { castor::cuda_emulator::SyncBlock(); }

// ---- warp operations ----------------------------------------------------------------------------

namespace castor::cuda_emulator {

template <typename T>
struct Lane {
  T in{};
  int from = 0;  // the lane whose `in` becomes `out`
  T out{};
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
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

}  // namespace castor::cuda_emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return castor::cuda_emulator::Shuffle(mask, value, lane & 31);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return castor::cuda_emulator::Shuffle(
      mask, value, static_cast<int>(castor::cuda_emulator::LaneIndex()) ^ bits);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
  const unsigned lane = castor::cuda_emulator::LaneIndex();
  return castor::cuda_emulator::Shuffle(mask, value,
                                        static_cast<int>(lane >= delta ? lane - delta : lane));
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
template <typename T>
T __reduce_min_sync(unsigned mask, T value) {
  return castor::cuda_emulator::Reduce(mask, value, castor::cuda_emulator::Min{});
}

// ---- atomics, on integers only: results must not depend on an order -----------------------------

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
T atomicOr(T* at, std::type_identity_t<T> value) {
  return castor::cuda_emulator::Exchange(at, [&](T old) { return static_cast<T>(old | value); });
}

// ---- arithmetic ---------------------------------------------------------------------------------

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }

template <typename T>
T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}
using std::isfinite;
using std::isnan;
