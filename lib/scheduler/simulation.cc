#include "lib/scheduler/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fusionllm::scheduler {
namespace {

using Kind = TimelineSpan::Kind;

// Adds up what the spans say; passes them on.
class Tally final : public SpanSink {
 public:
  Tally(const PipelineInput& input, const std::vector<std::string>& shared_links, SpanSink* next) : input_(input), next_(next) {
    out_.stages.resize(input.workers());
    open_.resize(input.workers());
    last_pass_s_.resize(input.workers());
    for (size_t l = 0; l < input.links.size(); ++l) {
      for (const bool forward : {true, false}) AddLink(input.links[l], forward);
    }
    for (const TiedMessage& tied : input.tied) Use({tied.from, tied.to, LinkUsage::Kind::kTied}, tied.channel.latency_s);
    for (const auto* messages : {&input.reports, &input.decisions}) {
      for (const StepEndMessage& message : *messages) AddEndMessage(message);
    }
    for (size_t w = 0; w < shared_links.size(); ++w) {
      if (!shared_links[w].empty())
        shared_of_[static_cast<int>(w)] = SharedLinkUsage{.shared_link = static_cast<int>(w), .name = shared_links[w]};
    }
  }

  void Add(const TimelineSpan& span) override {
    if (next_ != nullptr) next_->Add(span);
    if (span.kind == Kind::kForwardMessage || span.kind == Kind::kBackwardMessage) {
      const StageLink& link = input_.links[span.stage];
      const bool forward = span.kind == Kind::kForwardMessage;
      AddMessage(span, KeyOf(link, forward), forward ? link.forward : link.backward);
      return;
    }
    if (span.kind == Kind::kTiedMessage) {
      const TiedMessage& tied = input_.tied[span.stage];
      AddMessage(span, {tied.from, tied.to, LinkUsage::Kind::kTied}, tied.channel);
      return;
    }
    if (span.kind == Kind::kNorm) return;  // which waits
    const int worker = span.kind == Kind::kUpdate ? span.stage : span.stage % input_.workers();
    StageUsage& use = out_.stages[worker];
    if (span.kind == Kind::kUpdate) use.end_s = span.begin_s - last_pass_s_[worker];
    last_pass_s_[worker] = span.end_s;
    const StageTiming& timing = input_.stages[span.stage];
    const double seconds = span.end_s - span.begin_s;
    const auto split_codec = [&](double codec_s, double whole_s, double& compute_s) {
      const double share = whole_s > 0 ? codec_s / whole_s : 0;
      use.codec_s += seconds * share;
      compute_s += seconds - seconds * share;
    };
    if (span.kind == Kind::kForward) {
      use.peak_in_flight = std::max(use.peak_in_flight, ++open_[worker]);
      split_codec(timing.codec_forward_s, timing.forward_s, use.forward_s);
    } else if (span.kind == Kind::kBackward) {
      // Its stash is free when it ends; the next forward cannot begin before.
      --open_[worker];
      split_codec(timing.codec_backward_s, timing.backward_s - (input_.split_backward ? timing.weights_s : 0), use.backward_s);
    } else {
      (span.kind == Kind::kWeights ? use.weights_s : use.update_s) += seconds;
    }
  }

  Simulation Finish(const PipelineResult& result) {
    out_.step_s = result.step_s;
    out_.complete = result.complete;
    for (StageUsage& use : out_.stages) use.idle_s = std::max(0.0, result.step_s - use.busy_s());
    for (auto& [key, use] : link_of_) out_.links.push_back(use);
    for (auto& [shared_link, use] : shared_of_) {
      if (use.pairs > 0) out_.shared.push_back(use);
    }
    return std::move(out_);
  }

 private:
  using LinkKey = std::tuple<int, int, LinkUsage::Kind>;

  LinkKey KeyOf(const StageLink& link, bool forward) const {
    const int src = link.src % input_.workers(), dst = link.dst % input_.workers();
    return forward ? LinkKey(src, dst, LinkUsage::Kind::kActivations) : LinkKey(dst, src, LinkUsage::Kind::kGradients);
  }
  LinkUsage& Use(const LinkKey& key, double latency_s) {
    LinkUsage& use = link_of_[key];
    std::tie(use.src, use.dst, use.kind) = key;
    use.latency_s = latency_s;
    return use;
  }
  void AddEndMessage(const StepEndMessage& message) {
    LinkUsage& use = Use({message.from, message.to, LinkUsage::Kind::kNorm}, message.latency_s);
    ++use.messages;
    use.bytes += message.bytes;
    use.busy_s += std::max(0.0, message.seconds - message.latency_s);
  }
  void AddLink(const StageLink& link, bool forward) {
    const Channel& channel = forward ? link.forward : link.backward;
    if (!channel.used) return;
    Use(KeyOf(link, forward), channel.latency_s);
  }
  void AddMessage(const TimelineSpan& span, const LinkKey& key, const Channel& channel) {
    const bool tied = span.kind == Kind::kTiedMessage;
    LinkUsage& use = link_of_[key];
    double longest_s = 0;
    for (const LinkOccupancy& hold : channel.shared_links) longest_s = std::max(longest_s, hold.hold_s);
    // A tied message may let others pass between its pieces, and is then longer on its way than its shared links are busy with it.
    const double busy_s = tied ? std::min(span.end_s - span.begin_s, longest_s) : span.end_s - span.begin_s;
    ++use.messages;
    use.bytes += channel.bytes;
    use.busy_s += busy_s;
    if (span.begin_s - span.sent_s >= 1e-9) use.queued_s += span.begin_s - span.sent_s;  // less is what rounding leaves
    for (const LinkOccupancy& hold : channel.shared_links) {
      const auto shared = shared_of_.find(hold.shared_link);
      if (shared == shared_of_.end()) continue;
      users_[hold.shared_link].insert({std::get<0>(key), std::get<1>(key)});
      shared->second.pairs = static_cast<int>(users_[hold.shared_link].size());
      shared->second.bytes += channel.bytes;
      if (longest_s > 0) shared->second.busy_s += busy_s * hold.hold_s / longest_s;
    }
  }

  const PipelineInput& input_;
  SpanSink* const next_;
  Simulation out_;
  std::vector<int> open_;
  std::map<LinkKey, LinkUsage> link_of_;
  std::map<int, SharedLinkUsage> shared_of_;
  std::map<int, std::set<std::pair<int, int>>> users_;  // of a shared link: directed pairs of workers
  std::vector<double> last_pass_s_;                     // by worker: when its newest pass ends
};

}  // namespace

Simulation Simulate(const PipelineInput& input, const std::vector<std::string>& shared_links, const PassNoise* noise, SpanSink* spans) {
  Tally tally(input, shared_links, spans);
  return tally.Finish(PipelineSimulator().Run(input, &tally, noise));
}

const char* Name(LinkUsage::Kind kind) {
  switch (kind) {
    case LinkUsage::Kind::kActivations:
      return "activations";
    case LinkUsage::Kind::kGradients:
      return "gradients";
    case LinkUsage::Kind::kTied:
      return "tied gradients";
    default:
      return "global norm";
  }
}

std::vector<double> SimulateStepSeconds(const PipelineInput& input, const NoiseSpec& noise, int steps, const StopFunction& stop) {
  std::vector<double> seconds;
  PipelineSimulator simulator;
  for (int step = 0; step < steps && !(stop != nullptr && stop()); ++step) {
    const LogNormalNoise jitter(noise, step);
    seconds.push_back(simulator.Run(WithStragglers(input, noise, step), nullptr, noise.jitter > 0 ? &jitter : nullptr).step_s);
  }
  return seconds;
}

StepSpread SpreadOf(std::vector<double> seconds) {
  StepSpread spread{.steps = static_cast<int>(seconds.size())};
  if (seconds.empty()) return spread;
  for (const double s : seconds) spread.mean_s += s / static_cast<double>(seconds.size());
  std::sort(seconds.begin(), seconds.end());
  const auto rank = [&](double share) {
    const auto nearest = static_cast<size_t>(std::ceil(share * static_cast<double>(seconds.size())));
    return seconds[std::clamp<size_t>(nearest, 1, seconds.size()) - 1];
  };
  spread.p50_s = rank(0.5);
  spread.p95_s = rank(0.95);
  spread.min_s = seconds.front();
  spread.max_s = seconds.back();
  return spread;
}

}  // namespace fusionllm::scheduler
