// One vector of floats of the widest kind of an instruction path, and the few operations the kernels need.
//
// +, -, * and / are the compiler's own on vector types, one rounding each; fma() is one rounding where the
// path has it. load and store with a count touch only that many elements; the rest read as zero.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace andrea::ANDREA_CPU_PATH {

#if defined(__AVX512F__)

constexpr std::int64_t kLanes = 16;
using Vec = __m512;

inline __mmask16 first_lanes(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec load(const float* p, std::int64_t count) { return _mm512_maskz_loadu_ps(first_lanes(count), p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline void store(float* p, Vec v, std::int64_t count) { _mm512_mask_storeu_ps(p, first_lanes(count), v); }
inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec sqrt(Vec a) { return _mm512_sqrt_ps(a); }
/// The second operand where either is NaN.
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
/// v in the first `count` lanes, `rest` in the others.
inline Vec keep(Vec v, std::int64_t count, Vec rest) {
  return _mm512_mask_blend_ps(first_lanes(count), rest, v);
}
/// yes where a < b, else no.
inline Vec if_less(Vec a, Vec b, Vec yes, Vec no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
/// v * 2^n, n the integer in the low bits of `shifted` (see exp()); both finite and normal.
inline Vec scale_by_power(Vec v, Vec shifted) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(v), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

#elif defined(__AVX2__)

constexpr std::int64_t kLanes = 8;
using Vec = __m256;

inline __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec load(const float* p, std::int64_t count) { return _mm256_maskload_ps(p, first_lanes(count)); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline void store(float* p, Vec v, std::int64_t count) { _mm256_maskstore_ps(p, first_lanes(count), v); }
inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec sqrt(Vec a) { return _mm256_sqrt_ps(a); }
inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec keep(Vec v, std::int64_t count, Vec rest) {
  return _mm256_blendv_ps(rest, v, _mm256_castsi256_ps(first_lanes(count)));
}
inline Vec if_less(Vec a, Vec b, Vec yes, Vec no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
inline Vec scale_by_power(Vec v, Vec shifted) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(v), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}

#else

// Four lanes in the compiler's own vectors: SSE2 on x86-64, NEON on aarch64.
constexpr std::int64_t kLanes = 4;
using Vec = float __attribute__((vector_size(16)));
using Bits = std::uint32_t __attribute__((vector_size(16)));

inline Vec load(const float* p, std::int64_t count) {
  Vec v{};
  std::memcpy(&v, p, static_cast<std::size_t>(count) * sizeof(float));
  return v;
}
inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void store(float* p, Vec v, std::int64_t count) {
  std::memcpy(p, &v, static_cast<std::size_t>(count) * sizeof(float));
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
inline Vec splat(float x) { return Vec{x, x, x, x}; }
#if defined(__FP_FAST_FMAF)
inline Vec fma(Vec a, Vec b, Vec c) {
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
#else
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
#endif
inline Vec sqrt(Vec a) {
  for (int i = 0; i < kLanes; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
}
// Lane by lane from the bits of a comparison.
inline Vec select(Bits mask, Vec yes, Vec no) {
  Bits y, n;
  std::memcpy(&y, &yes, sizeof(y));
  std::memcpy(&n, &no, sizeof(n));
  const Bits chosen = (mask & y) | (~mask & n);
  Vec v;
  std::memcpy(&v, &chosen, sizeof(v));
  return v;
}
inline Vec if_less(Vec a, Vec b, Vec yes, Vec no) {
  const auto less = a < b;
  Bits mask;
  std::memcpy(&mask, &less, sizeof(mask));
  return select(mask, yes, no);
}
inline Vec min(Vec a, Vec b) { return if_less(a, b, a, b); }
inline Vec max(Vec a, Vec b) { return if_less(b, a, a, b); }
inline Vec keep(Vec v, std::int64_t count, Vec rest) {
  for (std::int64_t i = count; i < kLanes; ++i) v[i] = rest[i];
  return v;
}
inline Vec scale_by_power(Vec v, Vec shifted) {
  Bits bits, power;
  std::memcpy(&bits, &v, sizeof(bits));
  std::memcpy(&power, &shifted, sizeof(power));
  bits += power << 23;
  std::memcpy(&v, &bits, sizeof(v));
  return v;
}

#endif

inline Vec zero() { return splat(0.0f); }

#if defined(__AVX2__)

// Halves folded onto halves: lanes 0..3 onto 4..7, then by two, then by one. A fixed tree.
inline float sum_eight(__m256 v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
inline float largest_of_eight(__m256 v) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}
#if defined(__AVX512F__)
inline float sum(Vec v) {
  return sum_eight(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
inline float largest(Vec v) {
  return largest_of_eight(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
#else
inline float sum(Vec v) { return sum_eight(v); }
inline float largest(Vec v) { return largest_of_eight(v); }
#endif

#else

/// Sum of the lanes, halves folded onto halves: a fixed tree.
inline float sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/// Largest lane. NaN may be lost here: callers who must see it look at a sum of exponentials.
inline float largest(Vec v) {
  float top = v[0];
  for (int i = 1; i < kLanes; ++i)
    if (v[i] > top) top = v[i];
  return top;
}

#endif

/// Calls body(i, count) for i = 0, kLanes, ... over [0, n); count is kLanes but in the last call.
template <class Body>
inline void for_each_vec(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i);
  if (i < n) body(i, n - i);
}

/// Sum over [0, n) of term(i) or term(i, count); a term with a count must be zero in the other lanes.
template <class Term>
inline float sum_over(std::int64_t n, const Term& term) {
  Vec a = zero(), b = zero(), c = zero(), d = zero();
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a += term(i);
    b += term(i + kLanes);
    c += term(i + 2 * kLanes);
    d += term(i + 3 * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) a += term(i);
  if (i < n) b += term(i, n - i);
  return sum((a + b) + (c + d));
}

}  // namespace andrea::ANDREA_CPU_PATH
