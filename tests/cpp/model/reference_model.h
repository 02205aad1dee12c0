// The model's loss in double, written straight from the formulas: the truth that engine and gradients are
// held to.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/model/shape.h"

namespace andrea::testing {

using Vec = std::vector<double>;

class ReferenceModel {
 public:
  ReferenceModel(const ModelShape& shape, Vec arena) : shape_(shape), arena_(std::move(arena)) {}

  Vec& arena() { return arena_; }

  /// Logits [T, V] of one sequence.
  Vec logits(const std::int32_t* ids, std::int64_t T) const {
    const std::int64_t d = shape_.d_model;
    Vec x(static_cast<std::size_t>(T * d));
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t i = 0; i < d; ++i)
        x[t * d + i] = at(shape_.tok_embed, ids[t] * d + i) + at(shape_.pos_embed, t * d + i);
    for (const LayerOffsets& w : shape_.layers) {
      add(x, attention(layernorm(x, T, w.ln1_gamma, w.ln1_beta), T, w));
      Vec h = linear(layernorm(x, T, w.ln2_gamma, w.ln2_beta), T, d, 4 * d, w.w_1);
      for (double& v : h) v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      add(x, linear(h, T, 4 * d, d, w.w_2));
    }
    return linear(layernorm(x, T, shape_.lnf_gamma, shape_.lnf_beta), T, d, shape_.vocab, shape_.head);
  }

  /// Mean cross entropy of rows [B, T+1], nats.
  double loss(const std::vector<std::int32_t>& ids, std::int64_t B, std::int64_t T) const {
    double sum = 0;
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int32_t* row = ids.data() + b * (T + 1);
      const Vec l = logits(row, T);
      for (std::int64_t t = 0; t < T; ++t) {
        const double* v = l.data() + t * shape_.vocab;
        double top = v[0], total = 0;
        for (std::int64_t k = 1; k < shape_.vocab; ++k) top = std::max(top, v[k]);
        for (std::int64_t k = 0; k < shape_.vocab; ++k) total += std::exp(v[k] - top);
        sum += top + std::log(total) - v[row[t + 1]];
      }
    }
    return sum / static_cast<double>(B * T);
  }

 private:
  double at(std::int64_t offset, std::int64_t i) const {
    return arena_[static_cast<std::size_t>(offset + i)];
  }

  static void add(Vec& x, const Vec& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  // y [T, out] = x [T, in] W^T
  Vec linear(const Vec& x, std::int64_t T, std::int64_t in, std::int64_t out, std::int64_t w) const {
    Vec y(static_cast<std::size_t>(T * out));
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < in; ++i) sum += x[t * in + i] * at(w, o * in + i);
        y[t * out + o] = sum;
      }
    return y;
  }

  Vec layernorm(const Vec& x, std::int64_t T, std::int64_t gamma, std::int64_t beta) const {
    const std::int64_t d = shape_.d_model;
    Vec y(x.size());
    for (std::int64_t t = 0; t < T; ++t) {
      double mean = 0, variance = 0;
      for (std::int64_t i = 0; i < d; ++i) mean += x[t * d + i] / static_cast<double>(d);
      for (std::int64_t i = 0; i < d; ++i)
        variance += (x[t * d + i] - mean) * (x[t * d + i] - mean) / static_cast<double>(d);
      for (std::int64_t i = 0; i < d; ++i)
        y[t * d + i] = (x[t * d + i] - mean) / std::sqrt(variance + 1e-5) * at(gamma, i) + at(beta, i);
    }
    return y;
  }

  Vec attention(const Vec& x, std::int64_t T, const LayerOffsets& w) const {
    const std::int64_t d = shape_.d_model, hd = shape_.head_dim;
    const Vec qkv = linear(x, T, d, 3 * d, w.w_qkv);
    Vec a(static_cast<std::size_t>(T * d));
    for (std::int64_t head = 0; head < shape_.n_head; ++head)
      for (std::int64_t t = 0; t < T; ++t) {
        Vec p(static_cast<std::size_t>(t + 1));
        double top = -1e300, total = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (std::int64_t i = 0; i < hd; ++i)
            dot += qkv[t * 3 * d + head * hd + i] * qkv[s * 3 * d + d + head * hd + i];
          p[s] = dot / std::sqrt(static_cast<double>(hd));
          top = std::max(top, p[s]);
        }
        for (double& v : p) total += v = std::exp(v - top);
        for (std::int64_t s = 0; s <= t; ++s)
          for (std::int64_t i = 0; i < hd; ++i)
            a[t * d + head * hd + i] += p[s] / total * qkv[s * 3 * d + 2 * d + head * hd + i];
      }
    return linear(a, T, d, d, w.w_o);
  }

  const ModelShape& shape_;
  Vec arena_;
};

}  // namespace andrea::testing
