// `fusionctl demo` with an executor killed in its first row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lib/base/testing/temp_folder.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double kDemoLimit = 400;  // of three rows, on a busy machine

TEST(DemoTest, ADeviceThatIsLostIsDoneWithoutAndTheTableSaysSo) {
  const base::TempFolder folder;
  const char* const source = std::getenv("FUSIONLLM_SOURCE_DIR");
  FusionctlChild demo({"demo", "--steps", "3", "--source", source == nullptr ? "." : source, "--output", "out", "--format", "json"},
                      folder.path());
  ASSERT_TRUE(demo.WaitForStep(1, kDemoLimit)) << demo.Stderr();
  KillProcess(PidOfStage(demo, 2));
  EXPECT_EQ(demo.Wait(kDemoLimit), 0) << demo.Stderr();
  EXPECT_TRUE(demo.AllProcessesExited(10));

  std::map<std::string, std::vector<size_t>> stages;  // of the plans of each row
  std::map<std::string, std::vector<std::string>> reasons;
  for (const json& line : demo.lines()) {
    const std::string row = line.value("run", "");
    if (line.value("type", "") == "plan") stages[row].push_back(line["stages"].size());
    if (line.value("type", "") == "event") reasons[row].push_back(line["reason"]);
  }
  EXPECT_THAT(stages["naive"], ElementsAre(6, 5));
  EXPECT_THAT(reasons["naive"], AllOf(Contains("ExecutorLost"), Contains("Replanned")));
  EXPECT_THAT(stages["op-fence-all"], ElementsAre(6)) << "all six are there again";
  EXPECT_THAT(reasons["op-fence-all"], Not(Contains("ExecutorLost")));

  ASSERT_FALSE(demo.lines().empty());
  const json& table = demo.lines().back();
  ASSERT_EQ(table.value("type", ""), "demo") << table;
  ASSERT_THAT(table["rows"], SizeIs(3));
  ASSERT_THAT(table["rows"][0]["lost_devices"], SizeIs(1));
  EXPECT_THAT(table["rows"][0]["lost_devices"][0].get<std::string>(),
              AllOf(HasSubstr("paris-2 was lost after step"), HasSubstr("5 stages on")));
  EXPECT_THAT(table["rows"][1]["lost_devices"], IsEmpty());
  for (const json& row : table["rows"]) EXPECT_GT(row["median_step_seconds"], 0);

  // The rows plan from one measurement.
  const std::string measured = base::ReadWholeFile(folder / "out/naive/profiles.json");
  EXPECT_THAT(json::parse(measured)["devices"], SizeIs(6));
  for (const char* row : {"op-fence-all", "op-fence"})
    EXPECT_EQ(base::ReadWholeFile(folder / ("out/" + std::string(row) + "/profiles.json")), measured);
}

}  // namespace
}  // namespace fusionllm::integration
