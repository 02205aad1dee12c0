// x[b,t,:] = tok_embed[ids[b,t],:] + pos_embed[t,:], and its gradients.
//
// Backward: the positions are ordered by id with a stable counting sort, so that each row of d_tok_embed is
// the work of one thread and adds its positions in their order: the same bits for any number of threads.
// Costs: reads and writes 2-3 rows*d floats; the sort is rows + V integers of scratch.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"

namespace andrea::ANDREA_CPU_PATH {
namespace {

constexpr std::int64_t kRowsAPiece = 32;

void add_rows(float* out, const float* a, const float* b, std::int64_t d) {
  for (std::int64_t c = 0; c < d; ++c) out[c] = a[c] + b[c];
}

void add_to(float* out, const float* a, std::int64_t d) {
  for (std::int64_t c = 0; c < d; ++c) out[c] += a[c];
}

void clear(float* out, std::int64_t d) { std::memset(out, 0, static_cast<std::size_t>(d) * sizeof(float)); }

}  // namespace

// 64-bit starts of each id's positions, then the positions in order.
std::int64_t embed_shared_floats(std::int64_t rows, std::int64_t V) { return 2 * (V + 2 + rows); }

void CpuOps::k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed, const act_t* pos_embed,
                         std::int64_t B, std::int64_t T, std::int64_t d) {
  parallel_pieces(threads_, B * T, kRowsAPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r)
      add_rows(floats(x) + r * d, floats(tok_embed) + ids[r] * d, floats(pos_embed) + r % T * d, d);
  });
}

void CpuOps::k_embed_bwd(float* d_tok_embed, float* d_pos_embed, const act_t* dx, const std::int32_t* ids,
                         std::int64_t B, std::int64_t T, std::int64_t d, std::int64_t V, bool accumulate_tok,
                         bool accumulate_pos) {
  const std::int64_t rows = B * T;
  std::int64_t* start = reinterpret_cast<std::int64_t*>(shared());
  std::int64_t* order = start + V + 2;
  std::memset(start, 0, static_cast<std::size_t>(V + 2) * sizeof(*start));
  for (std::int64_t r = 0; r < rows; ++r) ++start[ids[r] + 2];
  for (std::int64_t v = 0; v < V; ++v) start[v + 2] += start[v + 1];
  for (std::int64_t r = 0; r < rows; ++r) order[start[ids[r] + 1]++] = r;  // now start[v] is where v begins

  parallel_pieces(threads_, V, kRowsAPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t v = first; v < first + count; ++v) {
      if (!accumulate_tok) clear(d_tok_embed + v * d, d);
      for (std::int64_t i = start[v]; i < start[v + 1]; ++i)
        add_to(d_tok_embed + v * d, floats(dx) + order[i] * d, d);
    }
  });
  parallel_pieces(threads_, T, kRowsAPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t t = first; t < first + count; ++t) {
      if (!accumulate_pos) clear(d_pos_embed + t * d, d);
      for (std::int64_t b = 0; b < B; ++b) add_to(d_pos_embed + t * d, floats(dx) + (b * T + t) * d, d);
    }
  });
}

void CpuOps::k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                                const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                                std::int64_t d) {
  for (std::int64_t b = 0; b < B; ++b)
    add_rows(floats(x) + b * d, floats(tok_embed) + ids[b] * d, floats(pos_embed) + *position * d, d);
}

}  // namespace andrea::ANDREA_CPU_PATH
