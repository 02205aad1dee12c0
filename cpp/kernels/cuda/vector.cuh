// Storage types and 128-bit accesses.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace andrea::cuda {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// N neighbours in memory, moved as one access of N * sizeof(T) bytes (at most 16).
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T v[N];
};

/// Elements of T in a 128-bit access.
template <typename T>
constexpr int kVec = 16 / static_cast<int>(sizeof(T));

template <int N, typename T>
__device__ __forceinline__ void load_floats(float (&out)[N], const T* from) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = to_float(pack.v[i]);
}

template <int N, typename T>
__device__ __forceinline__ void store_floats(T* to, const float (&in)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.v[i] = from_float<T>(in[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// True if all pointers allow 128-bit accesses.
template <typename... P>
inline bool aligned16(const P*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) | ... | std::uintptr_t{0}) & 15U) == 0;
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace andrea::cuda
