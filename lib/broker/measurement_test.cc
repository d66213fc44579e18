#include "lib/broker/measurement.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using testing::Of;
using ::testing::SizeIs;

class MeasurementTest : public ::testing::Test {
 protected:
  using Kind = Measurement::ProbeVerdict::Kind;
  using Next = Measurement::Next;
  using State = Measurement::State;
  void Start(const RunOptions& options, const std::vector<std::string>& names) {
    executors_.emplace(options);
    measurement_.emplace(options);
    for (const std::string& name : names) Join(name);
  }
  void Join(const std::string& name) {
    executors_->Join({.name = name, .incarnation = 1, .site = name.substr(0, 1), .memory_bytes = 100, .data_address = name + ":1"});
  }
  Next MeasureNext(bool after_run = false) { return measurement_->MeasureNext(after_run, *executors_, queue_); }
  void KnowAll() {
    const auto is_known = [this](const auto& entry) { return measurement_->Knows(entry.first); };
    while (!std::all_of(executors_->present().begin(), executors_->present().end(), is_known)) {
      MeasureNext();
      measurement_->EndCalibration(measurement_->calibrating(), "{}");
    }
    queue_.Take();
  }
  Measurement::ProbeVerdict Fail(const std::string& src, const std::string& dst) {
    measurement_->EndProbe(src, dst);
    return measurement_->OnProbeFailed(src, dst, absl::UnavailableError("refused"), *executors_, 0, queue_);
  }

  std::optional<ExecutorSet> executors_;
  std::optional<Measurement> measurement_;
  ActionQueue queue_;
};

TEST_F(MeasurementTest, CalibratesOneAfterTheOtherThenProbesEachSharedLink) {
  Start({}, {"a0", "b0", "b1"});
  EXPECT_EQ(MeasureNext(), Next::kCalibrates);
  EXPECT_EQ(measurement_->calibrating(), "a0");
  EXPECT_EQ(MeasureNext(), Next::kCalibrates);
  EXPECT_FALSE(measurement_->EndCalibration("b0", "{}")) << "it was not asked";
  EXPECT_THAT(Of<StartCalibration>(queue_.Take()), SizeIs(1)) << "one at a time";
  EXPECT_TRUE(measurement_->EndCalibration("a0", "{}"));
  EXPECT_TRUE(measurement_->Knows("a0"));
  KnowAll();
  // a > b, b > a, and b0 > b1 for what is inside of site b.
  for (const auto& [src, dst] : {std::pair("a0", "b0"), std::pair("b0", "a0"), std::pair("b0", "b1")}) {
    EXPECT_EQ(MeasureNext(), Next::kProbes);
    EXPECT_EQ(MeasureNext(), Next::kWaits);
    EXPECT_FALSE(measurement_->EndProbe(dst, src));
    EXPECT_TRUE(measurement_->EndProbe(src, dst)) << src << dst;
    measurement_->Learn({.src = src, .dst = dst, .bytes_per_s = 1});
  }
  EXPECT_EQ(MeasureNext(), Next::kDone);
  EXPECT_EQ(measurement_->state(), State::kIdle);
}

TEST_F(MeasurementTest, LossOfItsSubjectEndsAMeasurement) {
  Start({}, {"a0", "b0"});
  MeasureNext();
  measurement_->Lost("b0");
  EXPECT_EQ(measurement_->state(), State::kCalibrating);
  measurement_->Lost("a0");
  EXPECT_EQ(measurement_->state(), State::kIdle);
  KnowAll();
  for (const char* end : {"a0", "b0"}) {
    EXPECT_EQ(MeasureNext(), Next::kProbes);
    measurement_->Lost(end);
    EXPECT_EQ(measurement_->state(), State::kIdle) << end;
  }
}

TEST_F(MeasurementTest, NamedLinksAndSitesAreEachOneSharedLink) {
  Start({.link_names = {{{"a0", "b1"}, "cable"}}}, {"a0", "b0", "b1"});
  EXPECT_EQ(measurement_->SharedLinkOf("a0", "b0", *executors_), measurement_->SharedLinkOf("a0", "b0", *executors_));
  EXPECT_NE(measurement_->SharedLinkOf("a0", "b0", *executors_), measurement_->SharedLinkOf("a0", "b1", *executors_));
  EXPECT_NE(measurement_->SharedLinkOf("a0", "b0", *executors_), measurement_->SharedLinkOf("b0", "a0", *executors_));
  measurement_->Learn({.src = "b0", .dst = "a0", .bytes_per_s = 5});
  ASSERT_NE(measurement_->LinkBetween("b1", "a0", *executors_), nullptr) << "b0 speaks for its site";
  measurement_->SetRate("b1", "a0", 3, *executors_);
  EXPECT_EQ(measurement_->links()[0].bytes_per_s, 3);
  EXPECT_EQ(measurement_->LinkBetween("a0", "b0", *executors_), nullptr);
}

TEST_F(MeasurementTest, FailedProbeIsTriedAgainBeforeItCounts) {
  Start({.data_devices = {"a0"}}, {"a0", "b0"});
  KnowAll();
  MeasureNext();
  EXPECT_EQ(Fail("a0", "b0").kind, Kind::kTryAgain);
  MeasureNext();
  const Measurement::ProbeVerdict verdict = Fail("a0", "b0");
  EXPECT_EQ(verdict.kind, Kind::kRejects);
  EXPECT_EQ(verdict.device, "b0");
  EXPECT_THAT(verdict.sentence, HasSubstr("the other machines cannot reach b0 at b0:1 (probe a0 -> b0: refused)"));
}

TEST_F(MeasurementTest, ExpectedExecutorOutOfReachFailsTheRunOrPausesIt) {
  Start({.expected = {"a0", "b0"}}, {"a0", "b0"});
  Fail("a0", "b0");
  EXPECT_EQ(Fail("a0", "b0").kind, Kind::kFails);
  Start({.expected = {"a0", "b0"}, .executor_timeout_s = 3, .waits_for_executors = true}, {"a0", "b0"});
  Fail("a0", "b0");
  queue_.Take();
  double waited_s = 0;
  while (waited_s < 3) {
    ASSERT_EQ(Fail("a0", "b0").kind, Kind::kPauses);
    const std::vector<Action> actions = queue_.Take();
    EXPECT_THAT(Of<EmitEvent>(actions), SizeIs(waited_s == 0 ? 1 : 0)) << "once for all tries";
    waited_s += Of<StartTimer>(actions).back().seconds;
  }
  EXPECT_EQ(waited_s, 3);
  EXPECT_EQ(Fail("a0", "b0").kind, Kind::kFails);
  measurement_->ForgetFailures("a0", "b0");
  EXPECT_EQ(Fail("a0", "b0").kind, Kind::kTryAgain);
}

TEST_F(MeasurementTest, ProbeWithoutAnAnswerIsGivenUp) {
  Start({}, {"a0", "b0"});
  KnowAll();
  MeasureNext();
  EXPECT_EQ(measurement_->GiveUpProbe(), (std::pair<std::string, std::string>("a0", "b0")));
  EXPECT_FALSE(measurement_->EndProbe("a0", "b0"));
}

TEST_F(MeasurementTest, LateJoinersAreMeasuredWithoutProbesOfStages) {
  Start({}, {"a0"});
  KnowAll();
  Join("b0");
  const RunPlan plan{.devices = {"a0"}};
  const auto measured = [&] { return measurement_->MeasureLateJoiners({"b0"}, plan, *executors_, queue_); };
  EXPECT_FALSE(measured());
  EXPECT_THAT(Of<StartCalibration>(queue_.Take()), SizeIs(1));
  EXPECT_FALSE(measured()) << "it is under way";
  measurement_->EndCalibration("b0", "{}");
  EXPECT_FALSE(measured());
  const auto probes = Of<StartLinkProbe>(queue_.Take());
  ASSERT_THAT(probes, SizeIs(1));
  EXPECT_EQ(probes[0].src, "b0");
  measurement_->EndProbe("b0", "a0");
  measurement_->Learn({.src = "b0", .dst = "a0", .rtt_s = 0.1, .bytes_per_s = 7});
  EXPECT_TRUE(measured());
  EXPECT_THAT(queue_.Take(), SizeIs(0));
  ASSERT_TRUE(measurement_->has_assumed_links());
  EXPECT_EQ(measurement_->links().back(), (Link{.src = "a0", .dst = "b0", .rtt_s = 0.1, .bytes_per_s = 7})) << "the way back stands in";
  EXPECT_EQ(MeasureNext(/*after_run=*/true), Next::kProbes) << "until it can be measured";
  EXPECT_FALSE(measurement_->has_assumed_links());
}

TEST_F(MeasurementTest, WhatIsMeasuredBesideARunIsMeasuredAgainAfterIt) {
  Start({}, {"a0"});
  KnowAll();
  Join("b0");
  const RunPlan plan{.devices = {"a0"}};
  measurement_->MeasureLateJoiners({"b0"}, plan, *executors_, queue_);
  queue_.Take();
  EXPECT_EQ(MeasureNext(/*after_run=*/true), Next::kCalibrates);
  std::vector<Action> actions = queue_.Take();
  EXPECT_THAT(Of<StartCalibration>(actions), SizeIs(0)) << "its answer leads on";
  EXPECT_THAT(Of<StartTimer>(actions), SizeIs(1)) << "which is awaited from here on";
  measurement_->EndCalibration("b0", "{}");
  measurement_->MeasureLateJoiners({"b0"}, plan, *executors_, queue_);
  ASSERT_EQ(measurement_->state(), State::kProbing);
  queue_.Take();
  EXPECT_EQ(MeasureNext(/*after_run=*/true), Next::kProbes);
  EXPECT_THAT(Of<StartLinkProbe>(queue_.Take()), SizeIs(1));
}

}  // namespace
}  // namespace fusionllm::broker
