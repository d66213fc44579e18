// RunState: gentler codecs. A loss that leaves its trend under compression, or is no number, is answered with them; what senders find out
// about theirs, and have done about it already, is told and kept for whatever plan comes next.
//
// Where there are checkpoints the loss leads to another plan, at the boundary of a step: under gentler codecs other cuts may be better.
// Where there are none the codecs alone change, where they are.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/codec_limit.h"
#include "lib/broker/run_state.h"
#include "lib/compression/codec_guard.h"

namespace fusionllm::broker {

// Of what the plan uses, less what was ordered since. What senders found of single values is not in it.
std::optional<compression::CodecSpec> RunState::HarshestInForce() const {
  std::optional<compression::CodecSpec> harshest = HarshestCodec(plan_);
  if (harshest.has_value() && codec_limit_.has_value()) harshest = compression::GentlerOf(*harshest, *codec_limit_);
  if (harshest.has_value() && harshest->kind == compression::CodecKind::kExact) return std::nullopt;
  return harshest;
}

void RunState::TakeBackoffs(const StageMeasured& event) {
  for (const CodecBackoff& found : event.backoffs) {
    const absl::StatusOr<compression::CodecSpec> to = compression::ParseCodecSpec(found.to);
    if (!to.ok() || SeatOf(event.name) < 0 || SeatOf(found.peer) < 0) continue;
    if (found.to == found.from) {
      if (warned_.insert({event.name, found.value, found.gradient}).second) TellBackoff(event, found);
      continue;
    }
    std::string& known = codec_limits_[{found.value, found.gradient}];
    if (const auto before = compression::ParseCodecSpec(known); before.ok() && compression::GentlerOf(*to, *before) == *before) continue;
    known = found.to;
    TellBackoff(event, found);
  }
}

void RunState::TellBackoff(const StageMeasured& event, const CodecBackoff& found) {
  const int from = SeatOf(event.name), to = SeatOf(found.peer);
  Announce told{.reason = "CompressionBackoff", .step = event.step, .device = event.name, .peer = found.peer, .backoff = found};
  SetPlace(from, told);
  for (const PlannedLink& link : plan_.links) {
    const bool there = link.src_seat == from && link.dst_seat == to, back = link.src_seat == to && link.dst_seat == from;
    if (there || back) told.expected_loss_increase = std::max(told.expected_loss_increase, link.loss_cost);  // the forward direction's
  }
  told.message = absl::StrFormat(
      "%s > %s: %s%s (%s) by %s loses %.3g%% of its norm (cosine %.3f), and such a value bears %.3g%%; the plan expects %+.2f nats of "
      "this link; ",
      event.name, found.peer, found.gradient ? "the gradient of " : "", found.value, found.kind, found.from, 100 * found.relative_error,
      found.cosine, 100 * found.limit, told.expected_loss_increase);
  if (found.to != found.from) {
    told.makes_gentler = true;
    absl::StrAppendFormat(&told.message, "it goes by %s, which loses %.2g%%", found.to, 100 * found.remaining_error);
    if (options_.codecs_asked_for) {
      absl::StrAppend(&told.message, ", in the place of what spec.compression asks for (spec.compression.guard: none keeps that)");
    }
  } else if (options_.guard == compression::GuardMode::kWarn) {
    absl::StrAppend(&told.message, "the codec stays (spec.compression.guard: warn)");
  } else {
    absl::StrAppend(&told.message, "no codec loses less under the mask of its activation");
  }
  Do(std::move(told));
}

void RunState::WatchLoss(const StepRecord& record) {
  const std::optional<compression::CodecSpec> harshest = HarshestInForce();
  if (!harshest.has_value() || phase_ != Phase::kRunning || renewal_.has_value() || stop_asked_) return;
  if (options_.guard == compression::GuardMode::kNone) return;
  if (record.counted == 0) return;  // no target counts: there is no loss
  const std::optional<compression::LossTrendWatcher::Backoff> backoff = trend_.Observe(record.step, record.loss);
  if (!backoff.has_value()) return;
  Announce told{.reason = "CompressionBackoff", .step = record.step};
  if (options_.guard == compression::GuardMode::kWarn) {
    if (std::exchange(told_of_trend_, true)) return;
    told.message =
        absl::StrFormat("%s; codecs up to %s stay (spec.compression.guard: warn)", backoff->message, compression::ToString(*harshest));
    Do(std::move(told));
    return;
  }
  codec_limit_ = compression::AfterBadLoss(*harshest);
  told.makes_gentler = true;
  told.message =
      absl::StrFormat("%s; compression backs off from %s to %s at most", backoff->message, compression::ToString(*harshest), codec_limit());
  Do(std::move(told));
  if (options_.checkpoints) {  // other cuts may be better now
    EndEpochFor({.why = absl::StrCat("codecs up to ", codec_limit())});
    return;
  }
  for (const std::string& device : plan_.devices) Do(SendCodecLimit{.name = device, .epoch = epoch_, .codec = codec_limit()});
}

// The first time to gentler codecs; when that does not help, compression is ruled out as the cause. True when the run goes on.
bool RunState::BackOffFromNotFinite(const Ended& event) {
  const std::optional<compression::CodecSpec> harshest = HarshestInForce();
  if (!event.not_finite || !harshest.has_value() || !options_.checkpoints || options_.guard != compression::GuardMode::kAuto) return false;
  codec_limit_ = ++backoffs_from_not_finite_ > 1 ? compression::Exact() : compression::AfterBadLoss(*harshest);
  const std::string where = AtStage(event.name, event.status);
  Do(Announce{.reason = "CompressionBackoff",
              .step = last_step_,
              .message = absl::StrFormat("%s; compression backs off from %s to %s at most, from the last checkpoint", where,
                                         compression::ToString(*harshest), codec_limit()),
              .device = event.name,
              .makes_gentler = true});
  codecs_are_stale_ = true;
  renewal_why_ = absl::StrCat("codecs up to ", codec_limit());
  Drain(where);
  DrainedOne(event.name);
  return true;
}

}  // namespace fusionllm::broker
