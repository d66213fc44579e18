// Runs over two sites that keep their shards themselves, each in a folder of its own, beside the machine that started the run.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/reader.h"
#include "tests/integration/join_fixture.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
namespace fs = std::filesystem;

constexpr char kToBroker[] = "spec.checkpoint={path: checkpoints, everySteps: 10, shards: Broker}";
constexpr char kWithReplica[] = "spec.checkpoint={path: checkpoints, everySteps: 10, replica: {path: copies}}";
constexpr int64_t kSteps = 400;

class JoinSitesTest : public JoinTest {
 protected:
  void SetUp() override {
    if (const std::string why = CannotHide(); !why.empty()) GTEST_SKIP() << why;
  }

  // The only machine of its site, which has not the run's folder.
  std::unique_ptr<Fusionctl> Site(const std::string& machine, const std::string& site) {
    return Hidden(machine, {"--site", site, "--site-checkpoints", Folder(site)});
  }
  std::string Folder(const std::string& site) const { return folder_ / site; }

  // Files of shards below a folder of a site.
  static std::vector<std::string> ShardsIn(const std::string& folder) {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
      if (absl::EndsWith(entry.path().string(), ".safetensors")) found.push_back(entry.path().string());
    }
    return found;
  }
  std::vector<std::string> FilesOf(int64_t step) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(absl::StrFormat("%s/checkpoints/step-%06d", Out("run"), step))) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  static std::vector<std::string> EventsNamed(const Fusionctl& run, const std::string& reason) {
    std::vector<std::string> messages;
    for (const json& line : run.lines()) {
      if (line.value("reason", "") == reason) messages.push_back(line.value("message", ""));
    }
    return messages;
  }

  // The broker of the run in Out("run"); 0: there is none.
  pid_t Broker() const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      int pid = 0;
      if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
      const std::string command = base::ReadWholeFile(entry.path() / "cmdline");
      if (absl::StrContains(command, "/fusion-broker") && absl::StrContains(command, Out("run"))) return pid;
    }
    return 0;
  }

  // Of the checkpoint of `step`.
  static std::vector<std::string> Recalled(const Fusionctl& run, int64_t step) {
    std::vector<std::string> messages;
    for (const json& line : run.lines()) {
      if (line.value("reason", "") == "ShardFetched" && line.value("step", int64_t{0}) == step)
        messages.push_back(line.value("message", ""));
    }
    return messages;
  }

  // Of a run whose stages are the same ops on the same names each time, whoever comes first.
  static Settings With(const std::string& checkpoint) {
    return {absl::StrCat("spec.training.steps=", kSteps), "spec.strategy.stages=3",
            "spec.strategy.pins=[{ops: block.0.*, device: local-0}, {ops: block.1.*, device: p}, {ops: block.2.*, device: t}]", checkpoint};
  }
  // Stops a run of three stages in its middle: here, p in paris, t in tokyo. Returns its last step.
  int64_t Interrupted(const Settings& settings) {
    const auto run = Listen(3, settings);
    const auto paris = Site("p", "paris"), tokyo = Site("t", "tokyo");
    EXPECT_TRUE(run->WaitForStep(12)) << run->words() << paris->words() << tokyo->words();
    run->Interrupt();
    EXPECT_EQ(run->Wait(), 130) << run->words();
    EXPECT_NE(paris->Wait(), -1);
    EXPECT_NE(tokyo->Wait(), -1);
    return run->LossBits().empty() ? 0 : run->LossBits().back().first;
  }
  // The same, of a run that had no time to bring the last checkpoint's parts here.
  int64_t Cut(const Settings& settings) {
    const int64_t done = Interrupted(settings);
    for (const auto& entry : fs::directory_iterator(Out("run") + "/checkpoints")) {
      const auto manifest = checkpoint::LoadManifest(entry.path().string());
      if (!manifest.ok() || entry.is_symlink()) continue;
      for (const checkpoint::FileEntry& file : manifest->files) {
        if (!file.site.empty()) fs::remove(entry.path() / file.name);
      }
    }
    return done;
  }
  std::unique_ptr<Fusionctl> Undisturbed() {
    auto alone = Alone({absl::StrCat("spec.training.steps=", kSteps)}, "undisturbed");
    EXPECT_EQ(alone->Wait(), 0) << alone->words();
    return alone;
  }
};

TEST_F(JoinSitesTest, ShardsLieInTheirSitesAndARestoreWithTheSamePlacementReadsThemThere) {
  const Settings settings = With(kEveryTen);
  const auto undisturbed = Undisturbed();
  const int64_t done = Cut(settings);
  ASSERT_GT(done, 10);
  ASSERT_LT(done, kSteps) << "it was not interrupted in the middle";

  const auto manifest = checkpoint::LoadManifest(absl::StrFormat("%s/checkpoints/step-%06d", Out("run"), done));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::set<std::string> sites;
  for (const checkpoint::FileEntry& file : manifest->files) {
    if (file.site.empty()) continue;
    sites.insert(file.site);
    EXPECT_THAT(FilesOf(done), Not(Contains(file.name)));
    EXPECT_TRUE(fs::exists(absl::StrCat(Folder(file.site), "/shards/", file.site_folder, "/", file.name)));
  }
  EXPECT_THAT(sites, ::testing::ElementsAre("paris", "tokyo"));
  Fusionctl verify(folder_, "verify", {"checkpoint", "verify", Out("run") + "/checkpoints/latest"});
  EXPECT_EQ(verify.Wait(), 2);
  EXPECT_THAT(verify.words(), AllOf(HasSubstr("in site paris"), HasSubstr("in site tokyo"), HasSubstr("replica")));

  const auto run = Listen(3, settings);
  const auto paris = Site("p", "paris"), tokyo = Site("t", "tokyo");
  ASSERT_EQ(run->Wait(), 0) << run->words() << paris->words() << tokyo->words();
  EXPECT_EQ(paris->Wait(), 0) << paris->words();
  EXPECT_EQ(tokyo->Wait(), 0) << tokyo->words();
  EXPECT_EQ(run->Event("Restored").value("step", 0), done);
  ExpectSameLosses(*run, *undisturbed, done + 1, kSteps);
  EXPECT_THAT(Recalled(*run, done), IsEmpty()) << "each stage found its part in its own site";
  EXPECT_THAT(EventsNamed(*run, "ShardsInSites"), SizeIs(1));
  // `keep` is 3: what was pruned here is gone there.
  for (const char* site : {"paris", "tokyo"}) EXPECT_THAT(ShardsIn(Folder(site)), SizeIs(3 * 2)) << site;
  for (const int64_t step : {kSteps - 10, kSteps - 20}) EXPECT_THAT(FilesOf(step), SizeIs(4)) << "one stage's two files, index, manifest";
  EXPECT_THAT(Recalled(*run, kSteps), SizeIs(4)) << "the model is whole in the end";
  Fusionctl whole(folder_, "whole", {"checkpoint", "verify", Out("run") + "/checkpoints/latest"});
  EXPECT_EQ(whole.Wait(), 0) << whole.words();
}

TEST_F(JoinSitesTest, ARunThatIsStoppedHasAllOfItsLastCheckpointHereAndGoesOnInOtherSites) {
  const Settings settings = With(kEveryTen);
  const auto undisturbed = Undisturbed();
  const int64_t done = Interrupted(settings);
  ASSERT_LT(done, kSteps);
  Fusionctl verify(folder_, "verify", {"checkpoint", "verify", Out("run") + "/checkpoints/latest"});
  EXPECT_EQ(verify.Wait(), 0) << verify.words();
  for (const char* site : {"paris", "tokyo"}) ASSERT_GT(fs::remove_all(Folder(site)), 0u);
  const auto run = Listen(3, settings);
  const auto lima = Site("p", "lima"), oslo = Site("t", "oslo");
  ASSERT_EQ(run->Wait(), 0) << run->words() << lima->words() << oslo->words();
  EXPECT_EQ(run->Event("Restored").value("step", 0), done);
  EXPECT_THAT(Recalled(*run, done), IsEmpty());
  ExpectSameLosses(*run, *undisturbed, done + 1, kSteps);
}

TEST_F(JoinSitesTest, AStageThatMovesToAnotherSiteHasItsShardSent) {
  const Settings settings = With(kEveryTen);
  const auto undisturbed = Undisturbed();
  const int64_t done = Cut(settings);
  ASSERT_LT(done, kSteps);
  const auto run = Listen(3, settings);
  const auto in_tokyo = Site("p", "tokyo"), in_paris = Site("t", "paris");
  ASSERT_EQ(run->Wait(), 0) << run->words() << in_tokyo->words() << in_paris->words();
  EXPECT_EQ(run->Event("Restored").value("step", 0), done);
  ExpectSameLosses(*run, *undisturbed, done + 1, kSteps);
  EXPECT_THAT(Recalled(*run, done), SizeIs(4)) << "parameters and optimizer state of two stages, once each";
  EXPECT_THAT(Recalled(*run, done), Contains(HasSubstr("from site paris by t")));
}

TEST_F(JoinSitesTest, ASiteWhoseMachineIsReplacedGivesWhatTheLostOneKept) {
  const Settings settings = {absl::StrCat("spec.training.steps=", kSteps), "spec.strategy.planner=equal-ops", kEveryTen};
  const auto undisturbed = Undisturbed();
  const auto run = Listen(3, settings);
  const auto doomed = Site("p", "paris"), tokyo = Site("t", "tokyo");
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved")) << run->words() << doomed->words() << tokyo->words();
  doomed->Kill();
  ASSERT_TRUE(run->WaitForEvent("ExecutorLost")) << run->words();
  const auto back = Site("q", "paris");
  ASSERT_EQ(run->Wait(), 0) << run->words() << back->words() << tokyo->words();
  // By its own stage, or by another's through the broker: that is the plan's choice.
  EXPECT_THAT(EventsNamed(*run, "CheckpointUnusable"), IsEmpty());
  EXPECT_GE(run->Event("Restored").value("step", 0), 10);
  ExpectSameLosses(*run, *undisturbed, 1, kSteps);
}

TEST_F(JoinSitesTest, ResumesWhenAbsentSiteReturnsInsteadOfRestarting) {
  const Settings settings = With(kEveryTen);
  const auto undisturbed = Undisturbed();
  const int64_t done = Cut(settings);
  ASSERT_LT(done, kSteps);
  fs::rename(Folder("tokyo"), Folder("tokyo") + ".away");
  {
    const auto run = Listen(3, settings);
    const auto paris = Site("p", "paris"), tokyo = Site("t", "tokyo");
    EXPECT_EQ(run->Wait(), 1) << run->words() << paris->words() << tokyo->words();
    EXPECT_THAT(run->words(), AllOf(HasSubstr("site tokyo"), HasSubstr(".safetensors"), HasSubstr("no checkpoint of this run is left")));
  }
  fs::remove_all(Folder("tokyo"));
  fs::rename(Folder("tokyo") + ".away", Folder("tokyo"));
  const auto run = Listen(3, settings);
  const auto paris = Site("p", "paris"), tokyo = Site("t", "tokyo");
  ASSERT_EQ(run->Wait(), 0) << run->words() << paris->words() << tokyo->words();
  EXPECT_EQ(run->Event("Restored").value("step", int64_t{0}), done);
  ExpectSameLosses(*run, *undisturbed, done + 1, kSteps);
}

TEST_F(JoinSitesTest, TheRiskIsReportedOnceHoweverManyBrokersARunHas) {
  const auto run = Listen(3, With(kEveryTen));
  const auto paris = Site("p", "paris"), tokyo = Site("t", "tokyo");
  ASSERT_TRUE(run->WaitForEvent("ShardsInSites")) << run->words() << paris->words() << tokyo->words();
  const pid_t broker = Broker();
  ASSERT_GT(broker, 0);
  ASSERT_EQ(kill(broker, SIGKILL), 0);
  ASSERT_EQ(run->Wait(), 0) << run->words() << paris->words() << tokyo->words();
  EXPECT_THAT(run->words(), HasSubstr("the broker was killed"));
  EXPECT_THAT(EventsNamed(*run, "ShardsInSites"), SizeIs(1));
}

TEST_F(JoinSitesTest, AJobThatWantsAllPartsAtTheBrokerHasNewOnesSentAndReadsOldOnesWhereTheyAre) {
  const int64_t done = Cut(With(kEveryTen));
  ASSERT_LT(done, kSteps - 40) << "three checkpoints are to come, and only they are kept";
  const auto run = Listen(3, With(kToBroker));
  const auto paris = Site("p", "paris"), tokyo = Site("t", "tokyo");
  ASSERT_EQ(run->Wait(), 0) << run->words() << paris->words() << tokyo->words();
  EXPECT_EQ(run->Event("Restored").value("step", int64_t{0}), done);
  EXPECT_THAT(Recalled(*run, done), IsEmpty());
  EXPECT_THAT(EventsNamed(*run, "ShardsInSites"), IsEmpty());
  EXPECT_THAT(EventsNamed(*run, "CollectingShards"), IsEmpty());
  for (const int64_t step : {kSteps, kSteps - 10})
    EXPECT_THAT(FilesOf(step), SizeIs(3 * 2 + 2)) << "files of three stages, index, manifest";
  for (const char* site : {"paris", "tokyo"}) EXPECT_THAT(ShardsIn(Folder(site)), IsEmpty()) << "their checkpoints are gone";
}

TEST_F(JoinSitesTest, ASiteThatIsAwayIsNamedWhileItIsWaitedForAndAnInterruptEndsThat) {
  const Settings settings = With(kEveryTen);
  const int64_t done = Cut(settings);
  ASSERT_LT(done, kSteps);
  const auto run = Listen(3, settings);
  const auto paris = Site("p", "paris"), lima = Site("t", "lima");
  ASSERT_TRUE(run->WaitForEvent("WaitingForSite")) << run->words();
  EXPECT_THAT(EventsNamed(*run, "WaitingForSite"),
              Contains(AllOf(HasSubstr("2 files of "), HasSubstr("site tokyo"), HasSubstr("-of-00003.safetensors"), HasSubstr("s more"))));
  const auto begin = std::chrono::steady_clock::now();
  run->Interrupt();
  EXPECT_EQ(run->Wait(), 130) << run->words();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(120)) << "of the 600 that it would wait";
}

TEST_F(JoinSitesTest, ClosedRunFailsAtOnceWithoutItsSite) {
  const int64_t done = Cut(With(kEveryTen));
  ASSERT_LT(done, kSteps);
  const auto begin = std::chrono::steady_clock::now();
  const auto alone = Alone({absl::StrCat("spec.training.steps=", kSteps), kEveryTen}, "run");
  EXPECT_EQ(alone->Wait(), 1) << alone->words();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(300)) << "of the 600 that others wait";
  EXPECT_THAT(alone->words(), AllOf(HasSubstr("lies in site "), HasSubstr("none can join a run without --listen")));
}

TEST_F(JoinSitesTest, AReplicaSavesARunThatLosesASite) {
  const Settings settings = With(kWithReplica);
  const auto undisturbed = Undisturbed();
  const int64_t done = Cut(settings);
  ASSERT_LT(done, kSteps);
  Fusionctl verify(folder_, "verify", {"checkpoint", "verify", Out("run") + "/copies/latest"});
  EXPECT_EQ(verify.Wait(), 0) << verify.words();
  ASSERT_GT(fs::remove_all(Folder("tokyo")), 0u);
  const auto run = Listen(3, settings);
  const auto paris = Site("p", "paris"), tokyo = Site("t", "tokyo");
  ASSERT_EQ(run->Wait(), 0) << run->words() << paris->words() << tokyo->words();
  EXPECT_THAT(EventsNamed(*run, "ShardsInSites"), IsEmpty());
  EXPECT_THAT(EventsNamed(*run, "CheckpointUnusable"), SizeIs(1));
  std::vector<int64_t> restored;
  for (const json& line : run->lines()) {
    if (line.value("type", "") == "step") break;  // on a busy machine a straggler may be planned around later
    if (line.value("reason", "") == "Restored") restored.push_back(line.value("step", int64_t{0}));
  }
  EXPECT_EQ(restored, (std::vector<int64_t>{done})) << "told once: the copy takes the place of what cannot be had";
  ExpectSameLosses(*run, *undisturbed, done + 1, kSteps);
}

}  // namespace
}  // namespace fusionllm::cli
