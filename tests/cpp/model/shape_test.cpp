#include <gtest/gtest.h>

#include <cmath>

#include "engine/errors.h"
#include "engine/model/engine.h"
#include "engine/model/shape.h"

namespace andrea {
namespace {

ModelConfig config(std::int64_t d, std::int64_t heads, std::int64_t layers, std::int64_t context,
                   std::int64_t vocab, bool tied = true) {
  return {d, heads, layers, context, vocab, tied};
}

TEST(Shape, CountsOfTheFamilyAreExact) {
  EXPECT_EQ(ModelShape(config(128, 4, 4, 256, 1281)).n_params, 985472);
  EXPECT_EQ(ModelShape(config(384, 12, 6, 1024, 4353)).n_params, 12691584);
  EXPECT_EQ(ModelShape(config(768, 12, 12, 1024, 8449)).n_params, 92248320);
  EXPECT_EQ(ModelShape(config(768, 12, 12, 1024, 8449, false)).n_params, 98737152);
  EXPECT_EQ(ModelShape(config(1536, 24, 16, 1024, 8449)).n_params, 467636736);
}

TEST(Shape, ArenaAndFileOrderAreBijections) {
  const ModelShape shape(config(24, 3, 2, 13, 37, false));
  std::vector<float> file(static_cast<std::size_t>(shape.n_params));
  for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<float>(i + 1);
  std::vector<float> arena(static_cast<std::size_t>(shape.arena_size), NAN), back(file.size());
  file_to_arena(shape, file.data(), arena.data());
  for (const float x : arena) ASSERT_TRUE(std::isfinite(x));  // padding is zero, not left over
  arena_to_file(shape, arena.data(), back.data());
  EXPECT_EQ(back, file);
  // Canonical order: the name says where it lies.
  const char* order[] = {"tok_embed",          "pos_embed",         "layers.0.ln1.gamma", "layers.0.ln1.beta",
                         "layers.0.w_q",       "layers.0.w_k",      "layers.0.w_v",       "layers.0.w_o",
                         "layers.0.ln2.gamma", "layers.0.ln2.beta", "layers.0.w_1",       "layers.0.w_2"};
  for (std::size_t i = 0; i < std::size(order); ++i) EXPECT_EQ(shape.params[i].name, order[i]);
  EXPECT_EQ(shape.params.back().name, "head");
  EXPECT_THROW(shape.param("w_q"), ConfigError);
}

TEST(Shape, QkvIsOneMatrix) {
  const ModelShape shape(config(10, 1, 3, 4, 300));  // d * d is no multiple of the alignment
  for (int l = 0; l < 3; ++l) {
    const std::string layer = "layers." + std::to_string(l) + ".";
    EXPECT_EQ(shape.param(layer + "w_k").offset, shape.param(layer + "w_q").offset + 100);
    EXPECT_EQ(shape.param(layer + "w_v").offset, shape.param(layer + "w_q").offset + 200);
    EXPECT_EQ(shape.layers[static_cast<std::size_t>(l)].w_qkv, shape.param(layer + "w_q").offset);
  }
}

TEST(Init, HasTheStatedDeviationsAndDependsOnTheSeedAlone) {
  const ModelShape shape(config(128, 4, 4, 256, 1281));
  const std::vector<float> a = initial_parameters(shape, 42), b = initial_parameters(shape, 42);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, initial_parameters(shape, 43));
  for (const ParamSpec& spec : shape.params) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < spec.size(); ++i) {
      const double x = a[static_cast<std::size_t>(spec.offset + i)];
      sum += x;
      squares += x * x;
    }
    const double n = static_cast<double>(spec.size());
    if (spec.is_vector) {
      EXPECT_EQ(sum, n * spec.init_value) << spec.name;
      continue;
    }
    EXPECT_NEAR(std::sqrt(squares / n), spec.init_std, spec.init_std * 5 / std::sqrt(2 * n)) << spec.name;
    EXPECT_NEAR(sum / n, 0, spec.init_std * 5 / std::sqrt(n)) << spec.name;
  }
  EXPECT_DOUBLE_EQ(shape.param("tok_embed").init_std, 1 / std::sqrt(128.0));
  EXPECT_DOUBLE_EQ(shape.param("layers.1.w_o").init_std, 0.02 / std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(shape.param("layers.1.w_q").init_std, 0.02);
}

TEST(LearningRate, IsTheCosineTimesTheWarmUp) {
  TrainConfig train;
  train.steps = 1000;
  train.lr = {1e-3, 1e-4, 100};
  EXPECT_DOUBLE_EQ(learning_rate(train, 0), 1e-3 * 0.01);
  EXPECT_NEAR(learning_rate(train, 500), 5.5e-4, 1e-12);
  EXPECT_NEAR(learning_rate(train, 1000), 1e-4, 1e-12);
  // Not shifted by the warm-up: at its end the cosine has already gone some way.
  EXPECT_NEAR(learning_rate(train, 99), 1e-4 + 4.5e-4 * (1 + std::cos(M_PI * 0.099)), 1e-12);
}

}  // namespace
}  // namespace andrea
