// Gradients against finite differences of the loss: every op's golden graph, dropout, and random graphs by seed.
//
// For each parameter one direction d, random and twice as much along the gradient, |d| = 1. The derivative of the loss along d comes from
// central differences at steps h and h/2 with Richardson's extrapolation, in fp32 with double products. Tolerance: 2e-3 of |gradient| for
// the step's error, and 3e-5 of the loss's own size for its roundings (fp32 rounds a loss of one to 6e-8, divided by h/2).
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/opdag/testing/random_graph.h"
#include "lib/opdag/text.h"
#include "tests/numerics/training_case.h"

namespace fusionllm::numerics {
namespace {

constexpr double kStep = 0.02;
constexpr double kRelative = 2e-3;
constexpr double kRounding = 3e-5;

double Norm(const std::vector<double>& v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares);
}

std::vector<double> Direction(const std::vector<double>& gradient, uint64_t seed) {
  const base::CounterRng rng(seed, "direction");
  std::vector<double> random(gradient.size());
  for (size_t i = 0; i < random.size(); ++i) random[i] = rng.Normal(i);
  const double random_norm = Norm(random), gradient_norm = Norm(gradient);
  for (size_t i = 0; i < random.size(); ++i)
    random[i] = random[i] / random_norm + (gradient_norm > 0 ? 2 * gradient[i] / gradient_norm : 0);
  const double norm = Norm(random);
  for (double& x : random) x /= norm;
  return random;
}

// Loss at parameter + t * direction.
double LossAt(TrainingCase& run, opdag::ParameterId parameter, const std::vector<float>& start, const std::vector<double>& direction,
              double t) {
  float* data = run.evaluator->parameter(parameter).f32();
  for (size_t i = 0; i < start.size(); ++i) data[i] = static_cast<float>(start[i] + t * direction[i]);
  EXPECT_TRUE(run.Forward().ok());
  return run.evaluator->loss();
}

void CheckParameter(TrainingCase& run, opdag::ParameterId parameter, uint64_t seed) {
  const std::vector<double> gradient = run.Gradient(parameter);
  const std::vector<double> direction = Direction(gradient, seed);
  const float* data = run.evaluator->parameter(parameter).f32();
  const std::vector<float> start(data, data + gradient.size());
  double size = 0;
  const auto slope = [&](double h) {
    const double up = LossAt(run, parameter, start, direction, h), down = LossAt(run, parameter, start, direction, -h);
    size = std::max({size, std::abs(up), std::abs(down)});
    return (up - down) / (2 * h);
  };
  const double coarse = slope(kStep), fine = slope(kStep / 2);
  const double measured = (4 * fine - coarse) / 3;
  std::copy(start.begin(), start.end(), run.evaluator->parameter(parameter).f32());
  double computed = 0;
  for (size_t i = 0; i < gradient.size(); ++i) computed += gradient[i] * direction[i];
  EXPECT_NEAR(computed, measured, kRelative * Norm(gradient) + kRounding * std::max(size, 1.0))
      << "parameter " << run.training.graph.parameter(parameter).name << ", loss " << size;
}

void CheckAll(TrainingCase& run, uint64_t seed) {
  ASSERT_TRUE(run.Step().ok());
  for (size_t i = 0; i < run.training.graph.parameters().size(); ++i) {
    if (run.training.graph.parameter(i).trainable) CheckParameter(run, static_cast<opdag::ParameterId>(i), seed + i);
  }
}

class GradientTest : public testing::TestWithParam<absl::string_view> {};

TEST_P(GradientTest, EveryOpAgreesWithFiniteDifferences) {
  for (const std::string& path : OpGoldenPaths()) {
    const auto goldens = ReadGoldens(path);
    ASSERT_TRUE(goldens.ok()) << goldens.status();
    for (const GoldenCase& golden : *goldens) {
      // Ties: the maximum has no derivative there; the golden states which subgradient we take.
      if (golden.name == "reduce_max_ties") continue;
      SCOPED_TRACE(golden.name);
      auto run = MakeTrainingCase(golden, GetParam());
      ASSERT_TRUE(run.ok()) << run.status();
      CheckAll(*run, 7);
    }
  }
}

TEST_P(GradientTest, DropoutAgreesWithFiniteDifferencesUnderItsOwnMask) {
  auto graph = opdag::ParseGraph(R"(graph "dropout" {
    t = placeholder() {role="tokens", dtype="i32", shape=[1, 1]}
    x = embedding(t) {vocab=1, dim=40}
    y = dropout(x) {rate=0.4}
    z = square(y)
    loss = reduce(z) {kind="sum", axes=[0, 1, 2]}
    param @x.wte f32[1, 40] normal(1)
    return loss })",
                                 "dropout.dag");
  ASSERT_TRUE(graph.ok()) << graph.status();
  auto run = MakeTrainingCase(*std::move(graph), 1, GetParam());
  ASSERT_TRUE(run.ok()) << run.status();
  CheckAll(*run, 3);
  const std::vector<double> gradient = run->Gradient(0);
  const auto zeros = std::count(gradient.begin(), gradient.end(), 0.0);
  EXPECT_GT(zeros, 4) << "something was dropped";
  EXPECT_LT(zeros, 30) << "something was kept";
}

TEST_P(GradientTest, RandomGraphsAgreeWithFiniteDifferences) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const opdag::Graph graph = opdag::testing::RandomGraph({.seed = seed, .ops = static_cast<int>(3 + seed % 25)});
    auto run = MakeTrainingCase(graph, 1 + static_cast<int64_t>(seed % 3), GetParam(), seed);
    ASSERT_TRUE(run.ok()) << run.status();
    tensor::Tensor& x = run->evaluator->value(run->training.graph.op(0).outputs[0]);
    const base::CounterRng rng(seed, "x");
    for (int64_t i = 0; i < x.type().elements(); ++i) x.f32()[i] = rng.Normal(i);
    CheckAll(*run, seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GradientTest, testing::ValuesIn(kernels::BackendNames()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fusionllm::numerics
