// Both back ends, through Differentiate, against what PyTorch computed in double precision.
//
// Tolerances are relative to the largest expected element of a tensor. Ops: 2e-6 (sixteen roundings of fp32) unless the case says more;
// the norms say 1e-5, because they subtract a mean. Models: a gradient may be four times as far off as PyTorch's own fp32 is in its worst
// parameter (batch norm over few samples amplifies roundings, so that is 1e-6 for GPT-2 and a percent for ResNet-50); the loss 1e-5.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/kernels/backend.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/resnet/graph.h"
#include "tests/numerics/formula.h"
#include "tests/numerics/training_case.h"

namespace fusionllm::numerics {
namespace {

constexpr double kOpTolerance = 2e-6;
constexpr double kTimesPyTorch = 4;
constexpr double kLargestFp32Error = 2.5e-5;
constexpr double kLossTolerance = 1e-5;

double ElementOf(const tensor::Tensor& tensor, int64_t i) {
  if (tensor.type().dtype == tensor::DType::kI32) return tensor.as<int32_t>()[i];
  if (tensor.type().dtype == tensor::DType::kI64) return static_cast<double>(tensor.as<int64_t>()[i]);
  return tensor.f32()[i];
}

std::vector<double> ElementsOf(const tensor::Tensor& tensor) {
  std::vector<double> elements;
  for (int64_t i = 0; i < tensor.type().elements(); ++i) elements.push_back(ElementOf(tensor, i));
  return elements;
}

void ExpectClose(const std::vector<double>& got, const GoldenTensor& want, double tolerance, absl::string_view what) {
  ASSERT_EQ(got.size(), want.numbers.size()) << what;
  double largest = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(want.numbers[i]));
    worst = std::isfinite(got[i]) ? std::max(worst, std::abs(got[i] - want.numbers[i])) : INFINITY;
  }
  EXPECT_LE(worst, tolerance * std::max(largest, 1e-3)) << what << ": largest expected element " << largest;
}

opdag::ValueId ValueNamed(const opdag::Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.values().size(); ++i) {
    if (graph.value(i).name == name) return static_cast<opdag::ValueId>(i);
  }
  return opdag::kNone;
}

class GoldenTest : public ::testing::TestWithParam<absl::string_view> {};

TEST_P(GoldenTest, EveryOpGivesPyTorchsOutputsGradientsAndState) {
  int cases = 0;
  for (const std::string& path : OpGoldenPaths()) {
    const auto goldens = ReadGoldens(path);
    ASSERT_TRUE(goldens.ok()) << goldens.status();
    for (const GoldenCase& golden : *goldens) {
      SCOPED_TRACE(absl::StrCat(path, " ", golden.name));
      auto run = MakeTrainingCase(golden, GetParam());
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_TRUE(run->Step().ok());
      const opdag::Graph& graph = run->training.graph;
      const double tolerance = golden.tolerance > 0 ? golden.tolerance : kOpTolerance;
      for (const auto& [name, want] : golden.tensors.at("value")) {
        const opdag::ValueId value = ValueNamed(graph, name);
        ASSERT_NE(value, opdag::kNone) << name;
        ASSERT_EQ(graph.value(value).type, want.type) << name;
        ExpectClose(ElementsOf(run->evaluator->value(value)), want, tolerance, absl::StrCat("value ", name));
      }
      for (const auto& [name, want] : golden.tensors.at("grad")) {
        ExpectClose(run->Gradient(graph.FindParameter(name)), want, tolerance, absl::StrCat("gradient of ", name));
      }
      if (const auto states = golden.tensors.find("state"); states != golden.tensors.end()) {
        for (const auto& [name, want] : states->second) {
          ExpectClose(ElementsOf(run->evaluator->parameter(graph.FindParameter(name))), want, tolerance, absl::StrCat("state ", name));
        }
      }
      ++cases;
    }
  }
  EXPECT_GT(cases, 70);
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Trainable parameters in the order of their names.
std::vector<opdag::ParameterId> Trainable(const opdag::Graph& graph) {
  std::vector<opdag::ParameterId> ids;
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    if (graph.parameter(i).trainable) ids.push_back(static_cast<opdag::ParameterId>(i));
  }
  std::sort(ids.begin(), ids.end(), [&graph](auto a, auto b) { return graph.parameter(a).name < graph.parameter(b).name; });
  return ids;
}

// Moves the bias of a batch norm away from zero, each channel to the side that the formula says.
void ShiftBias(const tensor::TensorView& bias, uint64_t number, double shift) {
  for (int64_t i = 0; i < bias.type.elements(); ++i) {
    const float side = FormulaElement(number, i, 1, 0);
    if (side != 0) bias.f32()[i] = static_cast<float>(bias.f32()[i] + (side > 0 ? shift : -shift));
  }
}

bool IsBatchNormBias(const opdag::Graph& graph, const std::string& name) {
  static const std::string kEnd = ".bias";
  return EndsWith(name, kEnd) && graph.FindParameter(name.substr(0, name.size() - kEnd.size()) + ".running_mean") != opdag::kNone;
}

// make_goldens.py's fill().
void FillCase(TrainingCase& run, double norm_weight_mean, double norm_bias) {
  const opdag::Graph& graph = run.training.graph;
  const std::vector<opdag::ParameterId> ids = Trainable(graph);
  for (size_t number = 0; number < ids.size(); ++number) {
    const opdag::Parameter& parameter = graph.parameter(ids[number]);
    const tensor::Shape& shape = parameter.type.shape;
    const bool matrix = shape.rank() > 1;
    const bool norm_weight = !matrix && EndsWith(parameter.name, "weight");
    const int64_t fan = matrix ? shape.elements() / shape[0] : 1;
    FillByFormula(run.evaluator->parameter(ids[number]).view(), number, matrix ? 3 / std::sqrt(static_cast<double>(fan)) : 0.2,
                  norm_weight ? norm_weight_mean : 0);
    if (IsBatchNormBias(graph, parameter.name)) ShiftBias(run.evaluator->parameter(ids[number]).view(), number + 5000, norm_bias);
  }
}

absl::StatusOr<opdag::Graph> BuildModel(const GoldenCase& golden) {
  const auto option = [&golden](const char* name) { return golden.options.at(name); };
  if (option("family") == "gpt2") {
    return models::BuildGpt2(
        {.layers = 2, .heads = 2, .embd = 16, .vocab = 31, .positions = 12, .sequence = 8, .tied = option("tied") == "1"});
  }
  return models::BuildResNet(
      {.depth = std::stoi(option("depth")), .stem = option("stem"), .num_classes = 10, .image_size = std::stoi(option("size"))});
}

TEST_P(GoldenTest, Gpt2AndResNetGiveTheLossAndGradientsOfTransformersAndTorchvision) {
  const auto goldens = ReadGoldens("tests/numerics/golden/models.golden");
  ASSERT_TRUE(goldens.ok()) << goldens.status();
  ASSERT_EQ(goldens->size(), 4u);
  for (const GoldenCase& golden : *goldens) {
    SCOPED_TRACE(golden.name);
    auto graph = BuildModel(golden);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const int64_t batch = golden.tensors.at("feed").begin()->second.type.shape[0];
    auto run = MakeTrainingCase(*std::move(graph), batch, GetParam());
    ASSERT_TRUE(run.ok()) << run.status();
    const opdag::Graph& typed = run->training.graph;
    const bool images = typed.FindOp("images") != opdag::kNone;
    FillCase(*run, images ? 0.3 : 1, images ? std::stod(golden.options.at("norm_bias")) : 0);
    for (const auto& [name, feed] : golden.tensors.at("feed")) {
      CopyNumbers(feed, run->evaluator->value(typed.op(typed.FindOp(name)).outputs[0]).view());
    }
    if (images) {
      FillByFormula(run->evaluator->value(typed.op(typed.FindOp("images")).outputs[0]).view(), std::stoull(golden.options.at("pictures")),
                    2, 0);
    }
    ASSERT_TRUE(run->Step().ok());
    const double loss = golden.tensors.at("value").at("loss").numbers[0];
    EXPECT_NEAR(run->evaluator->loss(), loss, kLossTolerance * loss);

    const double fp32_error = golden.tensors.at("value").at("fp32_error").numbers[0];
    EXPECT_LT(fp32_error, kLargestFp32Error) << "a golden that PyTorch itself misses in fp32 shows little";
    const double tolerance = kTimesPyTorch * fp32_error;
    const std::vector<opdag::ParameterId> ids = Trainable(typed);
    ASSERT_EQ(ids.size(), golden.tensors.at("digest").size()) << "as many trainable parameters as the original has";
    for (size_t number = 0; number < ids.size(); ++number) {
      const std::string& name = typed.parameter(ids[number]).name;
      const auto digest = golden.tensors.at("digest").find(name);
      ASSERT_NE(digest, golden.tensors.at("digest").end()) << name << " is not a name of the original";
      tensor::Tensor direction(typed.parameter(ids[number]).type);
      FillByFormula(direction.view(), number + 7, 2, 0);
      const std::vector<double> gradient = run->Gradient(ids[number]);
      double squares = 0, product = 0;
      for (size_t i = 0; i < gradient.size(); ++i) {
        squares += gradient[i] * gradient[i];
        product += gradient[i] * direction.f32()[i];
      }
      // The product of an error with a direction of elements up to one: about half the error's norm.
      const double norm = digest->second.numbers[0];
      const double allowed = tolerance * std::max(norm, 1e-3);
      EXPECT_NEAR(std::sqrt(squares), norm, allowed) << name;
      EXPECT_NEAR(product, digest->second.numbers[1], 2 * allowed) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenTest, ::testing::ValuesIn(kernels::BackendNames()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fusionllm::numerics
