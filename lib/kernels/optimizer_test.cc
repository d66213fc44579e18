#include "lib/kernels/optimizer.h"

#include <cmath>

#include "gtest/gtest.h"
#include "lib/base/philox.h"

namespace fusionllm::kernels {
namespace {

using Kind = OptimizerConfig::Kind;

// The update rule as published (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2), in double.
struct Reference {
  double parameter = 1, m = 0, v = 0;
};

Reference AdamWReference(const OptimizerConfig& c, std::initializer_list<double> gradients) {
  Reference r;
  int t = 0;
  for (const double g : gradients) {
    ++t;
    r.parameter *= 1 - c.learning_rate * c.weight_decay;
    r.m = c.beta1 * r.m + (1 - c.beta1) * g;
    r.v = c.beta2 * r.v + (1 - c.beta2) * g * g;
    const double m_hat = r.m / (1 - std::pow(c.beta1, t)), v_hat = r.v / (1 - std::pow(c.beta2, t));
    r.parameter -= c.learning_rate * m_hat / (std::sqrt(v_hat) + c.epsilon);
  }
  return r;
}

void UpdateOne(const OptimizerConfig& config, const OptimizerStep& step, const ParameterUpdate& update) {
  EXPECT_TRUE(HostOptimizerKernels().Update(config, step, {&update, 1}).ok());
}

TEST(AdamWTest, FollowsThePaperOverThreeSteps) {
  const OptimizerConfig config{.kind = Kind::kAdamW, .learning_rate = 0.1, .weight_decay = 0.2, .beta1 = 0.9, .beta2 = 0.95};
  float parameter = 1, m = 0, v = 0;
  int64_t step = 0;
  for (const float g : {0.5f, -0.25f, 1.0f}) {
    UpdateOne(config, {.learning_rate = config.learning_rate, .step = ++step},
              {.gradient = &g, .parameter = &parameter, .states = {&m, &v}, .count = 1, .decay = true});
  }
  const Reference expected = AdamWReference(config, {0.5, -0.25, 1.0});
  EXPECT_NEAR(parameter, expected.parameter, 1e-6);
  EXPECT_NEAR(m, expected.m, 1e-6);
  EXPECT_NEAR(v, expected.v, 1e-6);
}

TEST(SgdTest, NesterovMomentumAndCoupledDecayFollowTorchsRule) {
  const OptimizerConfig config{.kind = Kind::kSgd, .learning_rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .nesterov = true};
  float parameter = 1, buffer = 123;  // what is in the buffer before the first step must not matter
  double p = 1, b = 0;
  int64_t step = 0;
  for (const float g : {0.5f, -0.25f, 1.0f}) {
    UpdateOne(config, {.learning_rate = config.learning_rate, .step = ++step},
              {.gradient = &g, .parameter = &parameter, .states = {&buffer}, .count = 1, .decay = true});
    const double decayed = g + 0.01 * p;
    b = step == 1 ? decayed : 0.9 * b + decayed;
    p -= 0.1 * (decayed + 0.9 * b);
  }
  EXPECT_NEAR(parameter, p, 1e-6);
}

TEST(SgdTest, WithoutMomentumNeedsNoStateAndBiasesAreNotDecayed) {
  const OptimizerConfig config{.kind = Kind::kSgd, .learning_rate = 0.5, .weight_decay = 0.1};
  EXPECT_TRUE(StateNames(config).empty());
  float parameter = 2;
  const float g = 1;
  UpdateOne(config, {.learning_rate = config.learning_rate, .gradient_scale = 0.5f}, {.gradient = &g, .parameter = &parameter, .count = 1});
  EXPECT_FLOAT_EQ(parameter, 2 - 0.5f * 0.5f);
}

TEST(SumOfSquaresTest, AgreesWithAPlainSumForEveryLength) {
  const base::CounterRng rng(5, "x");
  std::vector<float> values;
  for (int n = 0; n < 100; ++n) {
    double expected = 0;
    for (const float x : values) expected += double{x} * x;
    EXPECT_NEAR(SumOfSquares(values), expected, 1e-9 * (1 + expected)) << n;
    values.push_back(rng.Normal(n));
  }
}

}  // namespace
}  // namespace fusionllm::kernels
