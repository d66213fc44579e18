// A run that watches itself, with the real programs: a link that gets slower, a loss that gets out of hand under compression.
#include <csignal>

#include "absl/strings/str_cat.h"
#include "lib/transport/shared_buckets.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kWatchedSteps = 200;
// The gradient of a tied head would be most of what crosses the link.
constexpr char kFreeHead[] = "spec.model.config.tieWeights=false";

class WatchTest : public RunTest {
 protected:
  // Three sites of one device, a-0, a-1 and a-2. The link between the first two is the best; messages of the job take 4 ms of it.
  void WriteSites() {
    std::string text = "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: three}\nspec:\n  sites:\n";
    for (int i = 0; i < 3; ++i) {
      absl::StrAppend(&text, "  - {name: s", i, ", devices: [{name: a-", i,
                      ", computeScale: 1, memory: 1Gi}], internal: {bandwidth: 1Gbit, latency: 1ms}}\n");
    }
    absl::StrAppend(&text, "  links:\n");
    auto profiles = json::parse(base::ReadWholeFile(Path("profiles.json")));
    profiles["links"] = json::array();
    for (int i = 0; i < 3; ++i) {
      profiles["devices"][i]["site"] = absl::StrCat("s", i);
      for (int j = 0; j < 3; ++j) {
        if (i == j) continue;
        const int kbit = i + j == 1 ? 2000 : 1500;
        absl::StrAppend(&text, "  - {from: s", i, ", to: s", j, ", bandwidth: ", kbit, "kbit, latency: 1ms}\n");
        profiles["links"].push_back({{"src", absl::StrCat("a-", i)},
                                     {"dst", absl::StrCat("a-", j)},
                                     {"rtt_seconds", 0.002},
                                     {"bandwidth_bytes_per_second", kbit * 125}});
      }
    }
    folder_.Write("topology.yaml", text);
    folder_.Write("profiles.json", profiles.dump());
  }

  // From now on the link takes so many times as long, for all processes of the run.
  void Degrade(const std::string& link, double times) {
    const auto buckets = transport::SharedBuckets::Open(Path("out/links.state"));
    ASSERT_TRUE(buckets.ok()) << buckets.status();
    const auto bucket = (*buckets)->Find(link);
    ASSERT_TRUE(bucket.ok()) << bucket.status();
    ASSERT_TRUE((*buckets)->SetRate(*bucket, (*buckets)->bytes_per_s(*bucket) / times).ok());
  }

  const std::string steps_ = absl::StrCat("spec.training.steps=", kWatchedSteps);
};

TEST_F(WatchTest, SwitchesPlanAwayFromDegradedLinkWithoutLoss) {
  const auto reference = RunToEnd({steps_, kFreeHead, "spec.strategy.stages=1"}, {}, "reference");
  WriteSites();
  auto run = Start({steps_, kFreeHead, "spec.strategy.stages=2", "spec.checkpoint={path: checkpoints, everySteps: 0}"});
  ASSERT_TRUE(run->WaitForStep(10, kStartLimit)) << run->Stderr();
  // Twenty times: a move must pay on a busy machine, too, where it costs more.
  for (const char* link : {"link:s0->s1", "link:s1->s0"}) Degrade(link, 20);
  const auto event = run->WaitForEvent("LinkDegraded", kRunLimit);
  ASSERT_TRUE(event) << run->Stderr();
  EXPECT_THAT((*event)["device"], ::testing::AnyOf("a-0", "a-1"));
  EXPECT_THAT((*event)["peer"], ::testing::AnyOf("a-0", "a-1"));
  EXPECT_NEAR((*event)["planned"].get<double>(), 250e3, 1e3);
  EXPECT_LT((*event)["measured"].get<double>(), 0.6 * 250e3);
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, BitsOf(*reference), 1, kWatchedSteps);
  const json replanned = Event(*run, "Replanned");
  ASSERT_FALSE(replanned.is_null());
  EXPECT_THAT(replanned["message"].get<std::string>(),
              AllOf(HasSubstr("2 stages"), HasSubstr("a-2"), HasSubstr("s a step"), HasSubstr("instead of")));
  EXPECT_EQ(Event(*run, "Restored")["step"], replanned["step"]) << "from where it stood";
  EXPECT_THAT(Reasons(*run), Not(Contains("ExecutorLost")));
  std::vector<std::string> devices;
  const json summary = Summary(*run);
  for (const json& stage : summary["stages"]) devices.push_back(stage["device"]);
  EXPECT_THAT(devices, AllOf(SizeIs(2), Contains("a-2")));
}

TEST_F(WatchTest, WithoutCheckpointsADegradedLinkIsOnlyReported) {
  WriteSites();
  auto run = Start({"spec.training.steps=60", kFreeHead, "spec.strategy.stages=2"});
  ASSERT_TRUE(run->WaitForStep(5, kStartLimit)) << run->Stderr();
  for (const char* link : {"link:s0->s1", "link:s1->s0"}) Degrade(link, 5);
  const auto event = run->WaitForEvent("LinkDegraded", kRunLimit);
  ASSERT_TRUE(event) << run->Stderr();
  EXPECT_THAT((*event)["message"].get<std::string>(), HasSubstr("keeps no checkpoints"));
  ExpectEnd(*run, 0);
  EXPECT_THAT(Reasons(*run), Not(Contains("Replanned")));
  EXPECT_EQ(BitsOf(*run).size(), 60);
}

// A job that asks for too much, and keeps no checkpoints.
constexpr char kTopK100[] = "spec.compression={policy: uniform, codec: topk, ratio: 100}";
constexpr char kCutBetweenBlocks[] =
    "spec.strategy={stages: 2, pins: [{ops: embed, device: a-0}, {ops: block.1.mlp.add, device: a-0}, {ops: block.2.ln_1, device: a-1}, "
    "{ops: loss, device: a-1}]}";

TEST_F(WatchTest, ASenderBacksOffFromWhatTheJobAsksForBeforeTheFirstStepIsDone) {
  auto run = RunToEnd({"spec.training.steps=20", kFreeHead, kTopK100, kCutBetweenBlocks});
  const json event = Event(*run, "CompressionBackoff");
  ASSERT_FALSE(event.is_null()) << run->Stderr();
  EXPECT_EQ(event["step"], 1);
  EXPECT_EQ(event["device"], "a-0");
  EXPECT_EQ(event["peer"], "a-1");
  EXPECT_EQ(event["value"], "block.1.mlp.add");
  EXPECT_EQ(event["kind"], "inner_residual");
  EXPECT_EQ(event["codec"], "topk@100:int8");
  EXPECT_GT(event["relative_error"], event["relative_error_limit"]);
  EXPECT_LT(event["relative_error_after"], event["relative_error_limit"]);
  EXPECT_THAT(event["message"].get<std::string>(), HasSubstr("spec.compression.guard: none keeps that"));
  EXPECT_THAT(Reasons(*run), Not(Contains("Replanned"))) << "without checkpoints and without another plan";
  const json compression = Summary(*run)["compression"];
  EXPECT_GE(compression["backoffs"], 1);
  EXPECT_LE(compression["max_relative_error"], event["relative_error_limit"]) << "what lost more did not leave";
}

TEST_F(WatchTest, ACodecFoundTooHarshStaysSoWhenItsStageIsRestored) {
  auto run = Start({"spec.training.steps=60", kFreeHead, kTopK100, kCutBetweenBlocks, "spec.checkpoint={path: checkpoints, everySteps: 10}",
                    "spec.executors.spares=1"});
  ASSERT_TRUE(run->WaitForStep(15, kStartLimit)) << run->Stderr();
  const json event = Event(*run, "CompressionBackoff");
  ASSERT_FALSE(event.is_null()) << run->Stderr();
  kill(PidOfStage(*run, 1), SIGKILL);
  ExpectEnd(*run, 0);
  EXPECT_FALSE(Event(*run, "Restored").is_null());
  int backoffs = 0;
  for (const std::string& reason : Reasons(*run)) backoffs += reason == "CompressionBackoff" ? 1 : 0;
  EXPECT_EQ(backoffs, Summary(*run)["compression"]["backoffs"]) << "each finding is told once";
}

TEST_F(WatchTest, AGuardThatOnlyWarnsLeavesTheCodecs) {
  auto run = RunToEnd(
      {"spec.training.steps=10", kFreeHead, "spec.compression={policy: uniform, codec: topk, ratio: 100, guard: warn}", kCutBetweenBlocks});
  const json event = Event(*run, "CompressionBackoff");
  ASSERT_FALSE(event.is_null()) << run->Stderr();
  EXPECT_EQ(event["codec"], event["codec_after"]);
  EXPECT_EQ(Summary(*run)["compression"]["backoffs"], 0);
  EXPECT_GT(Summary(*run)["compression"]["max_relative_error"], event["relative_error_limit"]);
}

TEST_F(WatchTest, ALossThatGetsOutOfHandUnderCompressionMakesTheCodecsGentler) {
  // The learning rate rises for 200 steps, to a height at which nothing learns: left alone, the codecs would get gentler every 40 steps,
  // down to none. When that happens depends on the last bits of the losses, and those on the machine's vector units.
  auto run = Start({"spec.training.steps=200", "spec.compression={policy: uniform, codec: int4}",
                    "spec.training.optimizer={name: adamw, learningRate: 3.0}", "spec.training.schedule={name: constant, warmupSteps: 200}",
                    "spec.checkpoint={path: checkpoints, everySteps: 0}"});
  const auto gentler = run->WaitForEvent("Restored", kRunLimit);
  ASSERT_TRUE(gentler) << run->Stderr();
  ASSERT_TRUE(run->WaitForStep((*gentler)["step"].get<int64_t>() + 5, kRunLimit)) << run->Stderr();
  run->Signal(SIGINT);
  ExpectEnd(*run, 130);
  const json event = Event(*run, "CompressionBackoff");
  ASSERT_FALSE(event.is_null());
  EXPECT_THAT(event["message"].get<std::string>(), AllOf(HasSubstr("the mean loss of the last"), HasSubstr("from int4 to int8 at most")));
  const json restored = Event(*run, "Restored");
  EXPECT_GE(restored["step"], event["step"]) << "nothing is lost: it goes on from where it stood";
  std::vector<json> plans;
  for (const json& line : run->lines()) {
    if (line.value("type", "") == "plan") plans.push_back(line);
  }
  ASSERT_EQ(plans.size(), 2);
  EXPECT_EQ(plans[0]["links"][0]["codec"], "int4");
  EXPECT_EQ(plans[1]["links"][0]["codec"], "int8");
  const Bits bits = BitsOf(*run);
  EXPECT_EQ(static_cast<int64_t>(bits.size()), bits.rbegin()->first) << "every step is there";
  const json summary = Summary(*run);
  int compared = 0;
  for (const json& link : summary["links"]) {
    if (!link.contains("relative_error")) continue;
    ++compared;
    EXPECT_GT(link["relative_error"], 0) << link.dump();
    EXPECT_LT(link["relative_error"], 0.1) << link.dump();
    EXPECT_GT(link["cosine"], 0.99) << link.dump();
    EXPECT_NEAR(link["measured_ratio"].get<double>(), link["ratio"].get<double>(), 0.1) << link.dump();
  }
  EXPECT_GE(compared, 4) << "both directions between three stages";
}

TEST_F(WatchTest, ALossThatIsNoNumberIsTriedWithGentlerCodecsAndThenWithoutAnyBeforeTheRunFails) {
  // On the reference back end: whether gradients or outputs leave the range first is a matter of the last bits.
  auto run = Start({"spec.strategy.backend=ref", "spec.compression={policy: uniform, codec: int8}",
                    "spec.training.optimizer={name: sgd, learningRate: 1000, weightDecay: 1000}", "spec.training.gradientClipNorm=0",
                    "spec.checkpoint={path: checkpoints, everySteps: 1}"});
  ExpectEnd(*run, 1);
  std::vector<std::string> backoffs;
  for (const json& line : run->lines()) {
    if (line.value("reason", "") == "CompressionBackoff") backoffs.push_back(line["message"]);
  }
  ASSERT_THAT(backoffs, SizeIs(2));
  EXPECT_THAT(backoffs[0], HasSubstr("from int8 to fp16 at most"));
  EXPECT_THAT(backoffs[1], HasSubstr("from fp16 to fp32 at most"));
  EXPECT_THAT(run->Stderr(), AllOf(HasSubstr("the gradient norm is"), HasSubstr("of op '"))) << "the last word is that of the run without";
  EXPECT_TRUE(std::filesystem::exists(Path("out/checkpoints/step-000001/manifest.json")));
}

}  // namespace
}  // namespace fusionllm::integration
