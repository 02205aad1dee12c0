// A state in which every field differs from its default.
#pragma once

#include <limits>

#include "engine/run/run_state.h"

namespace andrea::testing {

inline RunState sample_state(std::int64_t step) {
  RunState state;
  state.step = step;
  state.bin_hash = 0xfedcba9876543210;
  state.tokenizer_hash = 0x0000000000000001;
  state.config = "{\"name\":\"n\",\"train\":{\"lr\":{\"peak\":0.0003},\"seed\":42}}";
  state.sources = {{"chat", {1, 2, 3}, 4},
                   {"\xC3\xA9t\xC3\xA9 \"x\"", {std::int64_t{1} << 40, 5, 6}, ~std::uint64_t{0}, 7}};
  state.curriculum = "{\"ema\":{\"chat\":4.5209},\"n\":[1,2,9223372036854775807],\"tiny\":5e-324}";
  state.loss_scale = 0.1F;
  state.good_steps = 1999;
  state.skipped_total = 12;
  state.skipped_in_a_row = 3;
  state.has_smma = true;
  state.smma = 4.5209000000000001;
  state.best_smma = 1.0 / 3;
  state.best_step = 50;
  state.gate_failures = 2;
  state.stopped_by_gate = true;
  state.finished = true;
  state.not_reproducible_from = 17;
  state.history_bytes = {{"n.loss.json", 12345}, {"n.rows.jsonl", std::int64_t{1} << 45}};
  state.version = "0.1.0";
  state.device = "cpu";
  state.arithmetic = "OpenBLAS, avx2";
  state.precision = "fp32";
  state.recompute = "gelu";
  state.gemm = {"OpenBLAS 0.3.30 Zen", {{"x W^T 8 x 8 x 8", "algo 1"}, {"dy W 8 x 8 x 8", "algo 2"}}};
  state.threads = 2;
  state.written_unix = 1700000000;
  return state;
}

}  // namespace andrea::testing
