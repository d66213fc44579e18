#include "lib/planning/pin_check.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/planning/testing/three_devices.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What is said of these pins on the topology of two sites; nothing there is measured.
std::string SaidOf(const std::string& pins, const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {absl::StrCat("spec.strategy.pins=", pins)};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const Hardware hardware{.topology = *job::ParseTopology(kTwoSites, "topology.yaml"), .machine_memory_bytes = int64_t{1} << 33};
  return std::string(CheckPins(*Resolve(overrides), hardware, "topology two-sites").message());
}

TEST(PinCheckTest, PinsThatCanBeMetPass) {
  EXPECT_EQ(SaidOf("[]"), "");
  EXPECT_EQ(SaidOf("[{ops: block.0.*, device: paris-0}, {ops: block.3.*, device: tokyo-0}]"), "");
}

TEST(PinCheckTest, ADeviceThatIsNotThereIsNamedWithTheNearest) {
  EXPECT_EQ(SaidOf("[{ops: block.0.*, device: paris-0}, {ops: block.1.*, device: pariss-1}]"),
            "spec.strategy.pins[1].device: no device of topology two-sites is named pariss-1; did you mean paris-1? there are paris-0, "
            "paris-1, tokyo-0");
  EXPECT_THAT(SaidOf("[{ops: block.0.*, device: zigzag}]"), HasSubstr("is named zigzag; there are paris-0, paris-1, tokyo-0"));
}

TEST(PinCheckTest, ASiteIsNoDevice) {
  EXPECT_EQ(SaidOf("[{ops: block.0.*, device: paris}]"),
            "spec.strategy.pins[0].device: paris is a site of topology two-sites; a pin names one device of it: paris-0, paris-1");
}

TEST(PinCheckTest, ASpareRunsNoStage) {
  EXPECT_THAT(SaidOf("[{ops: block.0.*, device: tokyo-1}]"),
              AllOf(StartsWith("spec.strategy.pins[0].device: tokyo-1 is a spare"), HasSubstr("role: executor")));
}

TEST(PinCheckTest, AnOpThatIsNotThereIsNamedWithTheNearest) {
  EXPECT_THAT(SaidOf("[{ops: blok.0.*, device: paris-0}]"),
              AllOf(StartsWith("spec.strategy.pins[0].ops: no op of the model matches 'blok.0.*'; did you mean block.0.*?"),
                    HasSubstr("fusionctl graph JOB -o model.dag")));
  EXPECT_THAT(SaidOf("[{ops: block.0.atn, device: paris-0}]"), HasSubstr("did you mean block.0.attn?"));
  EXPECT_THAT(SaidOf("[{ops: tokens, device: paris-0}]"), HasSubstr("no op of the model matches 'tokens'"))
      << "placeholders are in stage 0";
}

TEST(PinCheckTest, EverythingThatIsWrongIsSaidAtOnce) {
  EXPECT_THAT(SaidOf("[{ops: blok.0.*, device: rome-0}]"),
              AllOf(HasSubstr("spec.strategy.pins[0].device: "), HasSubstr("\nspec.strategy.pins[0].ops: ")));
}

TEST(PinCheckTest, AnOpOfTwoPinsNamesBoth) {
  EXPECT_EQ(SaidOf("[{ops: block.*, device: paris-0}, {ops: '*.attn', device: paris-1}]"),
            "spec.strategy.pins[1]: pins op 'block.0.attn' to paris-1, and spec.strategy.pins[0] ('block.*') pins it to paris-0: name each "
            "op once");
  EXPECT_EQ(SaidOf("[{ops: block.*, device: paris-0}, {ops: block.0.*, device: paris-0}]"), "") << "the same device";
}

TEST(PinCheckTest, LeavesInfeasiblePinsToThePlanner) {
  EXPECT_EQ(SaidOf("[{ops: block.0.*, device: paris-0}, {ops: block.1.*, device: paris-1}, {ops: block.2.*, device: paris-0}]"), "");
  EXPECT_EQ(SaidOf("[{ops: block.0.*, device: paris-0}]", {"spec.strategy.replicas=2"}), "");
}

TEST(PinCheckTest, WithoutATopologyDevicesAreThoseThatWereMeasured) {
  const Hardware hardware{.measured = {.devices = {{.name = "local-0", .site = "local", .memory_bytes = int64_t{1} << 33}}}};
  const auto said = [&](const char* device) {
    const auto workload = Resolve({absl::StrCat("spec.strategy.pins=[{ops: block.0.*, device: ", device, "}]")});
    return std::string(CheckPins(*workload, hardware, "this machine").message());
  };
  EXPECT_EQ(said("local-0"), "");
  EXPECT_EQ(said("local0"),
            "spec.strategy.pins[0].device: no device of this machine is named local0; did you mean local-0? there is local-0");
}

TEST(PinCheckTest, WhereDevicesAreStillToJoinOpsAreChecked) {
  EXPECT_TRUE(CheckPinnedOps(*Resolve({"spec.strategy.pins=[{ops: block.0.*, device: whoever}]"})).ok());
  EXPECT_THAT(CheckPinnedOps(*Resolve({"spec.strategy.pins=[{ops: blok.*, device: whoever}]"})).message(), HasSubstr("block.*?"));
}

}  // namespace
}  // namespace fusionllm::planning
