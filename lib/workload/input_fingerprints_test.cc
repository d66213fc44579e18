#include "lib/workload/input_fingerprints.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::workload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(InputFingerprintsTest, ReportsChangedGraphAndWeightsUnderSamePaths) {
  const base::TempFolder folder;
  job::FusionJob job;
  job.spec.model.graph = job::GraphSource{.file = "net.dag"};
  job.spec.model.init.from = "start";
  folder.Write("net.dag", "relu");
  folder.Write("start/model.safetensors", "weights");
  const InputFingerprints then = FingerprintInputs(job, folder.path());
  ASSERT_EQ(then.size(), 2u);
  EXPECT_EQ(ChangedInputs(then, FingerprintInputs(job, folder.path())), "");
  folder.Write("net.dag", "gelu");
  EXPECT_THAT(ChangedInputs(then, FingerprintInputs(job, folder.path())),
              AllOf(HasSubstr("spec.model.graph.file names holds 4 bytes, digest"), HasSubstr("instead of 4 bytes, digest")));
  folder.Write("net.dag", "relu");
  folder.Write("start/model.safetensors", "other weights");
  EXPECT_THAT(ChangedInputs(then, FingerprintInputs(job, folder.path())), HasSubstr("spec.model.init.from names holds 13 bytes"));
}

TEST(InputFingerprintsTest, UnreadableOrUnrecordedInputsAreNotCompared) {
  const base::TempFolder folder;
  job::FusionJob job;
  job.spec.model.graph = job::GraphSource{.file = "nowhere.dag"};
  job.spec.model.init.from = "s3://bucket/start";
  EXPECT_TRUE(FingerprintInputs(job, folder.path()).empty());
  EXPECT_EQ(ChangedInputs({}, {{"spec.data.path", "10 bytes"}}), "");
  EXPECT_EQ(ChangedInputs({{"spec.data.path", "10 bytes"}}, {}), "");
}

}  // namespace
}  // namespace fusionllm::workload
