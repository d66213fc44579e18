#include "lib/workload/remote_start.h"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/job/parse.h"
#include "lib/objectstore/testing/fake_s3.h"
#include "lib/workload/forward_graph.h"

namespace fusionllm::workload {
namespace {

using objectstore::testing::FakeRequest;
using objectstore::testing::FakeS3;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RemoteStartTest : public ::testing::Test {
 protected:
  RemoteStartTest() {
    job_ = *job::ParseFusionJob(
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\nspec:\n"
        "  model: {family: mlp, config: {layers: [3072, 8, 10]}}\n  data: {kind: shapes}\n  training: {steps: 1}\n",
        "job.yaml");
    graph_ = *BuildForwardGraph(job_, "");
  }

  // A file with the graph's parameters; `wrong` gets another shape, `left_out` is not there.
  std::string File(const std::string& wrong = "", const std::string& left_out = "") {
    std::vector<checkpoint::NamedTensor> named;
    for (const opdag::Parameter& parameter : graph_.parameters()) {
      if (parameter.name == left_out) continue;
      const tensor::Shape shape = parameter.name == wrong ? tensor::Shape{7, 3} : parameter.type.shape;
      for (const checkpoint::NamedTensor& one : tensors_.Make({parameter.name}, 1, shape)) named.push_back(one);
    }
    EXPECT_TRUE(checkpoint::WriteSafetensors(folder_ / "f", named).ok());
    return base::ReadWholeFile(folder_ / "f");
  }
  absl::StatusOr<std::vector<std::string>> Check(const std::string& uri) {
    objectstore::ObjectStore store(server_.Settings(), objectstore::testing::FastRetryOptions());
    return CheckRemoteStart(job_, graph_, store, *base::ParseObjectUri(uri));
  }

  base::TempFolder folder_;
  checkpoint::SampleTensors tensors_;
  job::FusionJob job_;
  opdag::Graph graph_;
  FakeS3 server_;
};

TEST_F(RemoteStartTest, WhatFitsIsAcceptedByItsHeadersAlone) {
  const std::string file = File();
  server_.Put("models", "a/model.safetensors", file);
  int64_t most = 0;
  server_.SetHook([&](const FakeRequest& request, kube::testing::RawConnection&) {
    const auto range = request.headers.find("range");
    if (request.method == "GET" && request.key == "a/model.safetensors") {
      EXPECT_NE(range, request.headers.end()) << "the whole file was asked for";
      if (range != request.headers.end()) most = std::max<int64_t>(most, std::stoll(range->second.substr(range->second.find('-') + 1)));
    }
    return false;
  });
  for (const char* uri : {"s3://models/a", "s3://models/a/", "s3://models/a/model.safetensors"}) {
    const auto fits = Check(uri);
    EXPECT_TRUE(fits.ok()) << uri << " " << fits.status();
  }
  EXPECT_GT(most, 8);
  EXPECT_LT(most, 4096) << "of " << file.size();
}

TEST_F(RemoteStartTest, AllThatDiffersIsSaidAtOnceWithTheUri) {
  const std::string wrong = graph_.parameters()[0].name, missing = graph_.parameters()[2].name;
  server_.Put("models", "b/model.safetensors", File(wrong, missing));
  const absl::Status status = Check("s3://models/b").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(wrong), HasSubstr("[7, 3]"), HasSubstr(missing), HasSubstr("s3://models/b"),
                                                   Not(HasSubstr("fusionllm-start"))));
}

TEST_F(RemoteStartTest, ACheckpointIsFoundByLatest) {
  server_.Put("models", "runs/latest", "one\n");
  server_.Put("models", "runs/one/model.safetensors", File());
  EXPECT_TRUE(Check("s3://models/runs").ok());
}

TEST_F(RemoteStartTest, WhatIsNoModelIsRefusedAndWhatIsNotThereNotFound) {
  server_.Put("models", "zip/model.safetensors", absl::StrCat("PK\x03\x04", std::string(100, 'x')));
  server_.Put("models", "brief/model.safetensors", "abc");
  server_.Put("models", "cut/model.safetensors", File().substr(0, 100));
  server_.Put("models", "other/readme.txt", "no model");
  EXPECT_THAT(std::string(Check("s3://models/zip").status().message()), HasSubstr("is a zip"));
  EXPECT_THAT(std::string(Check("s3://models/brief").status().message()), HasSubstr("too few"));
  EXPECT_THAT(std::string(Check("s3://models/cut").status().message()), HasSubstr("is it cut off?"));
  EXPECT_THAT(std::string(Check("s3://models/other").status().message()), HasSubstr("is no checkpoint"));
  EXPECT_TRUE(absl::IsNotFound(Check("s3://models/nothing").status())) << Check("s3://models/nothing").status();
}

TEST_F(RemoteStartTest, NothingStaysHere) {
  server_.Put("models", "a/model.safetensors", File());
  const char* const set = std::getenv("TMPDIR");
  const std::optional<std::string> before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
  setenv("TMPDIR", (folder_ / "absent").c_str(), 1);
  EXPECT_THAT(std::string(Check("s3://models/a").status().message()), HasSubstr("No such file or directory"));
  setenv("TMPDIR", folder_.path().c_str(), 1);
  EXPECT_TRUE(Check("s3://models/a").ok());
  EXPECT_FALSE(Check("s3://models/b").ok());
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().filename(), "f");
  before.has_value() ? setenv("TMPDIR", before->c_str(), 1) : unsetenv("TMPDIR");
}

}  // namespace
}  // namespace fusionllm::workload
