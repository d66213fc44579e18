#include "lib/broker/codec_backoffs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/codec_limit.h"
#include "lib/compression/codec_guard.h"

namespace fusionllm::broker {

CodecBackoffs::CodecBackoffs(const RunOptions& options)
    : guard_(options.guard),
      codecs_asked_for_(options.codecs_asked_for),
      checkpoints_(options.checkpoints),
      codec_limits_(options.codec_limits) {
  SetLimit(options.codec_limit);
}

void CodecBackoffs::Adopt(const std::string& limit, CodecLimits limits) {
  SetLimit(limit);
  codec_limits_ = std::move(limits);
}

void CodecBackoffs::SetLimit(const std::string& limit) {
  if (const auto known = compression::ParseCodecSpec(limit); known.ok()) codec_limit_ = *known;
}

std::string CodecBackoffs::limit() const { return codec_limit_.has_value() ? compression::ToString(*codec_limit_) : ""; }

void CodecBackoffs::BeginEpoch() {
  trend_.Reset();
  trend_warning_emitted_ = false;
}

// Of what the plan uses, less what was ordered since. What senders found of single values is not in it.
std::optional<compression::CodecSpec> CodecBackoffs::MostAggressiveInForce(const RunPlan& plan) const {
  std::optional<compression::CodecSpec> most_aggressive = MostAggressiveCodec(plan);
  if (most_aggressive.has_value() && codec_limit_.has_value())
    most_aggressive = compression::LessAggressiveOf(*most_aggressive, *codec_limit_);
  if (most_aggressive.has_value() && most_aggressive->kind == compression::CodecKind::kExact) return std::nullopt;
  return most_aggressive;
}

void CodecBackoffs::OnMeasured(const StageMeasured& event, const RunPlan& plan, ActionQueue& queue) {
  for (const CodecBackoff& found : event.backoffs) {
    const absl::StatusOr<compression::CodecSpec> to = compression::ParseCodecSpec(found.to);
    if (!to.ok() || !plan.Uses(event.name) || !plan.Uses(found.peer)) continue;
    if (found.to == found.from) {
      if (warned_.insert({event.name, found.value, found.gradient}).second) EmitBackoff(event, found, plan, queue);
      continue;
    }
    std::string& known = codec_limits_[{found.value, found.gradient}];
    if (const auto before = compression::ParseCodecSpec(known); before.ok() && compression::LessAggressiveOf(*to, *before) == *before)
      continue;
    known = found.to;
    EmitBackoff(event, found, plan, queue);
  }
}

void CodecBackoffs::EmitBackoff(const StageMeasured& event, const CodecBackoff& found, const RunPlan& plan, ActionQueue& queue) const {
  const int from = plan.RankOf(event.name), to = plan.RankOf(found.peer);
  EmitEvent backoff_event{.reason = "CompressionBackoff", .step = event.step, .device = event.name, .peer = found.peer, .backoff = found};
  SetStageAndReplica(plan, from, backoff_event);
  for (const plan::Link& link : plan.plan.links) {
    const std::pair<int, int> ranks = plan.RanksOf(link);
    if (ranks == std::pair(from, to) || ranks == std::pair(to, from))
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
    if (codecs_asked_for_) {
      absl::StrAppend(&backoff_event.message, ", in the place of what spec.compression asks for (spec.compression.guard: none keeps that)");
    }
  } else if (guard_ == compression::GuardMode::kWarn) {
    absl::StrAppend(&backoff_event.message, "the codec stays (spec.compression.guard: warn)");
  } else {
    absl::StrAppend(&backoff_event.message, "no codec loses less under the mask of its activation");
  }
  queue.Push(std::move(backoff_event));
}

bool CodecBackoffs::OnStep(const StepRecord& record, const RunPlan& plan, ActionQueue& queue) {
  const std::optional<compression::CodecSpec> most_aggressive = MostAggressiveInForce(plan);
  if (!most_aggressive.has_value() || guard_ == compression::GuardMode::kNone) return false;
  if (record.counted == 0) return false;  // no target counts: there is no loss
  const std::optional<compression::LossDivergenceDetector::Backoff> backoff = trend_.Observe(record.step, record.loss);
  if (!backoff.has_value()) return false;
  EmitEvent backoff_event{.reason = "CompressionBackoff", .step = record.step};
  if (guard_ == compression::GuardMode::kWarn) {
    if (std::exchange(trend_warning_emitted_, true)) return false;
    backoff_event.message = absl::StrFormat("%s; codecs up to %s stay (spec.compression.guard: warn)", backoff->message,
                                            compression::ToString(*most_aggressive));
    queue.Push(std::move(backoff_event));
    return false;
  }
  codec_limit_ = compression::CodecAfterDivergence(*most_aggressive);
  backoff_event.reduces_compression = true;
  backoff_event.message = absl::StrFormat("%s; compression backs off from %s to %s at most", backoff->message,
                                          compression::ToString(*most_aggressive), limit());
  queue.Push(std::move(backoff_event));
  return true;
}

bool CodecBackoffs::OnNotFinite(const StageEnded& event, const std::string& where, int64_t last_step, const RunPlan& plan,
                                ActionQueue& queue) {
  const std::optional<compression::CodecSpec> most_aggressive = MostAggressiveInForce(plan);
  if (!event.not_finite || !most_aggressive.has_value() || !checkpoints_ || guard_ != compression::GuardMode::kAuto) return false;
  codec_limit_ = ++backoffs_from_not_finite_ > 1 ? compression::Exact() : compression::CodecAfterDivergence(*most_aggressive);
  queue.Push(EmitEvent{.reason = "CompressionBackoff",
                       .step = last_step,
                       .message = absl::StrFormat("%s; compression backs off from %s to %s at most, from the last checkpoint", where,
                                                  compression::ToString(*most_aggressive), limit()),
                       .device = event.name,
                       .reduces_compression = true});
  return true;
}

}  // namespace fusionllm::broker
