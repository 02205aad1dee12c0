// The same calls give the same bits: run after run, and on the CPU for any number of threads.
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "backend_fixture.h"

namespace andrea {
namespace {

class DeterminismTest : public KernelTest {
 protected:
  static constexpr std::int64_t B = 2, T = 150, H = 4, hd = 32, d = H * hd, V = 300, Vp = 320, rows = B * T;
  using Results = std::vector<std::pair<std::string, std::vector<float>>>;

  // Inputs, drawn once.
  std::vector<std::int32_t> tokens_ = ids(rows, V), targets_ = ids(rows, V);
  std::vector<float> tok_ = normal(Vp * d), pos_ = normal(T * d), w_qkv_ = normal(3 * d * d, 0.1),
                     w_o_ = normal(d * d, 0.1), w_1_ = normal(4 * d * d, 0.1), w_2_ = normal(4 * d * d, 0.1),
                     gamma_ = normal(d, 0.1, 1), beta_ = normal(d);

  // One layer forward and backward, and an update: every operation takes part.
  Results chain(int threads) {
    open({B, T, d, H, 1, V, Vp, Vp * d}, threads);
    Results results;
    const auto keep = [&](const char* name, const auto& values) { results.emplace_back(name, read(values)); };
    const Ints tokens = ints(tokens_), targets = ints(targets_);
    const Acts tok = acts(tok_), pos = acts(pos_), w_qkv = acts(w_qkv_), w_o = acts(w_o_), w_1 = acts(w_1_),
               w_2 = acts(w_2_);
    const Floats gamma = floats(gamma_), beta = floats(beta_);
    const Acts x = poisoned_acts(rows * d), y = poisoned_acts(rows * d), qkv = poisoned_acts(rows * 3 * d),
               att = poisoned_acts(rows * d), mid = poisoned_acts(rows * d), h = poisoned_acts(rows * 4 * d),
               g = poisoned_acts(rows * 4 * d), out = poisoned_acts(rows * d),
               logits = poisoned_acts(rows * Vp);
    const Floats mean = poisoned_floats(rows), rstd = poisoned_floats(rows), lse = poisoned_floats(B * H * T),
                 losses = poisoned_floats(rows), row_losses = poisoned_floats(B);
    Array<StepStatus> status = array<StepStatus>(1);
    StepStatus first{};
    first.loss_scale = 1;
    status.memory.write(&first);
    Array<StepControl> control = array<StepControl>(1);
    const StepControl settings{1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 1.0f, 0};
    control.memory.write(&settings);

    ops().k_embed_fwd(x, tokens, tok, pos, B, T, d);
    ops().k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d);
    ops().k_attn_qkv_fwd(qkv, y, w_qkv, rows, d);
    ops().k_attn_fwd(att, lse, qkv, B, T, H, hd);
    ops().k_attn_out_fwd(mid, att, w_o, x, rows, d);
    ops().k_mlp_fwd(out, h, g, mid, w_1, w_2, mid, rows, d);
    ops().k_head_fwd(logits, out, tok, rows, d, Vp);
    keep("out", out);
    keep("logits", logits);
    ops().k_loss_fwd_bwd(losses, logits, targets, 1.0f / rows, status, rows, V, Vp);
    ops().k_row_loss(row_losses, losses, B, T);
    keep("losses", losses);
    keep("row losses", row_losses);

    const Floats dtok = poisoned_floats(Vp * d), dpos = poisoned_floats(T * d),
                 dw_1 = poisoned_floats(4 * d * d), dw_2 = poisoned_floats(4 * d * d),
                 dw_o = poisoned_floats(d * d), dw_qkv = poisoned_floats(3 * d * d),
                 dgamma = poisoned_floats(d), dbeta = poisoned_floats(d);
    const Acts dout = poisoned_acts(rows * d), dh = poisoned_acts(rows * 4 * d),
               dmid = poisoned_acts(rows * d), datt = poisoned_acts(rows * d),
               dqkv = poisoned_acts(rows * 3 * d), dy = poisoned_acts(rows * d), dx = poisoned_acts(rows * d);
    ops().k_head_bwd(dout, dtok, logits, out, tok, rows, d, Vp, false);
    ops().k_mlp_bwd(dmid, dw_1, dw_2, dh, dout, mid, h, g, w_1, w_2, rows, d, false, false);
    ops().k_attn_out_bwd(datt, dw_o, dmid, att, w_o, rows, d, false);
    ops().k_attn_bwd(dqkv, datt, att, qkv, lse, B, T, H, hd);
    ops().k_attn_qkv_bwd(dy, dw_qkv, dqkv, y, w_qkv, rows, d, false);
    ops().k_layernorm_bwd(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, rows, d, false, false);
    ops().k_embed_bwd(dtok, dpos, dx, tokens, B, T, d, V, true, false);
    for (const auto& [name, values] :
         {std::pair<const char*, const Acts*>{"dmid", &dmid}, {"dqkv", &dqkv}, {"dx", &dx}})
      keep(name, *values);
    for (const auto& [name, values] : {std::pair<const char*, const Floats*>{"dtok", &dtok},
                                       {"dpos", &dpos},
                                       {"dw_1", &dw_1},
                                       {"dw_2", &dw_2},
                                       {"dw_o", &dw_o},
                                       {"dw_qkv", &dw_qkv},
                                       {"dgamma", &dgamma},
                                       {"dbeta", &dbeta}})
      keep(name, *values);

    const std::int64_t n = Vp * d, pieces = ops().grad_norm_partials(n);
    const Array<double> partials = array<double>(pieces);
    ops().k_grad_norm_partial(partials, dtok, n);
    ops().k_grad_norm_final(status, partials, pieces, row_losses, B, control);
    const Floats params = floats(tok_), m = floats(std::vector<float>(n, 0.0f)),
                 v = floats(std::vector<float>(n, 0.0f));
    ops().k_adamw(params, m, v, nullptr, dtok, control, status, n, n, 0);
    keep("params", params);
    keep("m", m);
    keep("v", v);
    StepStatus last;
    status.memory.read(&last);
    EXPECT_EQ(last.apply, 1);
    results.emplace_back("norm", std::vector<float>{last.grad_norm, last.grad_multiplier});

    // Decoding: one row.
    const Acts cache = poisoned_acts(2 * B * T * d), one = poisoned_acts(B * d),
               token = poisoned_acts(B * 3 * d);
    const Ints position = ints({0});
    ops().k_attn_qkv_fwd(token, y, w_qkv, B, d);
    ops().k_attn_decode_fwd(one, cache, token, position, B, T, H, hd);
    keep("decoded", one);
    return results;
  }

  static void expect_same(const Results& got, const Results& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      for (const float value : want[i].second) ASSERT_TRUE(std::isfinite(value)) << want[i].first;
      expect_same_bits(got[i].second, want[i].second, want[i].first.c_str());
    }
  }
};

TEST_P(DeterminismTest, RunAfterRun) {
  const Results first = chain(0);
  for (int round = 0; round < 3; ++round) expect_same(chain(0), first);
}

TEST_P(DeterminismTest, BesideOtherWork) {
  const Results alone = chain(0);
  // On a GPU: kernels on another stream, which take multiprocessors away at moments that nobody chooses.
  std::atomic<bool> stop{false}, running{false};
  std::thread other([&] {
    Backend own = make_backend({GetParam().device, GetParam().precision, false, 1});
    const std::int64_t n = 512, bytes = 3 * n * d * 4;
    void* const in = own.device->allocate(bytes);
    void* const out = own.device->allocate(bytes);
    void* const lse = own.device->allocate(n * H * 4);
    const std::size_t scratch_bytes = own.ops->scratch_bytes({1, n, d, H, 1, V, Vp, Vp * d});
    void* const scratch = own.device->allocate(static_cast<std::int64_t>(scratch_bytes));
    own.ops->set_scratch(scratch, scratch_bytes);
    own.device->fill_zero(in, bytes);
    while (!stop) {
      for (int i = 0; i < 8; ++i)
        own.ops->k_attn_fwd(static_cast<act_t*>(out), static_cast<float*>(lse), static_cast<const act_t*>(in),
                            1, n, H, hd);
      own.device->wait();
      running = true;
    }
    for (void* memory : {in, out, lse, scratch}) own.device->release(memory);
  });
  while (!running) std::this_thread::yield();
  for (int round = 0; round < 3; ++round) expect_same(chain(0), alone);
  stop = true;
  other.join();
}

TEST_P(DeterminismTest, AnyNumberOfThreads) {
  if (GetParam().device != "cpu") GTEST_SKIP() << "threads are the CPU's";
  const Results one = chain(1);
  for (const int threads : {2, 3, 4, 7}) {
    SCOPED_TRACE(threads);
    expect_same(chain(threads), one);
  }
}

ANDREA_ON_EVERY_BACKEND(DeterminismTest);

}  // namespace
}  // namespace andrea
