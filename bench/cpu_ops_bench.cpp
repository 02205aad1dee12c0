// A whole training step, and decoding, over the operations on the CPU: milliseconds, GFLOP/s and GB/s of
// each.
//
//   cpu_ops_bench [--shape NANO|12M] [--batch B] [--threads N] [--steps N] [--clock wall|cpu] [--json]
//
// The step is sequenced here as the model does it, with random weights, so that the operations can be
// measured before and without an engine. The median step is shown, and each operation's share of it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace andrea {
namespace {

struct ModelShape {
  std::string name;
  std::int64_t d, L, H, T, V, B;
};

// Wall time, or with --clock cpu the time this thread computed: on a busy machine the honest figure for one
// thread.
clockid_t clock_kind = CLOCK_MONOTONIC;

double now_ms() {
  timespec time{};
  clock_gettime(clock_kind, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Work of one kind of call: its times in this step, and what it computes and moves in a whole step.
struct Entry {
  double ms = 0, flop = 0, bytes = 0;
};

class Bench {
 public:
  Bench(const ModelShape& shape, int threads)
      : s_(shape), backend_(make_backend({"cpu", Precision::kFp32, false, threads})) {
    rows_ = s_.B * s_.T;
    vp_ = (s_.V + kVocabMultiple - 1) / kVocabMultiple * kVocabMultiple;
    per_layer_ = 12 * s_.d * s_.d + 4 * s_.d;
    n_params_ = (vp_ + s_.T) * s_.d + s_.L * per_layer_ + 2 * s_.d;
    const Extent extent{s_.B, s_.T, s_.d, s_.H, s_.L, s_.V, vp_, n_params_};
    const std::size_t scratch = ops().scratch_bytes(extent);
    ops().set_scratch(backend_.device->allocate(scratch), scratch);
    params_ = random(n_params_, 0.02f);
    grads_ = floats(n_params_), m_ = floats(n_params_), v_ = floats(n_params_);
    std::mt19937 generator(1);
    ids_ = static_cast<std::int32_t*>(backend_.device->allocate(rows_ * sizeof(std::int32_t)));
    targets_ = static_cast<std::int32_t*>(backend_.device->allocate(rows_ * sizeof(std::int32_t)));
    for (std::int64_t i = 0; i < rows_; ++i) {
      ids_[i] = static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(s_.V));
      targets_[i] = static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(s_.V));
    }
    const std::int64_t n = rows_ * s_.d;
    for (std::int64_t l = 0; l < s_.L; ++l)
      layers_.push_back({floats(n), floats(n), floats(n), floats(3 * n), floats(n), floats(4 * n),
                         floats(4 * n), floats(rows_), floats(rows_), floats(rows_), floats(rows_),
                         floats(s_.B * s_.H * s_.T)});
    x_.resize(s_.L + 1);
    for (float*& x : x_) x = floats(n);
    y_ = floats(n), mean_ = floats(rows_), rstd_ = floats(rows_), logits_ = floats(rows_ * vp_);
    losses_ = floats(rows_), row_losses_ = floats(s_.B);
    dx_ = floats(n), dy_ = floats(n), dqkv_ = floats(3 * n);
    partials_ =
        static_cast<double*>(backend_.device->allocate(ops().grad_norm_partials(n_params_) * sizeof(double)));
    control_ = {3e-4f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 1.0f, 0};
    status_ = {};
    status_.loss_scale = 1;
  }

  // One step; returns its milliseconds.
  double step() {
    table_.clear();
    const double start = now_ms();
    forward();
    backward();
    update();
    return now_ms() - start;
  }

  float mean_loss() const {
    float total = 0;
    for (std::int64_t b = 0; b < s_.B; ++b) total += row_losses_[b];
    return total / static_cast<float>(s_.B);
  }

  // Decodes T tokens one by one; returns tokens a second.
  double decode() {
    const std::int64_t d = s_.d;
    float* cache = floats(s_.L * 2 * s_.T * d);
    const Layer& a = layers_[0];
    const double start = now_ms();
    for (std::int32_t position = 0; position < s_.T; ++position) {
      ops().k_embed_decode_fwd(act(x_[0]), &ids_[position], &position, act(params_), act(params_ + vp_ * d),
                               1, d);
      for (std::int64_t l = 0; l < s_.L; ++l) {
        const Weights w = weights(params_, l);
        ops().k_layernorm_fwd(act(a.ln1), a.mean1, a.rstd1, act(x_[0]), w.gamma1, w.beta1, 1, d);
        ops().k_attn_qkv_fwd(act(a.qkv), act(a.ln1), act(w.qkv), 1, d);
        ops().k_attn_decode_fwd(act(a.att), act(cache + l * 2 * s_.T * d), act(a.qkv), &position, 1, s_.T,
                                s_.H, d / s_.H);
        ops().k_attn_out_fwd(act(a.mid), act(a.att), act(w.o), act(x_[0]), 1, d);
        ops().k_layernorm_fwd(act(a.ln2), a.mean2, a.rstd2, act(a.mid), w.gamma2, w.beta2, 1, d);
        ops().k_mlp_fwd(act(x_[0]), act(a.h), act(a.g), act(a.ln2), act(w.w_1), act(w.w_2), act(a.mid), 1, d);
      }
      ops().k_layernorm_fwd(act(y_), mean_, rstd_, act(x_[0]), final_gamma(params_), final_gamma(params_) + d,
                            1, d);
      ops().k_head_fwd(act(logits_), act(y_), act(params_), 1, d, vp_);
    }
    return 1000.0 * static_cast<double>(s_.T) / (now_ms() - start);
  }

  const std::map<std::string, Entry>& table() const { return table_; }
  std::string arithmetic() const { return backend_.device->info().arithmetic; }
  int threads() const { return backend_.device->info().threads; }
  // The usual count: 6 FLOP a weight and token, and attention's causal half.
  double step_flop() const {
    const double weights_used = static_cast<double>(n_params_ - s_.T * s_.d);
    return (6 * weights_used + 6.0 * static_cast<double>(s_.L * s_.d * s_.T)) * static_cast<double>(rows_);
  }
  std::int64_t rows() const { return rows_; }

 private:
  struct Layer {
    float *ln1, *ln2, *mid, *qkv, *att, *h, *g, *mean1, *rstd1, *mean2, *rstd2, *lse;
  };
  struct Weights {
    float *qkv, *o, *w_1, *w_2, *gamma1, *beta1, *gamma2, *beta2;
  };

  Ops& ops() { return *backend_.ops; }
  static act_t* act(float* p) { return reinterpret_cast<act_t*>(p); }

  float* floats(std::int64_t n) {
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(float);
    void* memory = backend_.device->allocate(bytes);
    backend_.device->fill_zero(memory, bytes);
    return static_cast<float*>(memory);
  }

  float* random(std::int64_t n, float deviation) {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal(0, deviation);
    float* values = floats(n);
    for (std::int64_t i = 0; i < n; ++i) values[i] = normal(generator);
    for (std::int64_t l = 0; l <= s_.L; ++l) {
      float* gamma = l < s_.L ? weights(values, l).gamma1 : final_gamma(values);
      for (std::int64_t i = 0; i < s_.d; ++i) gamma[i] = 1;
      if (l < s_.L)
        for (std::int64_t i = 0; i < s_.d; ++i) weights(values, l).gamma2[i] = 1;
    }
    return values;
  }

  Weights weights(float* base, std::int64_t layer) const {
    const std::int64_t d = s_.d, dd = d * d;
    float* p = base + (vp_ + s_.T) * d + layer * per_layer_;
    return {p,           p + 3 * dd,      p + 4 * dd,          p + 8 * dd,
            p + 12 * dd, p + 12 * dd + d, p + 12 * dd + 2 * d, p + 12 * dd + 3 * d};
  }
  float* final_gamma(float* base) const { return base + n_params_ - 2 * s_.d; }

  template <class Call>
  void timed(const char* name, double flop, double floats_moved, const Call& call) {
    const double start = now_ms();
    call();
    Entry& entry = table_[name];
    entry.ms += now_ms() - start;
    entry.flop += flop;
    entry.bytes += 4 * floats_moved;
  }

  void forward() {
    const std::int64_t d = s_.d, hd = d / s_.H;
    const double n = static_cast<double>(rows_ * d), product = 2 * n * static_cast<double>(d);
    const double attention = 2 * n * static_cast<double>(s_.T), head = 2 * n * static_cast<double>(vp_);
    timed("embed_fwd", 0, 3 * n,
          [&] { ops().k_embed_fwd(act(x_[0]), ids_, act(params_), act(params_ + vp_ * d), s_.B, s_.T, d); });
    for (std::int64_t l = 0; l < s_.L; ++l) {
      const Layer& a = layers_[l];
      const Weights w = weights(params_, l);
      timed("layernorm_fwd", 0, 2 * n, [&] {
        ops().k_layernorm_fwd(act(a.ln1), a.mean1, a.rstd1, act(x_[l]), w.gamma1, w.beta1, rows_, d);
      });
      timed("attn_qkv_fwd", 3 * product, 4 * n,
            [&] { ops().k_attn_qkv_fwd(act(a.qkv), act(a.ln1), act(w.qkv), rows_, d); });
      timed("attn_fwd", attention, 4 * n,
            [&] { ops().k_attn_fwd(act(a.att), a.lse, act(a.qkv), s_.B, s_.T, s_.H, hd); });
      timed("attn_out_fwd", product, 3 * n,
            [&] { ops().k_attn_out_fwd(act(a.mid), act(a.att), act(w.o), act(x_[l]), rows_, d); });
      timed("layernorm_fwd", 0, 2 * n, [&] {
        ops().k_layernorm_fwd(act(a.ln2), a.mean2, a.rstd2, act(a.mid), w.gamma2, w.beta2, rows_, d);
      });
      timed("mlp_fwd", 8 * product, 15 * n, [&] {
        ops().k_mlp_fwd(act(x_[l + 1]), act(a.h), act(a.g), act(a.ln2), act(w.w_1), act(w.w_2), act(a.mid),
                        rows_, d);
      });
    }
    timed("layernorm_fwd", 0, 2 * n, [&] {
      ops().k_layernorm_fwd(act(y_), mean_, rstd_, act(x_[s_.L]), final_gamma(params_),
                            final_gamma(params_) + d, rows_, d);
    });
    timed("head_fwd", head, n, [&] { ops().k_head_fwd(act(logits_), act(y_), act(params_), rows_, d, vp_); });
    timed("loss_fwd_bwd", 0, 2 * static_cast<double>(rows_ * vp_), [&] {
      ops().k_loss_fwd_bwd(losses_, act(logits_), targets_, 1.0f / static_cast<float>(rows_), &status_, rows_,
                           s_.V, vp_);
    });
    ops().k_row_loss(row_losses_, losses_, s_.B, s_.T);
  }

  void backward() {
    const std::int64_t d = s_.d, hd = d / s_.H;
    const double n = static_cast<double>(rows_ * d), product = 2 * n * static_cast<double>(d);
    const double attention = 2 * n * static_cast<double>(s_.T), head = 2 * n * static_cast<double>(vp_);
    timed("head_bwd", 2 * head, 2 * n, [&] {
      ops().k_head_bwd(act(dy_), grads_, act(logits_), act(y_), act(params_), rows_, d, vp_, false);
    });
    timed("layernorm_bwd", 0, 3 * n, [&] {
      ops().k_layernorm_bwd(act(dx_), final_gamma(grads_), final_gamma(grads_) + d, act(dy_), act(x_[s_.L]),
                            final_gamma(params_), mean_, rstd_, rows_, d, false, false);
    });
    for (std::int64_t l = s_.L - 1; l >= 0; --l) {
      const Layer& a = layers_[l];
      const Weights w = weights(params_, l), g = weights(grads_, l);
      timed("mlp_bwd", 16 * product, 27 * n, [&] {
        ops().k_mlp_bwd(act(dy_), g.w_1, g.w_2, act(a.h), act(dx_), act(a.ln2), act(a.h), act(a.g),
                        act(w.w_1), act(w.w_2), rows_, d, false, false);
      });
      timed("layernorm_bwd", 0, 4 * n, [&] {
        ops().k_layernorm_bwd(act(dx_), g.gamma2, g.beta2, act(dy_), act(a.mid), w.gamma2, a.mean2, a.rstd2,
                              rows_, d, true, false);
      });
      timed("attn_out_bwd", 2 * product, 4 * n,
            [&] { ops().k_attn_out_bwd(act(dy_), g.o, act(dx_), act(a.att), act(w.o), rows_, d, false); });
      timed("attn_bwd", 2.5 * attention, 8 * n, [&] {
        ops().k_attn_bwd(act(dqkv_), act(dy_), act(a.att), act(a.qkv), a.lse, s_.B, s_.T, s_.H, hd);
      });
      timed("attn_qkv_bwd", 6 * product, 8 * n, [&] {
        ops().k_attn_qkv_bwd(act(dy_), g.qkv, act(dqkv_), act(a.ln1), act(w.qkv), rows_, d, false);
      });
      timed("layernorm_bwd", 0, 4 * n, [&] {
        ops().k_layernorm_bwd(act(dx_), g.gamma1, g.beta1, act(dy_), act(x_[l]), w.gamma1, a.mean1, a.rstd1,
                              rows_, d, true, false);
      });
    }
    timed("embed_bwd", 0, 3 * n, [&] {
      ops().k_embed_bwd(grads_, grads_ + vp_ * d, act(dx_), ids_, s_.B, s_.T, d, s_.V, true, false);
    });
  }

  void update() {
    const std::int64_t pieces = ops().grad_norm_partials(n_params_);
    const double n = static_cast<double>(n_params_);
    timed("grad_norm", 0, n, [&] {
      ops().k_grad_norm_partial(partials_, grads_, n_params_);
      ops().k_grad_norm_final(&status_, partials_, pieces, row_losses_, s_.B, &control_);
    });
    timed("adamw", 0, 7 * n, [&] {
      ops().k_adamw(params_, m_, v_, nullptr, grads_, &control_, &status_, n_params_, n_params_ - 2 * s_.d,
                    0);
    });
  }

  ModelShape s_;
  Backend backend_;
  std::int64_t rows_ = 0, vp_ = 0, per_layer_ = 0, n_params_ = 0;
  float *params_, *grads_, *m_, *v_;
  std::int32_t *ids_, *targets_;
  std::vector<Layer> layers_;
  std::vector<float*> x_;
  float *y_, *mean_, *rstd_, *logits_, *losses_, *row_losses_, *dx_, *dy_, *dqkv_;
  double* partials_;
  StepControl control_;
  StepStatus status_;
  std::map<std::string, Entry> table_;
};

void report(const ModelShape& shape, int threads, int steps, bool json) {
  Bench bench(shape, threads);
  std::vector<double> times;
  std::map<std::string, std::vector<double>> op_times;
  bench.step();
  bench.step();
  for (int i = 0; i < steps; ++i) {
    times.push_back(bench.step());
    for (const auto& [name, entry] : bench.table()) op_times[name].push_back(entry.ms);
  }
  const double ms = median(times), tokens = static_cast<double>(bench.rows());
  const double decoded = bench.decode();
  if (json) {
    std::printf(
        "{\"shape\": \"%s\", \"batch\": %lld, \"threads\": %d, \"ms\": %.3f, \"tokens_per_s\": %.1f, "
        "\"gflops\": %.2f, \"decode_tokens_per_s\": %.1f, \"arithmetic\": \"%s\"}\n",
        shape.name.c_str(), static_cast<long long>(shape.B), bench.threads(), ms, tokens / ms * 1e3,
        bench.step_flop() / ms / 1e6, decoded, bench.arithmetic().c_str());
    return;
  }
  std::printf("%s B=%lld T=%lld, %d threads, %s\n", shape.name.c_str(), static_cast<long long>(shape.B),
              static_cast<long long>(shape.T), bench.threads(), bench.arithmetic().c_str());
  std::printf("%-16s %9s %7s %10s %8s\n", "operation", "ms/step", "share", "GFLOP/s", "GB/s");
  for (const auto& [name, entry] : bench.table()) {
    const double op_ms = median(op_times[name]);
    std::printf("%-16s %9.2f %6.1f%% %10.1f %8.1f\n", name.c_str(), op_ms, 100 * op_ms / ms,
                entry.flop / op_ms / 1e6, entry.bytes / op_ms / 1e6);
  }
  std::printf("step %.1f ms, %.0f tokens/s, %.1f GFLOP/s, loss %.4f; decoding %.0f tokens/s\n\n", ms,
              tokens / ms * 1e3, bench.step_flop() / ms / 1e6, bench.mean_loss(), decoded);
}

int run(int argc, char** argv) {
  std::vector<ModelShape> shapes{{"NANO", 128, 4, 4, 256, 1281, 8}, {"12M", 384, 6, 12, 1024, 4353, 1}};
  int threads = 0, steps = 9;
  std::int64_t batch = 0;
  std::string wanted;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (flag == "--json") {
      json = true;
      continue;
    }
    if (value == nullptr || (flag != "--shape" && flag != "--batch" && flag != "--threads" &&
                             flag != "--steps" && flag != "--clock")) {
      std::fprintf(stderr,
                   "usage: cpu_ops_bench [--shape NANO|12M] [--batch B] [--threads N] [--steps N] [--clock "
                   "wall|cpu] [--json]\n");
      return 64;
    }
    if (flag == "--shape") wanted = value;
    if (flag == "--clock")
      clock_kind = std::strcmp(value, "cpu") == 0 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    if (flag == "--batch") batch = std::max(1, std::atoi(value));
    if (flag == "--threads") threads = std::max(0, std::atoi(value));
    if (flag == "--steps") steps = std::max(1, std::atoi(value));
    ++i;
  }
  bool found = false;
  for (ModelShape shape : shapes) {
    if (!wanted.empty() && shape.name != wanted) continue;
    if (batch > 0) shape.B = batch;
    report(shape, threads, steps, json);
    found = true;
  }
  if (!found) std::fprintf(stderr, "cpu_ops_bench: no shape %s; there are NANO and 12M\n", wanted.c_str());
  return found ? 0 : 64;
}

}  // namespace
}  // namespace andrea

int main(int argc, char** argv) {
  try {
    return andrea::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpu_ops_bench: %s\n", error.what());
    return 70;
  }
}
