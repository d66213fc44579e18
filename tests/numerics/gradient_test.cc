// Gradients against finite differences of the loss: every op's golden graph, dropout, and random graphs by seed.
//
// For each parameter one direction d, random and twice as much along the gradient, |d| = 1. The derivative of the loss along d comes from
// central differences at steps h and h/2 with Richardson's extrapolation, in fp32 with double products. Tolerance: 2e-3 of |gradient| for
// the step's error, and 3e-5 of the loss's own size for its roundings (fp32 rounds a loss of one to 6e-8, divided by h/2).
//
// ReLU and maxima have no derivative at a kink, so a difference taken across one says nothing. Where the choices they make (kinks.h) are
// other ones at one of the four points, another direction is tried, then half the step; a parameter that finds no way is left out and
// counted.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/opdag/testing/random_graph.h"
#include "lib/opdag/text.h"
#include "tests/numerics/kinks.h"
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

struct Slope {
  double value = 0;
  double loss_size = 0;  // the largest loss on the way
  bool smooth = true;    // no kink on the way
};

Slope MeasureSlope(TrainingCase& run, opdag::ParameterId parameter, const std::vector<double>& direction, double step) {
  const Choices here = ChoicesOf(*run.evaluator, run.training.forward_ops);
  float* data = run.evaluator->parameter(parameter).f32();
  const std::vector<float> start(data, data + direction.size());
  Slope slope;
  const auto at = [&](double t) {
    const double loss = LossAt(run, parameter, start, direction, t);
    slope.loss_size = std::max(slope.loss_size, std::abs(loss));
    slope.smooth = slope.smooth && ChoicesOf(*run.evaluator, run.training.forward_ops) == here;
    return loss;
  };
  const auto difference = [&](double h) {
    const double up = at(h), down = at(-h);
    return (up - down) / (2 * h);
  };
  const double coarse = difference(step), fine = difference(step / 2);
  slope.value = (4 * fine - coarse) / 3;
  std::copy(start.begin(), start.end(), data);
  EXPECT_TRUE(run.Forward().ok());
  return slope;
}

// False when every way crosses a kink: nothing was compared then.
bool CheckParameter(TrainingCase& run, opdag::ParameterId parameter, uint64_t seed) {
  const std::vector<double> gradient = run.Gradient(parameter);
  for (const double step : {kStep, kStep / 2}) {
    for (uint64_t attempt = 0; attempt < 4; ++attempt) {
      const std::vector<double> direction = Direction(gradient, seed + 1000 * attempt);
      const Slope measured = MeasureSlope(run, parameter, direction, step);
      if (!measured.smooth) continue;
      double computed = 0;
      for (size_t i = 0; i < gradient.size(); ++i) computed += gradient[i] * direction[i];
      EXPECT_NEAR(computed, measured.value, kRelative * Norm(gradient) + kRounding * std::max(measured.loss_size, 1.0))
          << "parameter " << run.training.graph.parameter(parameter).name << ", loss " << measured.loss_size;
      return true;
    }
  }
  return false;
}

struct Counts {
  int compared = 0;
  int left_out = 0;
};

Counts CheckAll(TrainingCase& run, uint64_t seed) {
  Counts counts;
  EXPECT_TRUE(run.Step().ok());
  for (size_t i = 0; i < run.training.graph.parameters().size(); ++i) {
    if (!run.training.graph.parameter(i).trainable) continue;
    ++(CheckParameter(run, static_cast<opdag::ParameterId>(i), seed + i) ? counts.compared : counts.left_out);
  }
  return counts;
}

class GradientTest : public ::testing::TestWithParam<absl::string_view> {};

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
      EXPECT_EQ(CheckAll(*run, 7).left_out, 0);
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

void FeedRandomGraph(TrainingCase& run, uint64_t seed) {
  for (const opdag::Op& op : run.training.graph.ops()) {
    if (op.kind != opdag::OpKind::kPlaceholder || op.outputs[0] == run.training.loss_gradient) continue;
    const tensor::TensorView view = run.evaluator->value(op.outputs[0]).view();
    const base::CounterRng rng(seed, op.name);
    for (int64_t i = 0; i < view.type.elements(); ++i) {
      if (view.type.dtype == tensor::DType::kI32) {
        view.as<int32_t>()[i] = static_cast<int32_t>(rng.Below(i, opdag::testing::kRandomGraphVocabulary));
      } else {
        view.f32()[i] = rng.Normal(i);
      }
    }
  }
}

// How often each op type stands in the forward graphs that were compared as a whole; "reduce max" and "shared parameter" stand for those.
using Coverage = std::map<std::string, int>;

void Cover(const TrainingCase& run, Coverage& coverage) {
  for (int id = 0; id < run.training.forward_ops; ++id) {
    const opdag::Op& op = run.training.graph.op(id);
    ++coverage[op.kind == opdag::OpKind::kReduce && op.attributes.Text("kind") == "max" ? "reduce max" : std::string(opdag::Name(op.kind))];
  }
  const std::vector<autodiff::ParameterUse>& uses = run.training.uses;
  for (size_t i = 1; i < uses.size(); ++i) coverage["shared parameter"] += uses[i].parameter == uses[i - 1].parameter;
}

Counts CheckRandomGraphs(bool layers, uint64_t graphs, absl::string_view backend, Coverage& coverage) {
  Counts all;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const opdag::Graph graph = opdag::testing::RandomGraph({.seed = seed, .ops = static_cast<int>(3 + seed % 25), .layers = layers});
    auto run = MakeTrainingCase(graph, 1 + static_cast<int64_t>(seed % 3), backend, seed);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) continue;
    FeedRandomGraph(*run, seed);
    const Counts counts = CheckAll(*run, seed);
    all.compared += counts.compared;
    all.left_out += counts.left_out;
    if (counts.left_out == 0) Cover(*run, coverage);
  }
  return all;
}

TEST_P(GradientTest, RandomGraphsAgreeWithFiniteDifferences) {
  Coverage coverage;
  const Counts counts = CheckRandomGraphs(/*layers=*/false, 150, GetParam(), coverage);
  EXPECT_EQ(counts.left_out, 0);
  EXPECT_GT(counts.compared, 500);
}

TEST_P(GradientTest, RandomGraphsOfLayersAgreeWithFiniteDifferences) {
  Coverage coverage;
  const Counts counts = CheckRandomGraphs(/*layers=*/true, 300, GetParam(), coverage);
  EXPECT_GT(counts.compared, 2000);
  EXPECT_LT(counts.left_out, counts.compared / 50);
  for (const char* what : {"attention", "avg_pool2d", "batch_norm", "conv2d", "dropout", "embedding", "global_avg_pool", "layer_norm",
                           "max_pool2d", "reduce max", "relu", "shared parameter"}) {
    EXPECT_GE(coverage[what], 30) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GradientTest, ::testing::ValuesIn(kernels::BackendNames()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fusionllm::numerics
