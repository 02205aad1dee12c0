// k_embed_fwd / k_embed_bwd: x[b,t,:] = tok_embed[ids[b,t],:] + pos_embed[t,:].
//
// Backward adds row (b,t) of dx to row ids[b,t] of d_tok_embed: many rows meet in one, which usually means
// atomics and a result that changes from run to run. Here positions are first sorted by id, stably:
//   1. k_count    each chunk of 256 positions finds, for every position, how many earlier ones of the chunk
//                 have its id (its rank), and how often each id occurs in the chunk;
//   2. k_chunks   for every id, the counts of earlier chunks; k_starts, where each id begins;
//   3. k_place    order[start + count of earlier chunks + rank] = position.
// Then k_add_runs gives each block 32 neighbours of `order`: it adds runs of equal ids in order and owns the
// runs that start in its segment; the part of a run that began earlier goes to memory, and k_add_heads lets
// the owner add those parts in order. Integers only until the sums, and the sums' order is fixed by the
// positions: deterministic. d_pos_embed sums over b in order.
// Bytes: forward rows * d * 3 elements; backward rows * d reads twice, and the gradient rows once.
#include <climits>

#include "engine/errors.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace andrea::cuda {
namespace {

constexpr int kChunk = 256;   // positions a block ranks
constexpr int kSegment = 32;  // sorted positions a block adds

template <typename T, int N>
__global__ void __launch_bounds__(256)
    k_embed_forward(T* x, const std::int32_t* ids, const T* tok, const T* pos, std::int64_t rows,
                    std::int64_t context, std::int64_t d, const std::int32_t* position) {
  const std::int64_t groups = d / N;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * groups) return;
  const std::int64_t row = i / groups;
  const std::int64_t column = (i - row * groups) * N;
  const std::int64_t t = position != nullptr ? *position : row % context;
  float a[N];
  float b[N];
  load_floats<N>(a, tok + ids[row] * d + column);
  load_floats<N>(b, pos + t * d + column);
#pragma unroll
  for (int k = 0; k < N; ++k) a[k] += b[k];
  store_floats<N>(x + row * d + column, a);
}

template <typename T>
void embed_forward(T* x, const std::int32_t* ids, const T* tok, const T* pos, std::int64_t rows,
                   std::int64_t context, std::int64_t d, const std::int32_t* position, cudaStream_t stream) {
  constexpr int kN = kVec<T>;
  if (rows == 0) return;
  if (d % kN == 0 && aligned16(x, tok, pos))
    k_embed_forward<T, kN>
        <<<blocks_for(rows * (d / kN), 256), 256, 0, stream>>>(x, ids, tok, pos, rows, context, d, position);
  else
    k_embed_forward<T, 1>
        <<<blocks_for(rows * d, 256), 256, 0, stream>>>(x, ids, tok, pos, rows, context, d, position);
  ANDREA_CUDA_LAUNCHED("k_embed_fwd");
}

// rank[p]: earlier positions of the chunk with the same id. counts[chunk][id] is zero before.
__global__ void __launch_bounds__(kChunk)
    k_count(std::int32_t* rank, std::int32_t* counts, const std::int32_t* ids, std::int32_t rows,
            std::int64_t V) {
  __shared__ alignas(16) std::int32_t chunk[kChunk];
  const std::int32_t p =
      static_cast<std::int32_t>(blockIdx.x) * kChunk + static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t mine = p < rows ? ids[p] : -1;
  chunk[threadIdx.x] = mine;
  __syncthreads();
  std::int32_t before = 0;
  std::int32_t all = 0;
  const int self = static_cast<int>(threadIdx.x);
  for (int q = 0; q < kChunk; q += 4) {
    const int4 four = *reinterpret_cast<const int4*>(chunk + q);
    const int same[4] = {four.x == mine, four.y == mine, four.z == mine, four.w == mine};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      all += same[k];
      before += q + k < self ? same[k] : 0;
    }
  }
  if (mine < 0) return;
  rank[p] = before;
  if (before == all - 1) counts[blockIdx.x * V + mine] = all;
}

// counts[chunk][id] becomes the number of positions of that id in earlier chunks, totals[id] that in all.
__global__ void __launch_bounds__(128)
    k_chunks(std::int32_t* totals, std::int32_t* counts, int chunks, std::int64_t V) {
  const std::int64_t id = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= V) return;
  constexpr int kAhead = 32;  // loads in flight
  std::int32_t before = 0;
  for (int base = 0; base < chunks; base += kAhead) {
    std::int32_t count[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) count[k] = base + k < chunks ? counts[(base + k) * V + id] : 0;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (base + k < chunks) counts[(base + k) * V + id] = before;
      before += count[k];
    }
  }
  totals[id] = before;
}

// totals[id] becomes the place of the id's first position in the sorted order: a scan by one block, 1024 ids
// at a time.
__global__ void __launch_bounds__(1024) k_starts(std::int32_t* totals, std::int64_t V) {
  __shared__ std::int32_t warps[32];
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  std::int32_t base = 0;
  for (std::int64_t first = 0; first < V; first += 1024) {
    const std::int64_t id = first + threadIdx.x;
    const std::int32_t mine = id < V ? totals[id] : 0;
    std::int32_t sum = mine;  // of the lanes up to this one
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
      const std::int32_t left = __shfl_up_sync(kFullWarp, sum, step);
      if (lane >= step) sum += left;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    std::int32_t before = 0;
    std::int32_t all = 0;
#pragma unroll
    for (unsigned w = 0; w < 32; ++w) {
      const std::int32_t x = warps[w];
      before += w < warp ? x : 0;
      all += x;
    }
    if (id < V) totals[id] = base + before + sum - mine;
    base += all;
  }
}

// order [rows]: positions sorted by id; tokens [rows]: their ids.
__global__ void __launch_bounds__(256)
    k_place(std::int32_t* order, std::int32_t* tokens, const std::int32_t* rank, const std::int32_t* counts,
            const std::int32_t* starts, const std::int32_t* ids, std::int32_t rows, std::int64_t V) {
  const std::int32_t p = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (p >= rows) return;
  const std::int32_t id = ids[p];
  const std::int32_t place = starts[id] + counts[p / kChunk * V + id] + rank[p];
  order[place] = p;
  tokens[place] = id;
}

// Block (segment, column group): adds the runs of its segment. heads[segment][d] takes the part of a run that
// began in an earlier segment.
template <typename T, int N>
__global__ void __launch_bounds__(128)
    k_add_runs(float* d_tok, float* heads, const T* dx, const std::int32_t* order,
               const std::int32_t* sorted_tokens, std::int32_t rows, std::int64_t d) {
  __shared__ std::int32_t positions[kSegment];
  __shared__ std::int32_t tokens[kSegment + 2];  // with the neighbours before and behind the segment
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * kSegment;
  const int size = min(kSegment, rows - first);
  if (threadIdx.x < size) positions[threadIdx.x] = order[first + static_cast<std::int32_t>(threadIdx.x)];
  if (threadIdx.x < kSegment + 2) {
    const std::int32_t at = first - 1 + static_cast<std::int32_t>(threadIdx.x);
    tokens[threadIdx.x] = at >= 0 && at < first + size ? sorted_tokens[at] : -1;
  }
  __syncthreads();
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (column >= d) return;
  float sum[N] = {};
  bool head = tokens[0] == tokens[1];
  constexpr int kAhead = 8;  // rows in flight
  for (int base = 0; base < size; base += kAhead) {
    float row[kAhead][N];
    float old[kAhead][N];  // the gradient so far, where a run ends
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int i = base + k;
      if (i >= size) break;
      load_floats<N>(row[k], dx + static_cast<std::int64_t>(positions[i]) * d + column);
      if (tokens[i + 2] != tokens[i + 1])
        load_floats<N>(old[k], d_tok + static_cast<std::int64_t>(tokens[i + 1]) * d + column);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int i = base + k;
      if (i >= size) break;
#pragma unroll
      for (int c = 0; c < N; ++c) sum[c] += row[k][c];
      if (tokens[i + 2] == tokens[i + 1]) continue;
      if (head) {
        store_floats<N>(heads + blockIdx.x * d + column, sum);
      } else {
#pragma unroll
        for (int c = 0; c < N; ++c) old[k][c] += sum[c];
        store_floats<N>(d_tok + static_cast<std::int64_t>(tokens[i + 1]) * d + column, old[k]);
      }
#pragma unroll
      for (int c = 0; c < N; ++c) sum[c] = 0.0F;
      head = false;
    }
  }
}

// The block of the segment where a run starts adds what later segments found of it, in order.
__global__ void __launch_bounds__(128)
    k_add_heads(float* d_tok, const float* heads, const std::int32_t* tokens, std::int32_t rows,
                std::int64_t d) {
  const std::int32_t next = (static_cast<std::int32_t>(blockIdx.x) + 1) * kSegment;
  if (next >= rows) return;
  const std::int32_t token = tokens[next - 1];
  if (tokens[next] != token) return;  // no run leaves this segment
  const std::int32_t first = next - kSegment;
  if (first > 0 && tokens[first - 1] == token) return;  // it came from an earlier one
  // The run's last segment: the lanes look at 32 segments at a time.
  std::int32_t end = next;
  for (;;) {
    const std::int64_t at = end + static_cast<std::int64_t>(threadIdx.x % 32) * kSegment;
    const unsigned same = __ballot_sync(kFullWarp, at < rows && tokens[at] == token);
    const int count = same == kFullWarp ? 32 : __ffs(static_cast<int>(~same)) - 1;
    end += count * kSegment;
    if (count < 32) break;
  }
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (column >= d) return;
  float sum = d_tok[token * d + column];
  const int segments = (end - next) / kSegment;
  const float* const part = heads + static_cast<std::int64_t>(next / kSegment) * d + column;
#pragma unroll 8
  for (int s = 0; s < segments; ++s) sum += part[s * d];
  d_tok[token * d + column] = sum;
}

template <typename T, int N>
__global__ void __launch_bounds__(256)
    k_add_positions(float* d_pos, const T* dx, std::int64_t B, std::int64_t context, std::int64_t d,
                    bool accumulate) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (at >= context * d) return;
  float sum[N] = {};
  for (std::int64_t b = 0; b < B; ++b) {
    float row[N];
    load_floats<N>(row, dx + b * context * d + at);
#pragma unroll
    for (int c = 0; c < N; ++c) sum[c] += row[c];
  }
#pragma unroll
  for (int c = 0; c < N; ++c) d_pos[at + c] = accumulate ? d_pos[at + c] + sum[c] : sum[c];
}

std::size_t padded(std::int64_t elements) {
  return (static_cast<std::size_t>(elements) * 4 + 255) / 256 * 256;
}

}  // namespace

std::size_t embed_bwd_scratch(std::int64_t rows, std::int64_t d, std::int64_t V) {
  return 3 * padded(rows) + padded(V) + padded((rows + kChunk - 1) / kChunk * V) +
         padded((rows + kSegment - 1) / kSegment * d);
}

template <typename T>
void CudaOps<T>::k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed,
                             const act_t* pos_embed, std::int64_t B, std::int64_t T_, std::int64_t d) {
  embed_forward<T>(typed(x), ids, typed(tok_embed), typed(pos_embed), B * T_, T_, d, nullptr, stream_);
}

template <typename T>
void CudaOps<T>::k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                                    const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                                    std::int64_t d) {
  embed_forward<T>(typed(x), ids, typed(tok_embed), typed(pos_embed), B, 1, d, position, stream_);
}

template <typename T>
void CudaOps<T>::k_embed_bwd(float* d_tok_embed, float* d_pos_embed, const act_t* dx, const std::int32_t* ids,
                             std::int64_t B, std::int64_t T_, std::int64_t d, std::int64_t V,
                             bool accumulate_tok, bool accumulate_pos) {
  const std::int64_t all = B * T_;
  if (all == 0) return;
  if (all > INT_MAX - kChunk)
    throw ConfigError("batch * context = " + std::to_string(all) +
                      " tokens in one micro-batch: at most 2^31");
  const auto rows = static_cast<std::int32_t>(all);
  const auto chunks = static_cast<int>(blocks_for(rows, kChunk));
  auto* const rank = static_cast<std::int32_t*>(scratch(embed_bwd_scratch(rows, d, V)));
  std::int32_t* const order = rank + padded(rows) / 4;
  std::int32_t* const tokens = order + padded(rows) / 4;
  std::int32_t* const starts = tokens + padded(rows) / 4;
  std::int32_t* const counts = starts + padded(V) / 4;
  auto* const heads = reinterpret_cast<float*>(counts + padded(chunks * V) / 4);

  if (!accumulate_tok)
    ANDREA_CUDA_CHECK(cudaMemsetAsync(d_tok_embed, 0, static_cast<std::size_t>(V * d) * 4, stream_));
  ANDREA_CUDA_CHECK(cudaMemsetAsync(counts, 0, static_cast<std::size_t>(chunks * V) * 4, stream_));
  k_count<<<static_cast<unsigned>(chunks), kChunk, 0, stream_>>>(rank, counts, ids, rows, V);
  ANDREA_CUDA_LAUNCHED("k_embed_bwd (count)");
  k_chunks<<<blocks_for(V, 128), 128, 0, stream_>>>(starts, counts, chunks, V);
  ANDREA_CUDA_LAUNCHED("k_embed_bwd (chunks)");
  k_starts<<<1, 1024, 0, stream_>>>(starts, V);
  ANDREA_CUDA_LAUNCHED("k_embed_bwd (starts)");
  k_place<<<blocks_for(rows, 256), 256, 0, stream_>>>(order, tokens, rank, counts, starts, ids, rows, V);
  ANDREA_CUDA_LAUNCHED("k_embed_bwd (place)");

  constexpr int kN = kVec<T> / 2;
  const T* const in = typed(dx);
  const unsigned segments = blocks_for(rows, kSegment);
  if (d % kN == 0 && aligned16(dx, d_tok_embed, d_pos_embed)) {
    k_add_runs<T, kN><<<dim3(segments, blocks_for(d, 128 * kN)), 128, 0, stream_>>>(d_tok_embed, heads, in,
                                                                                    order, tokens, rows, d);
    k_add_positions<T, kN>
        <<<blocks_for(T_ * d, 256 * kN), 256, 0, stream_>>>(d_pos_embed, in, B, T_, d, accumulate_pos);
  } else {
    k_add_runs<T, 1><<<dim3(segments, blocks_for(d, 128)), 128, 0, stream_>>>(d_tok_embed, heads, in, order,
                                                                              tokens, rows, d);
    k_add_positions<T, 1>
        <<<blocks_for(T_ * d, 256), 256, 0, stream_>>>(d_pos_embed, in, B, T_, d, accumulate_pos);
  }
  ANDREA_CUDA_LAUNCHED("k_embed_bwd (sums)");
  k_add_heads<<<dim3(segments, blocks_for(d, 128)), 128, 0, stream_>>>(d_tok_embed, heads, tokens, rows, d);
  ANDREA_CUDA_LAUNCHED("k_embed_bwd (heads)");
}

#define ANDREA_INSTANTIATE(T)                                                                            \
  template void CudaOps<T>::k_embed_fwd(act_t*, const std::int32_t*, const act_t*, const act_t*,         \
                                        std::int64_t, std::int64_t, std::int64_t);                       \
  template void CudaOps<T>::k_embed_decode_fwd(act_t*, const std::int32_t*, const std::int32_t*,         \
                                               const act_t*, const act_t*, std::int64_t, std::int64_t);  \
  template void CudaOps<T>::k_embed_bwd(float*, float*, const act_t*, const std::int32_t*, std::int64_t, \
                                        std::int64_t, std::int64_t, std::int64_t, bool, bool);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
