#include "services/broker/executor_reports.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/printable_text.h"
#include "lib/compression/spec.h"
#include "lib/wire/profile_json.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/peer_address.h"

namespace fusionllm::services {
namespace {

// As in saved profiles (lib/wire/profile_json.cc).
constexpr double kMaxSeconds = 1e9;
constexpr double kMinBytesPerSecond = 1e-3;
constexpr double kMaxBytesPerSecond = 1e15;
constexpr int64_t kMaxBytes = int64_t{1} << 54;
constexpr int kMaxClasses = 8;
constexpr int kMaxBackoffs = 4096;  // of a link in an epoch: some for each value that crosses it
constexpr size_t kLongestName = 1024;

// What an executor says of an error is shown to people, on one line.
absl::Status StatusOf(const std::string& error) {
  return error.empty() ? absl::OkStatus() : absl::InternalError(base::PrintableText(error));
}

absl::Status StatusOf(int code, const std::string& error) {
  return absl::Status(static_cast<absl::StatusCode>(code), base::PrintableText(error));
}

// False for NaN.
bool IsWithin(double value, double low, double high) { return value >= low && value <= high; }

bool AreSeconds(std::initializer_list<double> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return IsWithin(value, 0, kMaxSeconds); });
}

// So many that no sum of them runs over.
bool IsCount(int64_t bytes) { return bytes >= 0 && bytes <= kMaxBytes; }

bool IsSane(const v1::LinkBytes& link) {
  const auto counts = [](const auto& bytes) { return std::all_of(bytes.begin(), bytes.end(), [](int64_t b) { return IsCount(b); }); };
  return IsCount(link.wire_bytes_sent()) && IsCount(link.evaluation_bytes_sent()) && counts(link.wire_bytes_sent_by_class()) &&
         counts(link.wire_bytes_received_by_class()) && link.wire_bytes_sent_by_class_size() <= kMaxClasses &&
         link.wire_bytes_received_by_class_size() <= kMaxClasses && link.bandwidth_samples() >= 0 &&
         IsWithin(link.bandwidth_bytes_per_second(), 0, kMaxBytesPerSecond) && AreSeconds({link.rtt_seconds()});
}

bool IsSane(const v1::CodecBackoff& backoff) {
  return !backoff.value().empty() && backoff.value().size() <= kLongestName && backoff.kind().size() <= kLongestName &&
         compression::ParseCodecSpec(backoff.from()).ok() && compression::ParseCodecSpec(backoff.to()).ok() &&
         IsWithin(backoff.relative_error(), 0, kMaxSeconds) && IsWithin(backoff.cosine(), -1.01, 1.01) &&
         IsWithin(backoff.limit(), 0, kMaxSeconds) && IsWithin(backoff.remaining_error(), 0, kMaxSeconds);
}

void WarnDropped(const std::string& name, const std::string& what) {
  base::Log(base::LogLevel::kWarning, absl::StrCat("dropped what executor ", name, " reports: ", what));
}

}  // namespace

broker::Executor ExecutorOf(const v1::Hello& hello) {
  return {.name = hello.name(),
          .incarnation = hello.incarnation(),
          .site = hello.site(),
          .spare = hello.spare(),
          .pid = hello.pid(),
          .memory_bytes = hello.memory_bytes(),
          .data_address = hello.data_address(),
          .site_address = hello.site_address(),
          .at_relay = absl::StartsWith(hello.data_address(), kRelayPrefix),
          .holds_shards = hello.holds_shards()};
}

v1::PeerAddress PeerOf(const std::map<std::string, broker::Executor>& executors, const std::string& name, const std::string& asker) {
  v1::PeerAddress peer;
  peer.set_name(name);
  const auto found = executors.find(name), from = executors.find(asker);
  if (found == executors.end()) return peer;
  const broker::Executor& executor = found->second;
  peer.set_incarnation(executor.incarnation);
  peer.set_same_site(from != executors.end() && from->second.site == executor.site);
  peer.set_address(peer.same_site() && !executor.site_address.empty() ? executor.site_address : executor.data_address);
  return peer;
}

broker::Calibrated CalibratedOf(const std::string& name, const v1::CalibrationReport& report) {
  broker::Calibrated event{.name = name, .status = StatusOf(report.error())};
  if (!event.status.ok()) {
    if (report.code() != 0) event.status = StatusOf(report.code(), report.error());
    return event;
  }
  const absl::StatusOr<wire::DeviceProfile> profile = wire::ParseProfile(report.profile_document());
  if (!profile.ok()) {
    event.status = absl::InvalidArgumentError(absl::StrCat("its calibration is no profile: ", std::string(profile.status().message())));
  } else if (profile->name != name) {
    event.status = absl::InvalidArgumentError(absl::StrFormat("its calibration is the profile of another device, '%s'", profile->name));
  } else {
    event.profile_document = wire::PrintProfile(*profile);
  }
  return event;
}

broker::LinkProbed LinkProbedOf(const std::string& name, const v1::LinkReport& report) {
  broker::LinkProbed event{
      .link = {.src = name, .dst = report.peer(), .rtt_s = report.rtt_seconds(), .bytes_per_s = report.bandwidth_bytes_per_second()},
      .status = StatusOf(report.error())};
  const bool sane = AreSeconds({event.link.rtt_s}) && IsWithin(event.link.bytes_per_s, kMinBytesPerSecond, kMaxBytesPerSecond);
  if (event.status.ok() && !sane) {
    event.status = absl::InvalidArgumentError(
        absl::StrFormat("the probe says %g bytes/s and a round trip of %g s, which no link has", event.link.bytes_per_s, event.link.rtt_s));
  }
  if (!sane) event.link.rtt_s = event.link.bytes_per_s = 0;
  return event;
}

broker::StageReady StageReadyOf(const std::string& name, const v1::StageReady& ready) {
  const bool sane = AreSeconds({ready.load_seconds()});
  if (!sane) WarnDropped(name, absl::StrFormat("it loaded for %g s", ready.load_seconds()));
  return {.epoch = ready.epoch(), .name = name, .status = StatusOf(ready.code(), ready.error()), .load_s = sane ? ready.load_seconds() : 0};
}

std::optional<broker::StepDone> StepDoneOf(const std::string& name, const v1::StepReport& step, int64_t total_steps) {
  const bool sane = step.step() >= 1 && step.step() <= total_steps && std::isfinite(step.loss()) && std::isfinite(step.gradient_norm()) &&
                    std::isfinite(step.learning_rate()) && AreSeconds({step.step_seconds()}) && step.counted() >= 0 && step.counted() <= 1;
  if (!sane) {
    WarnDropped(name,
                absl::StrFormat("step %d of %d in %g s: loss %g of a share of %g, gradient norm %g, learning rate %g", step.step(),
                                total_steps, step.step_seconds(), step.loss(), step.counted(), step.gradient_norm(), step.learning_rate()));
    return std::nullopt;
  }
  return broker::StepDone{.epoch = step.epoch(),
                          .name = name,
                          .record = {.step = step.step(),
                                     .loss = step.loss(),
                                     .counted = step.counted(),
                                     .gradient_norm = step.gradient_norm(),
                                     .learning_rate = step.learning_rate(),
                                     .step_seconds = step.step_seconds()}};
}

broker::ShardWritten ShardWrittenOf(const std::string& name, const v1::ShardReport& shard) {
  broker::ShardWritten event{.epoch = shard.epoch(),
                             .name = name,
                             .step = shard.step(),
                             .stage = shard.stage(),
                             .samples_consumed = shard.samples_consumed(),
                             // Its paths are of its machine.
                             .status = StatusOf(shard.error().empty() ? "" : absl::StrCat(name, ": ", shard.error())),
                             .seconds = AreSeconds({shard.seconds()}) ? shard.seconds() : 0};
  for (const v1::ShardFile& file : shard.files()) {
    event.files.push_back({.name = file.name(),
                           .bytes = file.bytes(),
                           .sha256 = file.sha256(),
                           .tensors = {file.tensors().begin(), file.tensors().end()},
                           .tensor_bytes = file.tensor_bytes(),
                           .site = shard.site(),
                           .site_folder = file.site_folder()});
  }
  return event;
}

broker::StageEnded StageEndedOf(const std::string& name, const v1::StageEnded& ended) {
  return {.epoch = ended.epoch(),
          .name = name,
          .last_step = ended.last_step(),
          .status = StatusOf(ended.code(), ended.message()),
          .lost_peer = ended.lost_peer(),
          .not_finite = ended.not_finite()};
}

bool IsSane(const std::string& name, const v1::StageTimes& times) {
  const bool sane = times.step() >= 0 && times.epoch_steps() >= 0 &&
                    std::abs(times.wait_seconds()) <= kMaxSeconds &&  // a difference of measurements
                    AreSeconds({times.busy_seconds(), times.forward_seconds(), times.backward_seconds(), times.lateness_seconds(),
                                times.epoch_busy_seconds(), times.epoch_lateness_seconds()}) &&
                    std::all_of(times.links().begin(), times.links().end(), [](const v1::LinkBytes& link) { return IsSane(link); });
  if (!sane) WarnDropped(name, absl::StrFormat("times of step %d that are not finite or out of range", times.step()));
  return sane;
}

void FilterLinksTo(const std::vector<std::string>& devices, v1::StageTimes& times) {
  auto& links = *times.mutable_links();
  const auto kept = std::remove_if(links.begin(), links.end(), [&](const v1::LinkBytes& link) {
    return std::find(devices.begin(), devices.end(), link.peer()) == devices.end();
  });
  links.erase(kept, links.end());
}

std::vector<std::pair<std::string, v1::LinkBytes>> LastTrafficOf(const std::vector<std::string>& devices, const std::string& name,
                                                                 const v1::StageEnded& ended) {
  std::vector<std::pair<std::string, v1::LinkBytes>> traffic;
  const auto planned = [&](const std::string& device) { return std::find(devices.begin(), devices.end(), device) != devices.end(); };
  if (!planned(name)) return traffic;
  for (const v1::LinkBytes& link : ended.links()) {
    if (!planned(link.peer()) || link.peer() == name) continue;
    if (!IsSane(link)) {
      WarnDropped(name, "bytes of its last link report that are out of range");
      continue;
    }
    traffic.emplace_back(name, link);
    v1::LinkBytes back;
    back.set_peer(name);
    *back.mutable_wire_bytes_sent_by_class() = link.wire_bytes_received_by_class();
    int64_t sum = 0;
    for (const int64_t bytes : back.wire_bytes_sent_by_class()) sum += bytes;
    back.set_wire_bytes_sent(sum);
    traffic.emplace_back(link.peer(), std::move(back));
  }
  return traffic;
}

broker::StageMeasured StageMeasuredOf(const std::string& name, const v1::StageTimes& times) {
  broker::StageMeasured event{
      .epoch = times.epoch(), .name = name, .step = times.step(), .busy_s = times.busy_seconds() - times.lateness_seconds()};
  for (const v1::LinkBytes& link : times.links()) {
    event.rates[link.peer()] = {.bytes_per_s = link.bandwidth_bytes_per_second(), .samples = link.bandwidth_samples()};
    for (int i = 0; i < std::min(kMaxBackoffs, link.backoffs_size()); ++i) {
      const v1::CodecBackoff& backoff = link.backoffs(i);
      if (!IsSane(backoff)) continue;
      event.backoffs.push_back({.peer = link.peer(),
                                .value = backoff.value(),
                                .gradient = backoff.gradient(),
                                .kind = backoff.kind(),
                                .from = backoff.from(),
                                .to = backoff.to(),
                                .relative_error = backoff.relative_error(),
                                .cosine = backoff.cosine(),
                                .limit = backoff.limit(),
                                .remaining_error = backoff.remaining_error()});
    }
  }
  return event;
}

}  // namespace fusionllm::services
