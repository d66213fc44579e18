#include "operator/manifests/data_volumes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op::manifests {
namespace {

using ::testing::HasSubstr;

job::Spec Spec(std::vector<std::string> paths) {
  job::Spec spec;
  spec.data.path = std::move(paths);
  return spec;
}

TEST(DataVolumesTest, ARelativePathWithoutAVolumeIsNamed) {
  const absl::Status status = CheckDataVolumes(Spec({"s3://texts/a", "../../README.md"}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.data.path: ../../README.md"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("fusionctl kubernetes prepare")) << "the remedy is a command";
}

TEST(DataVolumesTest, SoIsOneOfValidation) {
  job::Spec spec = Spec({"/corpus"});
  spec.data.validation.emplace().path = {"docs"};
  EXPECT_THAT(std::string(CheckDataVolumes(spec).message()), HasSubstr("spec.data.validation.path: docs"));
}

TEST(DataVolumesTest, SoIsTheStartUnlessItMayLieInAVolume) {
  job::Spec spec = Spec({"s3://texts/a"});
  spec.model.init.from = "hf/model.safetensors";
  EXPECT_THAT(std::string(CheckDataVolumes(spec).message()), HasSubstr("spec.model.init.from: hf/model.safetensors"));
  spec.checkpoint.emplace().volume.json = R"({"persistentVolumeClaim": {"claimName": "runs"}})";
  EXPECT_TRUE(CheckDataVolumes(spec).ok());
  spec.checkpoint.reset();
  spec.broker.pod_template.json = R"({"spec": {"containers": [{"name": "broker", "volumeMounts": [{"name": "m", "mountPath": "/m"}]}]}})";
  EXPECT_TRUE(CheckDataVolumes(spec).ok());
  spec.broker.pod_template.json.clear();
  spec.model.init.from = "s3://models/a";
  EXPECT_TRUE(CheckDataVolumes(spec).ok());
}

TEST(DataVolumesTest, WhatMayBeThereIsNotJudged) {
  EXPECT_TRUE(CheckDataVolumes(Spec({})).ok()) << "data that are made up need no file";
  EXPECT_TRUE(CheckDataVolumes(Spec({"s3://texts/a", "/corpus/a"})).ok());
  job::Spec spec = Spec({"corpus"});
  spec.data.volume.json = R"({"configMap": {"name": "text"}})";
  EXPECT_TRUE(CheckDataVolumes(spec).ok());
  spec.data.volume.json.clear();
  for (const char* what : {R"("image": "mine:1")", R"("volumeMounts": [{"name": "mine", "mountPath": "/data"}])"}) {
    spec.executors.pod_template.json = absl::StrCat(R"({"spec": {"containers": [{"name": "executor", )", what, "}]}}");
    EXPECT_TRUE(CheckDataVolumes(spec).ok()) << what;
  }
  spec.executors.pod_template.json =
      R"({"spec": {"containers": [{"name": "executor", "resources": {}}, {"name": "log", "image": "l:1"}]}})";
  EXPECT_FALSE(CheckDataVolumes(spec).ok());
}

}  // namespace
}  // namespace fusionllm::op::manifests
