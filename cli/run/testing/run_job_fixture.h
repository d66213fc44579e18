// A small job, run with stand-ins for the programs that play a script (fake_service.cc), in a folder of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/run/run_job.h"
#include "cli/run/testing/session_fixture.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"

namespace fusionllm::cli {

inline constexpr char kJob[] = R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: small}
spec:
  model: {family: mlp, config: {layers: [3072, 16, 10]}}
  data: {kind: shapes}
  training: {steps: 2, globalBatchSize: 4}
)";
inline constexpr char kLinkSummary[] =
    R"(print {"type":"summary","steps":2,"final_loss":5.25,"median_step_seconds":0.5,"links":[{"src":"paris-0","dst":"tokyo-0",)"
    R"("bytes":4000,"codec":"fp32","ratio":1}],"stages":[]})";

class RunJobTest : public ::testing::Test {
 protected:
  RunJobTest() {
    for (const char* role : {"scheduler", "broker", "executor"}) {
      const std::string path = folder_.Write(absl::StrCat("bin/fusion-", role), absl::StrCat("#!/bin/sh\nexec ", FAKE_SERVICE, " ", role,
                                                                                             " ", folder_ / "script", " \"$@\"\n"));
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    auto job = job::ParseFusionJob(kJob, "job.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    options_.job = *job;
    options_.output = folder_ / "out/";
    options_.bin_folder = folder_ / "bin";
  }

  void Script(const std::vector<std::string>& lines) { folder_.Write("script", absl::StrJoin(lines, "\n") + "\n"); }

  absl::StatusOr<RunJobResult> Run() {
    SignalWatch signals;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    absl::StatusOr<RunJobResult> result = RunJob(options_, signals);
    stdout_ = ::testing::internal::GetCapturedStdout();
    stderr_ = ::testing::internal::GetCapturedStderr();
    return result;
  }

  base::TempFolder folder_;
  RunJobOptions options_;
  std::string stdout_, stderr_;
};

}  // namespace fusionllm::cli
