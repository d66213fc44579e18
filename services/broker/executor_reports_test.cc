// Executors are other people's machines: whatever they say must leave a broker that goes on, and can be started again.
#include "services/broker/executor_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "lib/wire/profile_json.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(ExecutorReportsTest, ThoseOfASiteDialEachOtherByTheShorterWayAndOthersByTheAdvertisedOne) {
  std::map<std::string, broker::Executor> executors;
  for (const auto& [name, site, near] :
       {std::tuple("a0", "a", "10.1.0.1:7001"), std::tuple("a1", "a", ""), std::tuple("b0", "b", "10.2.0.1:7001")}) {
    v1::Hello hello;
    hello.set_name(name);
    hello.set_site(site);
    hello.set_data_address(std::string(name) + ".example:30001");
    hello.set_site_address(near);
    executors[name] = ExecutorOf(hello);
  }
  const auto way = [&](const char* from, const char* to) {
    const v1::PeerAddress peer = PeerOf(executors, to, from);
    return peer.address() + (peer.same_site() ? " near" : "");
  };
  EXPECT_EQ(way("a1", "a0"), "10.1.0.1:7001 near");
  EXPECT_EQ(way("a0", "a1"), "a1.example:30001 near") << "it has one address for all";
  EXPECT_EQ(way("b0", "a0"), "a0.example:30001");
  EXPECT_EQ(way("a0", "b0"), "b0.example:30001");
  EXPECT_EQ(way("a0", "gone"), "");
  EXPECT_EQ(way("gone", "a0"), "a0.example:30001");
}

TEST(ExecutorReportsTest, PeersLearnWhichProcessOfThatNameIsMeant) {
  v1::Hello hello;
  hello.set_name("a0");
  hello.set_incarnation(7);
  EXPECT_EQ(PeerOf({{"a0", ExecutorOf(hello)}}, "a0", "b0").incarnation(), 7u);
}

v1::CalibrationReport Calibration(const std::string& document) {
  v1::CalibrationReport report;
  report.set_profile_document(document);
  return report;
}

TEST(ExecutorReportsTest, AProfileIsTakenAsItIs) {
  const std::string profile = wire::PrintProfile({.name = "a", .site = "x", .backend = "cpu", .memory_bytes = 1});
  const broker::Calibrated event = CalibratedOf("a", Calibration(profile));
  ASSERT_TRUE(event.status.ok()) << event.status;
  EXPECT_EQ(event.profile_document, profile);
}

TEST(ExecutorReportsTest, WhatIsNoProfileOrThatOfAnotherIsAnErrorOfTheExecutor) {
  const std::string of_another = wire::PrintProfile({.name = "b", .site = "x", .backend = "cpu", .memory_bytes = 1});
  std::string wrong_type = wire::PrintProfile({.name = "a", .site = "SITE", .backend = "cpu", .memory_bytes = 1});
  wrong_type.replace(wrong_type.find("\"SITE\""), 6, "[1, 2]");
  for (const std::string& bad : {std::string(), std::string("{}"), std::string("[]"), wrong_type, of_another}) {
    const broker::Calibrated event = CalibratedOf("a", Calibration(bad));
    EXPECT_EQ(event.status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(event.profile_document, "") << bad;
  }
  EXPECT_THAT(std::string(CalibratedOf("a", Calibration(of_another)).status.message()), HasSubstr("'b'"));
  v1::CalibrationReport failed;
  failed.set_error("no cores");
  EXPECT_THAT(std::string(CalibratedOf("a", failed).status.message()), HasSubstr("no cores"));
}

v1::LinkReport Link(double rtt, double bandwidth) {
  v1::LinkReport report;
  report.set_peer("b");
  report.set_rtt_seconds(rtt);
  report.set_bandwidth_bytes_per_second(bandwidth);
  return report;
}

TEST(ExecutorReportsTest, AnErrorIsOneLineWhateverTheExecutorSays) {
  const std::string forged = "\x1b[31mboo\nfusionctl: done", line = "\\x1b[31mboo\\nfusionctl: done";
  v1::CalibrationReport calibration;
  calibration.set_error(forged);
  calibration.set_code(5);
  EXPECT_EQ(CalibratedOf("a", calibration).status, absl::NotFoundError(line));
  calibration.set_code(0);
  EXPECT_EQ(CalibratedOf("a", calibration).status, absl::InternalError(line));
  v1::LinkReport link;
  link.set_error(forged);
  EXPECT_EQ(LinkProbedOf("a", link).status, absl::InternalError(line));
  v1::StageReady ready;
  ready.set_error(forged);
  ready.set_code(5);
  EXPECT_EQ(StageReadyOf("a", ready).status, absl::NotFoundError(line));
  v1::ShardReport shard;
  shard.set_error(forged);
  EXPECT_EQ(ShardWrittenOf("a", shard).status, absl::InternalError(absl::StrCat("a: ", line)));
  v1::StageEnded ended;
  ended.set_message(forged);
  ended.set_code(5);
  EXPECT_EQ(StageEndedOf("a", ended).status, absl::NotFoundError(line));
}

TEST(ExecutorReportsTest, ALinkThatCannotBeIsAnErrorOfTheProbe) {
  const broker::LinkProbed good = LinkProbedOf("a", Link(0.04, 1e6));
  EXPECT_TRUE(good.status.ok()) << good.status;
  EXPECT_EQ(good.link, (broker::Link{.src = "a", .dst = "b", .rtt_s = 0.04, .bytes_per_s = 1e6}));
  for (const auto& bad : {Link(kNan, 1e6), Link(kInfinite, 1e6), Link(-1, 1e6), Link(0.04, kNan), Link(0.04, kInfinite), Link(0.04, 0)}) {
    const broker::LinkProbed event = LinkProbedOf("a", bad);
    EXPECT_EQ(event.status.code(), absl::StatusCode::kInvalidArgument) << bad.ShortDebugString();
    EXPECT_EQ(event.link.rtt_s, 0);
    EXPECT_EQ(event.link.bytes_per_s, 0);
  }
}

TEST(ExecutorReportsTest, AStepThatCannotBeIsDropped) {
  v1::StepReport good;
  good.set_step(10);
  good.set_loss(2);
  good.set_step_seconds(0.5);
  good.set_counted(0.25);
  const auto event = StepDoneOf("a", good, 10);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->record.step, 10);
  EXPECT_EQ(event->record.step_seconds, 0.5);
  EXPECT_EQ(event->record.counted, 0.25);
  const std::vector<std::function<void(v1::StepReport&)>> spoil = {
      [](v1::StepReport& step) { step.set_step(0); },
      [](v1::StepReport& step) { step.set_step(11); },
      [](v1::StepReport& step) { step.set_step_seconds(kNan); },
      [](v1::StepReport& step) { step.set_step_seconds(kInfinite); },
      [](v1::StepReport& step) { step.set_step_seconds(-1); },
      [](v1::StepReport& step) { step.set_loss(std::numeric_limits<float>::quiet_NaN()); },
      [](v1::StepReport& step) { step.set_gradient_norm(kInfinite); },
      [](v1::StepReport& step) { step.set_learning_rate(kNan); },
      [](v1::StepReport& step) { step.set_counted(kNan); },
      [](v1::StepReport& step) { step.set_counted(-0.1); },
      [](v1::StepReport& step) { step.set_counted(1.1); },
  };
  for (size_t i = 0; i < spoil.size(); ++i) {
    v1::StepReport bad = good;
    spoil[i](bad);
    EXPECT_FALSE(StepDoneOf("a", bad, 10).has_value()) << i;
  }
}

TEST(ExecutorReportsTest, TimesMustBeTimes) {
  v1::StageTimes good;
  good.set_step(3);
  good.set_busy_seconds(0.25);
  v1::LinkBytes& link = *good.add_links();
  link.set_peer("b");
  link.set_wire_bytes_sent(100);
  link.set_bandwidth_bytes_per_second(1e6);
  EXPECT_TRUE(IsSane("a", good));
  const std::vector<std::function<void(v1::StageTimes&)>> spoil = {
      [](v1::StageTimes& times) { times.set_busy_seconds(kNan); },
      [](v1::StageTimes& times) { times.set_lateness_seconds(kInfinite); },
      [](v1::StageTimes& times) { times.set_epoch_busy_seconds(-1); },
      [](v1::StageTimes& times) { times.mutable_links(0)->set_bandwidth_bytes_per_second(kInfinite); },
      [](v1::StageTimes& times) { times.mutable_links(0)->set_rtt_seconds(kNan); },
      [](v1::StageTimes& times) { times.mutable_links(0)->set_wire_bytes_sent(-1); },
      [](v1::StageTimes& times) { times.mutable_links(0)->add_wire_bytes_sent_by_class(-1); },
      [](v1::StageTimes& times) { times.mutable_links(0)->add_wire_bytes_received_by_class(int64_t{1} << 62); },
      [](v1::StageTimes& times) { times.mutable_links(0)->set_bandwidth_samples(-1); },
  };
  for (size_t i = 0; i < spoil.size(); ++i) {
    v1::StageTimes bad = good;
    spoil[i](bad);
    EXPECT_FALSE(IsSane("a", bad)) << i;
  }
}

TEST(ExecutorReportsTest, WhatSendersFindIsTakenWhereItCanBe) {
  v1::StageTimes times;
  times.set_step(3);
  v1::LinkBytes& link = *times.add_links();
  link.set_peer("b");
  v1::CodecBackoff good;
  good.set_value("lm_head");
  good.set_kind("loss_input");
  good.set_from("topk@30:int8");
  good.set_to("fp16");
  good.set_relative_error(0.5);
  good.set_cosine(0.87);
  good.set_limit(0.002);
  good.set_remaining_error(0.0002);
  *link.add_backoffs() = good;
  const std::vector<std::function<void(v1::CodecBackoff&)>> spoil = {
      [](v1::CodecBackoff& found) { found.set_value(""); },
      [](v1::CodecBackoff& found) { found.set_value(std::string(5000, 'x')); },
      [](v1::CodecBackoff& found) { found.set_from("zip"); },
      [](v1::CodecBackoff& found) { found.set_to(""); },
      [](v1::CodecBackoff& found) { found.set_relative_error(kNan); },
      [](v1::CodecBackoff& found) { found.set_cosine(2); },
      [](v1::CodecBackoff& found) { found.set_limit(kInfinite); },
      [](v1::CodecBackoff& found) { found.set_remaining_error(-1); },
  };
  for (const auto& spoiled : spoil) {
    v1::CodecBackoff bad = good;
    spoiled(bad);
    *link.add_backoffs() = bad;
  }
  const broker::StageMeasured event = StageMeasuredOf("a", times);
  ASSERT_EQ(event.backoffs.size(), 1);
  EXPECT_EQ(event.backoffs[0].peer, "b");
  EXPECT_EQ(event.backoffs[0].value, "lm_head");
  EXPECT_EQ(event.backoffs[0].from, "topk@30:int8");
  EXPECT_EQ(event.backoffs[0].to, "fp16");
  EXPECT_EQ(event.backoffs[0].relative_error, 0.5);
}

TEST(ExecutorReportsTest, AStageThatEndsTellsWhatItSentAndWhatHasComeFromPeers) {
  v1::StageEnded ended;
  for (const char* peer : {"b", "stranger"}) {
    v1::LinkBytes& link = *ended.add_links();
    link.set_peer(peer);
    link.set_wire_bytes_sent(100);
    link.add_wire_bytes_sent_by_class(100);
    link.add_wire_bytes_received_by_class(7);
    link.add_wire_bytes_received_by_class(40);
  }
  const auto traffic = LastTrafficOf({"a", "b"}, "a", ended);
  ASSERT_EQ(traffic.size(), 2u);
  EXPECT_EQ(traffic[0].first, "a");
  EXPECT_EQ(traffic[0].second.peer(), "b");
  EXPECT_EQ(traffic[0].second.wire_bytes_sent(), 100);
  EXPECT_EQ(traffic[1].first, "b");
  EXPECT_EQ(traffic[1].second.peer(), "a");
  EXPECT_EQ(traffic[1].second.wire_bytes_sent(), 47);
  EXPECT_TRUE(LastTrafficOf({"b", "c"}, "a", ended).empty()) << "its stage was given away";
  ended.mutable_links(0)->set_wire_bytes_received_by_class(0, -1);
  EXPECT_TRUE(LastTrafficOf({"a", "b"}, "a", ended).empty());
}

TEST(ExecutorReportsTest, FilesThatStayInTheirSiteAreReportedWithIt) {
  v1::Hello hello;
  EXPECT_FALSE(ExecutorOf(hello).holds_shards);
  hello.set_holds_shards(true);
  EXPECT_TRUE(ExecutorOf(hello).holds_shards);
  v1::ShardReport report;
  report.set_site("paris");
  v1::ShardFile& file = *report.add_files();
  file.set_site_folder("0123456789abcdef/b/step-000010.0000000000000001");
  file.set_tensor_bytes(4);
  const broker::ShardWritten shard = ShardWrittenOf("b", report);
  ASSERT_EQ(shard.files.size(), 1u);
  report.set_error("cannot write /there");
  EXPECT_EQ(ShardWrittenOf("b", report).status.message(), "b: cannot write /there") << "on whose machine";
  EXPECT_EQ(shard.files[0].site, "paris");
  EXPECT_EQ(shard.files[0].site_folder, file.site_folder());
  EXPECT_EQ(shard.files[0].tensor_bytes, 4);
}

TEST(ExecutorReportsTest, LinksToDevicesThatAreNotInThePlanAreTakenOut) {
  v1::StageTimes times;
  for (const char* peer : {"b", "stranger", "c", ""}) times.add_links()->set_peer(peer);
  FilterLinksTo({"a", "b", "c"}, times);
  std::vector<std::string> peers;
  for (const v1::LinkBytes& link : times.links()) peers.push_back(link.peer());
  EXPECT_THAT(peers, ElementsAre("b", "c"));
}

}  // namespace
}  // namespace fusionllm::services
