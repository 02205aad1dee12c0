// Time of every operation of the model on the GPU, beside its floor.
//
//   cuda_kernels [SHAPES [PRECISIONS [BATCH [OPERATION]]]]     e.g.  cuda_kernels 12M,120M fp16,fp32 8
//   OPERATION: only those whose name begins so, e.g. attn_
//
// Each operation is run over several sets of buffers, as the layers of a model would, recorded as one graph
// and replayed; the median of the replays is shown. The floor is the larger of FLOPs over the measured GEMM
// rate and bytes (each input and output once) over the measured copy rate, both taken in the same process.
// Inputs are random normal numbers. "model" is the time of one training step's worth of the operation.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine/errors.h"
#include "kernels/backend.h"

namespace {

using andrea::act_t;
using andrea::Precision;

struct Shape {
  const char* name;
  std::int64_t d, L, H, V;
};
constexpr Shape kShapes[] = {{"NANO", 128, 4, 4, 1281},
                             {"12M", 384, 6, 12, 4353},
                             {"120M", 768, 12, 12, 8449},
                             {"480M", 1536, 16, 24, 8449}};
constexpr int kSets = 4;
constexpr int kLaunches = 32;
constexpr int kReplays = 9;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

class Bench {
 public:
  Bench(Precision precision, std::int64_t scratch_rows, std::int64_t d, std::int64_t H, std::int64_t V,
        std::int64_t T)
      : backend_(andrea::make_backend({"cuda", precision, false, 0})) {
    const std::size_t bytes = ops().scratch_bytes({scratch_rows / T, T, d, H, 1, V, V + 64, 0});
    ops().set_scratch(raw(bytes), bytes);
    noise_bytes_ = std::size_t{16} << 20;
    noise_ = static_cast<char*>(backend_.device->allocate_host(noise_bytes_));
  }
  ~Bench() {
    backend_.device->wait();
    for (void* p : memory_) backend_.device->release(p);
    backend_.device->release_host(noise_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  andrea::Ops& ops() { return *backend_.ops; }
  andrea::Device& device() { return *backend_.device; }

  void* raw(std::size_t bytes) {
    memory_.push_back(device().allocate(bytes));
    return memory_.back();
  }
  float* floats(std::int64_t n, float deviation) {
    auto* p = static_cast<float*>(raw(static_cast<std::size_t>(n) * 4));
    fill(p, n, deviation);
    return p;
  }
  act_t* acts(std::int64_t n, float deviation) {
    auto* p = static_cast<act_t*>(raw(static_cast<std::size_t>(n) * ops().act_bytes()));
    if (ops().act_bytes() == 4) {
      fill(reinterpret_cast<float*>(p), n, deviation);
      return p;
    }
    auto* wide = static_cast<float*>(device().allocate(static_cast<std::size_t>(n) * 4));
    fill(wide, n, deviation);
    ops().k_cast_weights(p, wide, n);
    device().wait();
    device().release(wide);
    return p;
  }
  std::int32_t* ids(std::int64_t n, std::int64_t below) {
    auto* p = static_cast<std::int32_t*>(raw(static_cast<std::size_t>(n) * 4));
    auto* host = static_cast<std::int32_t*>(device().allocate_host(static_cast<std::size_t>(n) * 4));
    // Frequent ids, as in text: the square of a uniform number.
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    for (std::int64_t i = 0; i < n; ++i) {
      const double u = uniform(random_);
      host[i] = static_cast<std::int32_t>(u * u * u * static_cast<double>(below));
    }
    device().upload(p, host, static_cast<std::size_t>(n) * 4);
    device().wait();
    device().release_host(host);
    return p;
  }

  /// Median microseconds of one call of work(set).
  double time(const std::function<void(int)>& work) {
    const std::int64_t key = next_key_++;
    std::vector<double> times;
    for (int replay = 0; replay < kReplays + 3; ++replay) {
      device().wait();
      const auto start = std::chrono::steady_clock::now();
      device().run(key, [&] {
        for (int i = 0; i < kLaunches; ++i) work(i % kSets);
      });
      device().wait();
      const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
      if (replay >= 3) times.push_back(spent.count() / kLaunches);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  void fill(float* device_memory, std::int64_t n, float deviation) {
    const auto most = static_cast<std::int64_t>(noise_bytes_ / 4);
    if (unit_.empty()) {
      std::normal_distribution<float> normal(0.0F, 1.0F);
      unit_.resize(noise_bytes_ / 4);
      for (float& x : unit_) x = normal(random_);
    }
    auto* block = reinterpret_cast<float*>(noise_);
    const std::int64_t block_n = std::min(n, most);
    for (std::int64_t i = 0; i < block_n; ++i) block[i] = unit_[static_cast<std::size_t>(i)] * deviation;
    for (std::int64_t at = 0; at < n; at += block_n)
      device().upload(device_memory + at, block, static_cast<std::size_t>(std::min(block_n, n - at)) * 4);
    device().wait();
  }

  std::vector<float> unit_;
  andrea::Backend backend_;
  std::vector<void*> memory_;
  std::mt19937 random_{1};
  char* noise_ = nullptr;
  std::size_t noise_bytes_ = 0;
  std::int64_t next_key_ = 0;
};

struct Peaks {
  double flops, bytes;  // a microsecond
};

Peaks measure_peaks(Precision precision) {
  constexpr std::int64_t n = 8192;
  Bench bench(precision, n, 64, 1, 64, n);
  act_t* a[kSets];
  act_t* b[kSets];
  act_t* c[kSets];
  for (int s = 0; s < kSets; ++s) {
    a[s] = bench.acts(n * n, 1.0F);
    b[s] = bench.acts(n * n, 1.0F);
    c[s] = bench.acts(n * n, 1.0F);
  }
  Peaks peaks{};
  peaks.flops =
      2.0 * n * n * n / bench.time([&](int s) { bench.ops().k_head_fwd(c[s], a[s], b[s], n, n, n); });
  const double size = static_cast<double>(n * n) * static_cast<double>(bench.ops().act_bytes());
  peaks.bytes =
      2.0 * size / bench.time([&](int s) { bench.ops().k_residual_add_bwd(c[s], c[s], a[s], n * n); }) * 2.0;
  return peaks;
}

void measure(const Shape& shape, Precision precision, std::int64_t B, const Peaks& peaks,
             const std::string& only) {
  const std::int64_t T = 1024, d = shape.d, H = shape.H, hd = d / H, V = shape.V, rows = B * T;
  const std::int64_t Vp = (V + andrea::kVocabMultiple - 1) / andrea::kVocabMultiple * andrea::kVocabMultiple;
  const std::int64_t n_params = Vp * d + T * d + shape.L * (12 * d * d + 4 * d) + 2 * d;
  Bench bench(precision, rows, d, H, V, T);
  andrea::Ops& ops = bench.ops();
  const auto act = static_cast<double>(ops.act_bytes());
  const auto nd = static_cast<double>(rows * d);
  const auto L = static_cast<double>(shape.L);

  struct Set {
    act_t *x, *y, *dx, *qkv, *dqkv, *h, *g, *dh, *logits, *w_qkv, *w_o, *w_1, *w_2;
    float *lse, *mean, *rstd, *dw;
  } sets[kSets];
  for (Set& s : sets) {
    s.x = bench.acts(rows * d, 1.0F);
    s.y = bench.acts(rows * d, 1.0F);
    s.dx = bench.acts(rows * d, 1.0F);
    s.qkv = bench.acts(rows * 3 * d, 1.0F);
    s.dqkv = bench.acts(rows * 3 * d, 1.0F);
    s.h = bench.acts(rows * 4 * d, 1.0F);
    s.g = bench.acts(rows * 4 * d, 1.0F);
    s.dh = bench.acts(rows * 4 * d, 1.0F);
    s.logits = bench.acts(rows * Vp, 1.0F);
    s.w_qkv = bench.acts(3 * d * d, 0.02F);
    s.w_o = bench.acts(d * d, 0.02F);
    s.w_1 = bench.acts(4 * d * d, 0.02F);
    s.w_2 = bench.acts(4 * d * d, 0.02F);
    s.lse = bench.floats(B * H * T, 1.0F);
    s.mean = bench.floats(rows, 0.1F);
    s.rstd = bench.floats(rows, 0.1F);
    s.dw = bench.floats(std::max<std::int64_t>(Vp * d, 8 * d * d), 1.0F);
  }
  act_t* tok = bench.acts(Vp * d, 0.05F);
  act_t* pos = bench.acts(T * d, 0.02F);
  float* gamma = bench.floats(d, 1.0F);
  float* dgamma = bench.floats(2 * d, 1.0F);
  float* d_pos = bench.floats(T * d, 1.0F);
  float* losses = bench.floats(rows, 1.0F);
  std::int32_t* ids = bench.ids(rows, V);
  auto* status = static_cast<andrea::StepStatus*>(bench.raw(256));
  bench.device().fill_zero(status, 256);
  auto* control = static_cast<andrea::StepControl*>(bench.raw(256));
  bench.device().fill_zero(control, 256);
  float* params = bench.floats(n_params, 0.02F);
  float* m = bench.floats(n_params, 0.01F);
  float* v = bench.floats(n_params, 0.0F);
  float* grads = bench.floats(n_params, 0.01F);
  act_t* compute = bench.acts(n_params, 0.02F);
  auto* partials = static_cast<double*>(bench.raw(1 << 20));
  // AdamW writes nothing while apply is 0; let the decision set it.
  const andrea::StepControl host_control{1e-4F, 0.9F, 0.999F, 1e-8F, 0.1F, 0.5F, 0.5F, 1.0F, 0};
  void* pinned = bench.device().allocate_host(256);
  std::memcpy(pinned, &host_control, sizeof host_control);
  bench.device().upload(control, pinned, sizeof host_control);
  bench.device().wait();
  andrea::StepStatus host_status{};
  host_status.loss_scale = 1.0F;
  std::memcpy(pinned, &host_status, sizeof host_status);
  bench.device().upload(status, pinned, sizeof host_status);
  ops.k_grad_norm_partial(partials, grads, n_params);
  ops.k_grad_norm_final(status, partials, ops.grad_norm_partials(n_params), losses, rows, control);
  bench.device().wait();
  bench.device().release_host(pinned);

  std::printf("\n%s %s B=%lld T=%lld\n%-16s %9s %9s %9s %9s %7s\n", shape.name,
              andrea::precision_name(precision), static_cast<long long>(B), static_cast<long long>(T),
              "operation", "us", "TFLOP/s", "GB/s", "floor us", "%floor");
  double total = 0.0;
  double floors = 0.0;
  const auto row = [&](const char* name, double calls, double flops, double bytes,
                       const std::function<void(int)>& work) {
    if (std::string(name).compare(0, only.size(), only) != 0) return;
    double us = 0.0;
    try {
      us = bench.time(work);
    } catch (const andrea::Error& error) {
      std::printf("%-16s FAILED: %s\n", name, error.what());
      return;
    }
    const double floor = std::max(flops / peaks.flops, bytes / peaks.bytes);
    std::printf("%-16s %9.2f %9.1f %9.0f %9.2f %6.0f%%   x%.0f = %.3f ms a step\n", name, us,
                flops / us / 1e6, bytes / us / 1e3, floor, 100.0 * floor / us, calls, calls * us / 1e3);
    std::fflush(stdout);
    total += calls * us / 1e3;
    floors += calls * floor / 1e3;
  };
  const double linear = 2.0 * nd * static_cast<double>(d);  // FLOPs of a d x d product
  const double weight = static_cast<double>(d * d);
  const double head = 2.0 * nd * static_cast<double>(Vp);
  const double logit_bytes = static_cast<double>(rows * Vp) * act;
  const double attention = 2.0 * static_cast<double>(B * H * T * T * hd);  // two products, causal half
  const auto p = static_cast<double>(n_params);

  row("embed_fwd", 1, 0, 3 * nd * act, [&](int s) { ops.k_embed_fwd(sets[s].x, ids, tok, pos, B, T, d); });
  for (Set& s : sets) {  // the activations again: embed_fwd wrote x
    s.x = bench.acts(rows * d, 1.0F);
    ops.k_layernorm_fwd(s.y, s.mean, s.rstd, s.x, gamma, gamma, rows, d);
  }
  row("layernorm_fwd", 2 * L + 1, 0, 2 * nd * act, [&](int s) {
    ops.k_layernorm_fwd(sets[s].y, sets[s].mean, sets[s].rstd, sets[s].x, gamma, gamma, rows, d);
  });
  row("attn_qkv_fwd", L, 3 * linear, (4 * nd + 3 * weight) * act,
      [&](int s) { ops.k_attn_qkv_fwd(sets[s].qkv, sets[s].y, sets[s].w_qkv, rows, d); });
  for (Set& s : sets) s.qkv = bench.acts(rows * 3 * d, 1.0F);
  row("attn_fwd", L, attention, 4 * nd * act,
      [&](int s) { ops.k_attn_fwd(sets[s].y, sets[s].lse, sets[s].qkv, B, T, H, hd); });
  row("attn_out_fwd", L, linear, (3 * nd + weight) * act,
      [&](int s) { ops.k_attn_out_fwd(sets[s].dx, sets[s].y, sets[s].w_o, sets[s].x, rows, d); });
  row("mlp_fwd", L, 8 * linear, (3 * nd + 12 * nd + 8 * weight) * act, [&](int s) {
    ops.k_mlp_fwd(sets[s].dx, sets[s].h, sets[s].g, sets[s].y, sets[s].w_1, sets[s].w_2, sets[s].x, rows, d);
  });
  row("head_fwd", 1, head, logit_bytes + nd * act,
      [&](int s) { ops.k_head_fwd(sets[s].logits, sets[s].y, tok, rows, d, Vp); });
  row("loss_fwd_bwd", 1, 0, 2 * logit_bytes, [&](int s) {
    ops.k_loss_fwd_bwd(losses, sets[s].logits, ids, 1.0F / static_cast<float>(rows), status, rows, V, Vp);
  });
  row("row_loss", 1, 0, static_cast<double>(rows) * 4, [&](int) { ops.k_row_loss(dgamma, losses, B, T); });
  row("head_bwd", 1, 2 * head, 2 * logit_bytes + 2 * nd * act, [&](int s) {
    ops.k_head_bwd(sets[s].dx, sets[s].dw, sets[s].logits, sets[s].y, tok, rows, d, Vp, false);
  });
  for (Set& s : sets) s.dx = bench.acts(rows * d, 1.0F);
  row("mlp_bwd", L, 16 * linear, (4 * nd + 28 * nd + 16 * weight) * act + 32 * weight, [&](int s) {
    ops.k_mlp_bwd(sets[s].y, sets[s].dw, sets[s].dw + 4 * d * d, sets[s].dh, sets[s].dx, sets[s].x, sets[s].h,
                  sets[s].g, sets[s].w_1, sets[s].w_2, rows, d, false, false);
  });
  row("layernorm_bwd", 2 * L + 1, 0, 4 * nd * act, [&](int s) {
    ops.k_layernorm_bwd(sets[s].dx, dgamma, dgamma + d, sets[s].y, sets[s].x, gamma, sets[s].mean,
                        sets[s].rstd, rows, d, true, false);
  });
  for (Set& s : sets) {
    s.dx = bench.acts(rows * d, 1.0F);
    s.y = bench.acts(rows * d, 1.0F);
  }
  row("attn_out_bwd", L, 2 * linear, (3 * nd + weight) * act + 4 * weight, [&](int s) {
    ops.k_attn_out_bwd(sets[s].y, sets[s].dw, sets[s].dx, sets[s].x, sets[s].w_o, rows, d, false);
  });
  for (Set& s : sets) ops.k_attn_fwd(s.y, s.lse, s.qkv, B, T, H, hd);
  row("attn_bwd", L, 2.5 * attention, 8 * nd * act, [&](int s) {
    ops.k_attn_bwd(sets[s].dqkv, sets[s].dx, sets[s].y, sets[s].qkv, sets[s].lse, B, T, H, hd);
  });
  row("attn_qkv_bwd", L, 6 * linear, (5 * nd + 3 * weight) * act + 12 * weight, [&](int s) {
    ops.k_attn_qkv_bwd(sets[s].y, sets[s].dw, sets[s].dqkv, sets[s].x, sets[s].w_qkv, rows, d, false);
  });
  row("embed_bwd", 1, 0, 2 * nd * act + static_cast<double>(T * d) * 4,
      [&](int s) { ops.k_embed_bwd(sets[s].dw, d_pos, sets[s].dx, ids, B, T, d, V, true, false); });
  row("grad_norm", 1, 0, 4 * p, [&](int) {
    ops.k_grad_norm_partial(partials, grads, n_params);
    ops.k_grad_norm_final(status, partials, ops.grad_norm_partials(n_params), losses, B, control);
  });
  row("adamw", 1, 0, (28 + (ops.needs_compute_weights() ? act : 0)) * p, [&](int) {
    ops.k_adamw(params, m, v, ops.needs_compute_weights() ? compute : nullptr, grads, control, status,
                n_params, n_params, n_params);
  });
  std::printf("sum of a step: %.3f ms, of the floors: %.3f ms\n", total, floors);
  for (const std::string& line : bench.device().info().details) std::printf("  %s\n", line.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> shapes = split(argc > 1 ? argv[1] : "12M,120M,480M");
    const std::vector<std::string> precisions = split(argc > 2 ? argv[2] : "fp16");
    const std::int64_t B = argc > 3 ? std::stoll(argv[3]) : 8;
    for (const std::string& name : precisions) {
      const Precision precision = name == "fp32"   ? Precision::kFp32
                                  : name == "bf16" ? Precision::kBf16
                                                   : Precision::kFp16;
      const Peaks peaks = measure_peaks(precision);
      std::printf("%s: products of 8192^3 at %.1f TFLOP/s, copies at %.2f TB/s\n",
                  andrea::precision_name(precision), peaks.flops / 1e6, peaks.bytes / 1e6);
      for (const Shape& shape : kShapes)
        if (std::find(shapes.begin(), shapes.end(), shape.name) != shapes.end())
          measure(shape, precision, B, peaks, argc > 4 ? argv[4] : "");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_kernels: %s\n", error.what());
    return 70;
  }
  return 0;
}
