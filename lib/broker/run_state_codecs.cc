// RunState: less aggressive codecs. A loss that leaves its trend under compression, or is NaN or infinite, is answered with them; what
// senders find out about theirs, and have done about it already, is reported and kept for whatever plan comes next.
//
// Where there are checkpoints the loss leads to another plan, at the boundary of a step: under less aggressive codecs other cuts may be
// better. Where there are none the codecs alone change, where they are.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/codec_limit.h"
#include "lib/broker/run_state.h"
#include "lib/compression/codec_guard.h"

namespace fusionllm::broker {

// Of what the plan uses, less what was ordered since. What senders found of single values is not in it.
std::optional<compression::CodecSpec> RunState::MostAggressiveInForce() const {
  std::optional<compression::CodecSpec> most_aggressive = MostAggressiveCodec(plan_);
  if (most_aggressive.has_value() && codec_limit_.has_value())
    most_aggressive = compression::LessAggressiveOf(*most_aggressive, *codec_limit_);
  if (most_aggressive.has_value() && most_aggressive->kind == compression::CodecKind::kExact) return std::nullopt;
  return most_aggressive;
}

void RunState::TakeBackoffs(const StageMeasured& event) {
  for (const CodecBackoff& found : event.backoffs) {
    const absl::StatusOr<compression::CodecSpec> to = compression::ParseCodecSpec(found.to);
    if (!to.ok() || RankOf(event.name) < 0 || RankOf(found.peer) < 0) continue;
    if (found.to == found.from) {
      if (warned_.insert({event.name, found.value, found.gradient}).second) EmitBackoff(event, found);
      continue;
    }
    std::string& known = codec_limits_[{found.value, found.gradient}];
    if (const auto before = compression::ParseCodecSpec(known); before.ok() && compression::LessAggressiveOf(*to, *before) == *before)
      continue;
    known = found.to;
    EmitBackoff(event, found);
  }
}

void RunState::EmitBackoff(const StageMeasured& event, const CodecBackoff& found) {
  const int from = RankOf(event.name), to = RankOf(found.peer);
  EmitEvent backoff_event{.reason = "CompressionBackoff", .step = event.step, .device = event.name, .peer = found.peer, .backoff = found};
  SetStageAndReplica(from, backoff_event);
  for (const PlannedLink& link : plan_.links) {
    const bool there = link.src_rank == from && link.dst_rank == to, back = link.src_rank == to && link.dst_rank == from;
    if (there || back)
      backoff_event.expected_loss_increase = std::max(backoff_event.expected_loss_increase, link.loss_cost);  // the forward direction's
  }
  backoff_event.message = absl::StrFormat(
      "%s > %s: %s%s (%s) by %s loses %.3g%% of its norm (cosine %.3f), and such a value bears %.3g%%; the plan expects %+.2f nats of "
      "this link; ",
      event.name, found.peer, found.gradient ? "the gradient of " : "", found.value, found.kind, found.from, 100 * found.relative_error,
      found.cosine, 100 * found.limit, backoff_event.expected_loss_increase);
  if (found.to != found.from) {
    backoff_event.reduces_compression = true;
    absl::StrAppendFormat(&backoff_event.message, "it goes by %s, which loses %.2g%%", found.to, 100 * found.remaining_error);
    if (options_.codecs_asked_for) {
      absl::StrAppend(&backoff_event.message, ", in the place of what spec.compression asks for (spec.compression.guard: none keeps that)");
    }
  } else if (options_.guard == compression::GuardMode::kWarn) {
    absl::StrAppend(&backoff_event.message, "the codec stays (spec.compression.guard: warn)");
  } else {
    absl::StrAppend(&backoff_event.message, "no codec loses less under the mask of its activation");
  }
  Do(std::move(backoff_event));
}

void RunState::WatchLoss(const StepRecord& record) {
  const std::optional<compression::CodecSpec> most_aggressive = MostAggressiveInForce();
  if (!most_aggressive.has_value() || phase_ != Phase::kRunning || plan_switch_.has_value() || stop_asked_) return;
  if (options_.guard == compression::GuardMode::kNone) return;
  if (record.counted == 0) return;  // no target counts: there is no loss
  const std::optional<compression::LossDivergenceDetector::Backoff> backoff = trend_.Observe(record.step, record.loss);
  if (!backoff.has_value()) return;
  EmitEvent backoff_event{.reason = "CompressionBackoff", .step = record.step};
  if (options_.guard == compression::GuardMode::kWarn) {
    if (std::exchange(trend_warning_emitted_, true)) return;
    backoff_event.message = absl::StrFormat("%s; codecs up to %s stay (spec.compression.guard: warn)", backoff->message,
                                            compression::ToString(*most_aggressive));
    Do(std::move(backoff_event));
    return;
  }
  codec_limit_ = compression::CodecAfterDivergence(*most_aggressive);
  backoff_event.reduces_compression = true;
  backoff_event.message = absl::StrFormat("%s; compression backs off from %s to %s at most", backoff->message,
                                          compression::ToString(*most_aggressive), codec_limit());
  Do(std::move(backoff_event));
  if (options_.checkpoints) {  // other cuts may be better now
    EndEpochForPlanSwitch({.why = absl::StrCat("codecs up to ", codec_limit())});
    return;
  }
  for (const std::string& device : plan_.devices) Do(SendCodecLimit{.name = device, .epoch = epoch_, .codec = codec_limit()});
}

// The first time to less aggressive codecs; when that does not help, compression is ruled out as the cause. True when the run goes on.
bool RunState::BackOffFromNotFinite(const Ended& event) {
  const std::optional<compression::CodecSpec> most_aggressive = MostAggressiveInForce();
  if (!event.not_finite || !most_aggressive.has_value() || !options_.checkpoints || options_.guard != compression::GuardMode::kAuto)
    return false;
  codec_limit_ = ++backoffs_from_not_finite_ > 1 ? compression::Exact() : compression::CodecAfterDivergence(*most_aggressive);
  const std::string where = AtStage(event.name, event.status);
  Do(EmitEvent{.reason = "CompressionBackoff",
               .step = last_step_,
               .message = absl::StrFormat("%s; compression backs off from %s to %s at most, from the last checkpoint", where,
                                          compression::ToString(*most_aggressive), codec_limit()),
               .device = event.name,
               .reduces_compression = true});
  codecs_are_stale_ = true;
  plan_switch_reason_ = absl::StrCat("codecs up to ", codec_limit());
  Drain(where);
  DrainedOne(event.name);
  return true;
}

}  // namespace fusionllm::broker
