// The program itself, on the CPU: both models train, and what cannot be is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/daemon/testing/program.h"

namespace fusionllm::workload {
namespace {

using daemon::Program;

std::vector<std::string> OneStep(std::vector<std::string> of_model) {
  const std::vector<std::string> common = {"--device", "cpu", "--micro-batch", "2", "--warm", "1", "--steps", "1"};
  of_model.insert(of_model.end(), common.begin(), common.end());
  return of_model;
}

struct Case {
  std::string name;
  std::vector<std::string> arguments;
};

class TrainingBench : public ::testing::TestWithParam<Case> {};

TEST_P(TrainingBench, ReportsItsRate) {
  Program program("training_bench", OneStep(GetParam().arguments));
  const nlohmann::json report = nlohmann::json::parse(program.Line(), nullptr, false);
  EXPECT_EQ(program.Wait(), 0);
  ASSERT_TRUE(report.is_object());
  EXPECT_GT(report["per_second"], 0);
  EXPECT_EQ(report["steps"], 1);
  EXPECT_TRUE(std::isfinite(report["last_loss"].get<double>()));
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrainingBench,
    ::testing::Values(Case{"gpt2", {"--layers", "1", "--heads", "2", "--width", "16", "--vocabulary", "32", "--sequence", "8"}},
                      Case{"resnet", {"--model", "resnet", "--depth", "18", "--image-size", "64", "--classes", "20"}},
                      Case{"resnet_of_few_classes", {"--model", "resnet", "--depth", "18", "--image-size", "32", "--classes", "3"}}),
    [](const ::testing::TestParamInfo<Case>& info) { return info.param.name; });

class TrainingBenchRefuses : public ::testing::TestWithParam<Case> {};

TEST_P(TrainingBenchRefuses, WithBadInputsExitCodeAndASentence) {
  Program program("training_bench", OneStep(GetParam().arguments), STDERR_FILENO);
  EXPECT_THAT(program.Line(), ::testing::HasSubstr(GetParam().name));
  EXPECT_EQ(program.Wait(), 2);
}

INSTANTIATE_TEST_SUITE_P(Flags, TrainingBenchRefuses,
                         ::testing::Values(Case{"--heads", {"--heads", "0"}},
                                           Case{"12 is no multiple of 5", {"--heads", "5", "--width", "12"}},
                                           Case{"--depth", {"--model", "resnet", "--depth", "19"}},
                                           Case{"--image-size", {"--model", "resnet", "--image-size", "0"}},
                                           Case{"--classes", {"--model", "resnet", "--classes", "0"}},
                                           Case{"--sequence", {"--sequence", "-1"}}),
                         [](const ::testing::TestParamInfo<Case>& info) { return std::to_string(info.index); });

TEST(TrainingBenchDevice, IsRefusedWhereThereIsNoSuch) {
  Program program("training_bench", {"--device", "gpu"}, STDERR_FILENO);
  EXPECT_THAT(program.Line(), ::testing::HasSubstr("'gpu' is no device"));
  EXPECT_EQ(program.Wait(), 2);
}

}  // namespace
}  // namespace fusionllm::workload
