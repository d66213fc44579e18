#include "operator/manager/config_reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/manager/config_fields.h"

namespace fusionllm::op::manager {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

class ConfigReloadTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { base::StartLog(kProgram, base::LogLevel::kInfo); }

  // As the program begins with this file, and these flags beside --config.
  void Begin(const std::string& settings, std::vector<std::string> arguments = {}) {
    Write(settings);
    arguments_ = std::move(arguments);
    arguments_.insert(arguments_.begin(), {kProgram, absl::StrCat("--config=", path_)});
    for (const std::string& argument : arguments_) argv_.push_back(argument.c_str());
    const CommandLine line{static_cast<int>(argv_.size()), argv_.data()};
    absl::StatusOr<Flags> flags = MergeFlags(ReadConfigFile(path_).value(), path_, line);
    ASSERT_TRUE(flags.ok()) << flags.status();
    first_ = *flags;
    const auto apply = [this](const Flags& now) {
      const std::lock_guard lock(mutex_);
      applied_.push_back(now);
      changed_.notify_all();
    };
    reload_.emplace(*flags, line, apply, clock_, metrics_);
  }
  void Write(const std::string& settings) const {
    folder_.Write("operator.yaml", absl::StrCat("apiVersion: config.fusionllm.io/v1alpha1\nkind: OperatorConfig\n", settings));
  }
  // What it logs.
  std::string Look() {
    ::testing::internal::CaptureStderr();
    reload_->Look();
    return ::testing::internal::GetCapturedStderr();
  }
  std::string Metrics() { return registry_.Text(); }

  const base::TempFolder folder_;
  std::string path_ = folder_ / "operator.yaml";
  kube::testing::FakeClock clock_;
  metrics::Registry registry_{"test", "0"};
  ConfigMetrics metrics_{registry_};
  std::vector<std::string> arguments_;
  std::vector<const char*> argv_;
  Flags first_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Flags> applied_;
  std::optional<ConfigReload> reload_;
};

TEST_F(ConfigReloadTest, TheLogLevelAndTheHubsRatesHoldAtOnce) {
  Begin("workers: 3\n");
  EXPECT_THAT(Look(), IsEmpty()) << "it is as it was read";
  Write("workers: 3\nlogLevel: warning\nkubeApiQps: 7\nkubeApiBurst: 9\n");
  EXPECT_THAT(Look(), HasSubstr("changed, and in force: kubeApiQps, kubeApiBurst, logLevel"));
  ASSERT_THAT(applied_, SizeIs(1));
  EXPECT_EQ(applied_[0].common.log_level, "warning");
  EXPECT_EQ(applied_[0].hub_qps, 7);
  EXPECT_EQ(applied_[0].hub_burst, 9);
  EXPECT_THAT(Differences(first_, applied_[0]), UnorderedElementsAreArray(kReloadable)) << "and no others change";
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(applied_, SizeIs(1)) << "once for each change";
}

TEST_F(ConfigReloadTest, WhatElseHasChangedIsNamedAndWaits) {
  Begin("workers: 3\nwatchNamespaces: [a]\n");
  Write("workers: 4\nwatchNamespaces: [a, b]\nmemberCacheMib: 96\nlogLevel: debug\n");
  EXPECT_THAT(Look(), HasSubstr("needs a restart: watchNamespaces, memberCacheMib, workers\n"));
  ASSERT_THAT(applied_, SizeIs(1));
  EXPECT_THAT(Differences(first_, applied_[0]), ElementsAre("logLevel"));
  EXPECT_THAT(Look(), IsEmpty()) << "said once";
  Write("workers: 3\nwatchNamespaces: [a]\n");
  EXPECT_THAT(Look(), Not(HasSubstr("restart"))) << "it is again as it was at the start";
}

TEST_F(ConfigReloadTest, AFileThatHasBecomeWrongChangesNothing) {
  Begin("kubeApiQps: 7\n");
  EXPECT_THAT(Metrics(), HasSubstr("fusionllm_config_last_reload_successful 1"));
  const std::string well = "fusionllm_config_last_reload_success_timestamp_seconds 1700000000";
  EXPECT_THAT(Metrics(), HasSubstr(well));
  clock_.Advance(absl::Minutes(1));
  Write("logLevel: debug\nkubeApiQps: 0\n");
  EXPECT_THAT(Look(), HasSubstr(absl::StrCat("what it said before stays in force: ", path_, ":4: kubeApiQps: must be at least 1, got 0")));
  EXPECT_THAT(Look(), IsEmpty()) << "said once";
  EXPECT_THAT(Metrics(), HasSubstr("fusionllm_config_last_reload_successful 0"));
  EXPECT_THAT(Metrics(), HasSubstr(well));
  std::filesystem::remove(path_);
  EXPECT_THAT(Look(), HasSubstr("stays in force"));
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(applied_, IsEmpty());
  Write("kubeApiQps: 7\n");
  EXPECT_THAT(Look(), HasSubstr("in order again"));
  EXPECT_THAT(Metrics(), HasSubstr("fusionllm_config_last_reload_successful 1"));
  EXPECT_THAT(Metrics(), HasSubstr("fusionllm_config_last_reload_success_timestamp_seconds 1700000060"));
  EXPECT_THAT(applied_, IsEmpty()) << "nothing differs";
}

TEST_F(ConfigReloadTest, WhatTheCommandLineSaysStays) {
  Begin("kubeApiQps: 7\n", {"--log-level=error"});
  Write("kubeApiQps: 8\nlogLevel: debug\n");
  (void)Look();
  ASSERT_THAT(applied_, SizeIs(1));
  EXPECT_EQ(applied_[0].hub_qps, 8);
  EXPECT_EQ(applied_[0].common.log_level, "error");
}

TEST_F(ConfigReloadTest, ForcedReloadReportsErrorsAgain) {
  const auto look = [&] {
    ::testing::internal::CaptureStderr();
    reload_->Look(/*force=*/true);
    return ::testing::internal::GetCapturedStderr();
  };
  Begin("workers: 3\n");
  EXPECT_THAT(look(), IsEmpty());
  Write("workers: 4\nlogLevel: warning\n");
  EXPECT_THAT(Look(), HasSubstr("needs a restart: workers"));
  EXPECT_THAT(look(), HasSubstr("needs a restart: workers"));
  ASSERT_THAT(applied_, SizeIs(1)) << "what is in force is not made so again";
  Write("workers: none\n");
  EXPECT_THAT(look(), HasSubstr("stays in force"));
  EXPECT_THAT(look(), HasSubstr("stays in force"));
}

TEST_F(ConfigReloadTest, ForcedReloadIsImmediate) {
  Begin("workers: 3\n");
  reload_->Start();
  Write("workers: 3\nkubeApiQps: 7\n");
  reload_->LookSoon();  // no time passes on this clock
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1), [&] { return !applied_.empty(); }));
  EXPECT_EQ(applied_[0].hub_qps, 7);
}

// As the kubelet brings a new ConfigMap: the file is a link into a folder that is a link, and that one is exchanged.
TEST_F(ConfigReloadTest, AnExchangedLinkIsSeenWithinSeconds) {
  const std::string head = "apiVersion: config.fusionllm.io/v1alpha1\nkind: OperatorConfig\n";
  folder_.Write("..one/operator.yaml", head + "logLevel: info\n");
  folder_.Write("..two/operator.yaml", head + "logLevel: debug\n");
  std::filesystem::create_symlink("..one", folder_ / "..data");
  path_ = folder_ / "mounted.yaml";
  std::filesystem::create_symlink("..data/operator.yaml", path_);
  Begin("");
  reload_->Start();
  std::filesystem::create_symlink("..two", folder_ / "..next");
  std::filesystem::rename(folder_ / "..next", folder_ / "..data");
  // Its thread may not wait yet when time passes for the first time.
  bool seen = false;
  for (int i = 0; i < 2000 && !seen; ++i) {
    clock_.Advance(ConfigReload::kEvery);
    std::unique_lock lock(mutex_);
    seen = changed_.wait_for(lock, std::chrono::milliseconds(10), [&] { return !applied_.empty(); });
  }
  ASSERT_TRUE(seen);
  EXPECT_EQ(applied_[0].common.log_level, "debug");
}

}  // namespace
}  // namespace fusionllm::op::manager
