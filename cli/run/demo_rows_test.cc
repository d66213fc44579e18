#include "cli/run/demo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cli/run/testing/run_job_fixture.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

class DemoRunTest : public RunJobTest {};

TEST_F(DemoRunTest, ADemoComparesItsRowsAfterTheSameSteps) {
  Script({kStep1, kStep2, kLinkSummary, "exit 0"});
  DemoOptions demo;
  demo.steps = 2;
  demo.source = std::getenv("FUSIONLLM_SOURCE_DIR");
  demo.output = folder_ / "demo";
  demo.bin_folder = folder_ / "bin";
  for (const OutputFormat format : {OutputFormat::kText, OutputFormat::kJson}) {
    demo.format = format;
    SignalWatch signals;
    CaptureStdout();
    CaptureStderr();
    const absl::StatusOr<int> code = RunDemo(demo, signals);
    stdout_ = GetCapturedStdout();
    stderr_ = GetCapturedStderr();
    ASSERT_TRUE(code.ok()) << code.status();
    EXPECT_EQ(*code, 0) << stderr_;
    if (format == OutputFormat::kText) {
      EXPECT_THAT(stdout_, AllOf(HasSubstr("loss after 2"), HasSubstr("4.00 kB"), HasSubstr("1.00x"), HasSubstr("5.2500")));
    } else {
      EXPECT_THAT(stdout_, AllOf(HasSubstr(R"("run":"naive")"), HasSubstr(R"("run":"op-fence")"), HasSubstr(R"("type":"demo")")));
    }
  }
  const std::string html = base::ReadWholeFile(folder_ / "demo/report.html");
  for (const char* part : {"id=\"run-2\"", "id=\"comparison\"", "naive (equal ops"}) EXPECT_THAT(html, HasSubstr(part));
}

TEST(DemoTest, RowsDifferInPlannerStagesAndCompressionAlone) {
  const std::string source = std::getenv("FUSIONLLM_SOURCE_DIR");
  const auto job = job::LoadFusionJob(source + "/examples/jobs/demo.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_GT(job->spec.strategy.in_flight, 0) << "the depth is the same in all rows";
  EXPECT_NE(job->spec.strategy.pipeline_schedule, job::PipelineSchedule::kAuto);
  EXPECT_NE(job->spec.training.micro_batch_size, 0);
  for (DemoRow row : DemoRows(*job, 6)) {
    row.job.spec.strategy.planner = job->spec.strategy.planner;
    row.job.spec.strategy.stages = job->spec.strategy.stages;
    row.job.spec.compression = job->spec.compression;
    EXPECT_EQ(row.job, *job) << row.title;
  }
}

}  // namespace
}  // namespace fusionllm::cli
