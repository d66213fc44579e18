#include "lib/planning/replica_step.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/planning/step_document.h"
#include "lib/scheduler/bottlenecks.h"
#include "lib/scheduler/simulation.h"

namespace fusionllm::planning {
namespace {

using scheduler::Timeline;
using scheduler::replicas::ChainLink;
using scheduler::replicas::ChainResource;
using scheduler::replicas::ReplicaPlan;

constexpr size_t kMaxBottlenecks = 8;

double Slowest(const std::vector<wire::SimulatedStep>& pipelines) {
  double slowest_s = 0;
  for (const wire::SimulatedStep& pipeline : pipelines) slowest_s = std::max(slowest_s, pipeline.step_seconds);
  return slowest_s;
}

void AddChains(const ReplicaPlan& plan, wire::SimulatedStep& step) {
  for (const ChainLink& link : plan.sync.links) {
    wire::SimulatedLink out{.src = link.src,
                            .dst = link.dst,
                            .src_stage = link.stage,
                            .dst_stage = link.stage,
                            .sync = true,
                            .messages = link.chunks,
                            .bytes = link.bytes,
                            .busy_ratio = step.step_seconds > 0 ? link.busy_s / step.step_seconds : 0,
                            .busy_seconds = link.busy_s,
                            .latency_seconds = link.latency_s};
    for (size_t d = 0; d < plan.pipelines.size(); ++d) {
      if (plan.pipelines[d].stages[link.stage].device_names[0] == link.src) out.replica = static_cast<int>(d);
    }
    step.links.push_back(std::move(out));
  }
}

void AddResources(const std::vector<wire::SimulatedStep>& pipelines, const ReplicaPlan& plan, wire::SimulatedStep& step) {
  struct Use {
    int64_t bytes = 0;
    double busy_s = 0;
    int pipelines = 0;
    double synced_s = 0;
  };
  std::map<std::string, Use> uses;
  for (const wire::SimulatedStep& pipeline : pipelines) {
    for (const wire::SimulatedResource& resource : pipeline.resources) {
      Use& use = uses[resource.name];
      use.bytes += resource.bytes;
      use.busy_s += resource.busy_ratio * pipeline.step_seconds;
      ++use.pipelines;
    }
  }
  for (const ChainResource& resource : plan.sync.resources) {
    uses[resource.name].bytes += resource.bytes;
    uses[resource.name].synced_s += resource.busy_s;
  }
  for (const auto& [name, use] : uses) {
    // Each pipeline was simulated with its part of the rate: all of it carries the same in so much less time.
    const double busy_s = (use.pipelines > 0 ? use.busy_s / use.pipelines : 0) + use.synced_s;
    step.resources.push_back({.name = name, .bytes = use.bytes, .busy_ratio = step.step_seconds > 0 ? busy_s / step.step_seconds : 0});
  }
  std::stable_sort(step.resources.begin(), step.resources.end(), [](const auto& a, const auto& b) { return a.busy_ratio > b.busy_ratio; });
}

// What a tenth less of one thing makes of the slowest pipeline; a resource is one thing for all pipelines.
void AddLimits(const std::vector<wire::SimulatedStep>& pipelines, const ReplicaPlan& plan, wire::SimulatedStep& step) {
  if (!(step.step_seconds > 0)) return;
  std::map<std::pair<std::string, std::string>, std::vector<double>> gains;  // by kind and name: of each pipeline
  for (size_t d = 0; d < pipelines.size(); ++d) {
    for (const wire::SimulatedBottleneck& bottleneck : pipelines[d].bottlenecks) {
      std::vector<double>& gain = gains[{bottleneck.kind, bottleneck.name}];
      gain.resize(pipelines.size(), 0);
      gain[d] = bottleneck.gain;
    }
  }
  for (const auto& [thing, gain] : gains) {
    double slowest_s = 0, busy_ratio = 0;
    wire::SimulatedBottleneck words;
    for (size_t d = 0; d < pipelines.size(); ++d) {
      slowest_s = std::max(slowest_s, pipelines[d].step_seconds * (1 - gain[d]));
      for (const wire::SimulatedBottleneck& bottleneck : pipelines[d].bottlenecks) {
        const bool same = bottleneck.kind == thing.first && bottleneck.name == thing.second;
        if (!same) continue;
        busy_ratio = std::max(busy_ratio, bottleneck.busy_ratio * pipelines[d].step_seconds / step.step_seconds);
        words = bottleneck;
      }
    }
    step.bottlenecks.push_back({.kind = thing.first,
                                .name = thing.second,
                                .busy_ratio = busy_ratio,
                                .gain = 1 - (slowest_s + plan.sync_s) / step.step_seconds,
                                .detail = words.detail,
                                .remedy = words.remedy});
  }
  const double share = plan.sync_s / step.step_seconds;
  step.bottlenecks.push_back(
      {.kind = "sync", .name = "adding up the gradients of replicas", .busy_ratio = share, .gain = scheduler::kProbedSpeedUp * share});
  std::stable_sort(step.bottlenecks.begin(), step.bottlenecks.end(), [](const auto& a, const auto& b) { return a.gain > b.gain; });
  if (step.bottlenecks.size() > kMaxBottlenecks) step.bottlenecks.resize(kMaxBottlenecks);
}

bool IsLink(const wire::SimulatedBottleneck& bottleneck) { return bottleneck.kind == "link" || bottleneck.kind == "resource"; }

}  // namespace

wire::SimulatedStep ReplicaStep(const std::vector<wire::SimulatedStep>& pipelines, const ReplicaPlan& plan) {
  wire::SimulatedStep step{.step_seconds = Slowest(pipelines) + plan.sync_s,
                           .schedule = pipelines[0].schedule,
                           .virtual_stages = pipelines[0].virtual_stages,
                           .runnable = false,
                           .micro_batches = 0,
                           .replicas = static_cast<int>(pipelines.size()),
                           .sync_seconds = plan.sync_s};
  for (const wire::SimulatedStep& pipeline : pipelines) step.micro_batches += pipeline.micro_batches;
  for (size_t d = 0; d < pipelines.size(); ++d) {
    const double share = step.step_seconds > 0 ? pipelines[d].step_seconds / step.step_seconds : 0;
    for (wire::SimulatedStage stage : pipelines[d].stages) {
      stage.replica = static_cast<int>(d);
      stage.idle_seconds += step.step_seconds - pipelines[d].step_seconds;
      stage.busy_ratio *= share;
      step.stages.push_back(std::move(stage));
    }
    for (wire::SimulatedLink link : pipelines[d].links) {
      link.replica = static_cast<int>(d);
      link.busy_ratio *= share;
      step.links.push_back(std::move(link));
    }
    step.loss_cost += pipelines[d].loss_cost * pipelines[d].micro_batches / step.micro_batches;
  }
  AddChains(plan, step);
  AddResources(pipelines, plan, step);
  AddLimits(pipelines, plan, step);
  size_t runner_up = 0;
  // A link and what it shares with others are one limit.
  for (size_t l = 1; l < step.bottlenecks.size() && runner_up == 0; ++l) {
    if (!IsLink(step.bottlenecks[0]) || !IsLink(step.bottlenecks[l]) || step.bottlenecks[0].kind == step.bottlenecks[l].kind) runner_up = l;
  }
  step.bottleneck = BottleneckSentence(step, runner_up);
  return step;
}

Timeline ReplicaTimeline(std::vector<Timeline> pipelines, const ReplicaPlan& plan) {
  Timeline whole;
  for (const Timeline& pipeline : pipelines) whole.step_s = std::max(whole.step_s, pipeline.step_s);
  const double finished_s = whole.step_s;
  const auto add = [&](const Timeline::Box& box) {
    if (whole.boxes.size() == scheduler::kMaxTimelineBoxes) {
      whole.truncated = true;
    } else {
      whole.boxes.push_back(box);
    }
  };
  for (size_t d = 0; d < pipelines.size(); ++d) {
    const int first = static_cast<int>(whole.rows.size());
    for (Timeline::Row& row : pipelines[d].rows) {
      whole.rows.push_back({.name = absl::StrFormat("pipeline %d, %s", d, row.name), .is_link = row.is_link});
    }
    for (const Timeline::Box& box : pipelines[d].boxes) add({.row = first + box.row, .span = box.span});
    whole.truncated = whole.truncated || pipelines[d].truncated;
  }
  // One box for all chunks, from the first one to the last: there may be gaps between them.
  for (const ChainLink& link : plan.sync.links) {
    whole.rows.push_back({.name = absl::StrFormat("%s -> %s: all-reduce of stage %d", link.src, link.dst, link.stage), .is_link = true});
    add({.row = static_cast<int>(whole.rows.size()) - 1,
         .span = {.kind = scheduler::TimelineSpan::Kind::kBackwardMessage,
                  .begin_s = finished_s + link.begin_s,
                  .end_s = finished_s + link.end_s,
                  .sent_s = finished_s + link.begin_s,
                  .arrives_s = finished_s + (link.end_s + link.latency_s)}});
  }
  whole.step_s = finished_s + plan.sync_s;
  return whole;
}

}  // namespace fusionllm::planning
